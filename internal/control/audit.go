package control

import (
	"context"
	"encoding/json"
	"fmt"
)

// What the audit calls the orders that are no requests; a request's line has its kind.
const (
	actionPause    = "pause"
	actionResume   = "resume"
	actionRevoke   = "revoke"
	actionWithdraw = "withdraw"
)

// A line is what the audit says of one order. What is empty is left out.
type line struct {
	action              string
	job, lease, replica string
	run, request        int64
	detail              map[string]any
}

const lineSQL = `
INSERT INTO audit (actor, via, action, job, lease, replica, run_id, request_id, reason, detail)
VALUES ($1, $2, $3, nullif($4, ''), nullif($5, ''), nullif($6, ''), nullif($7::bigint, 0), nullif($8::bigint, 0), $9, $10::jsonb)`

// write adds a line to the audit.
func (t tx) write(ctx context.Context, o Order, l line) error {
	var detail *string
	if o.From != "" {
		l.detail = with(l.detail, "from", o.From)
	}
	if l.detail != nil {
		b, err := json.Marshal(l.detail)
		if err != nil {
			return fmt.Errorf("put the detail into words: %w", err)
		}
		s := string(b)
		detail = &s
	}
	if err := t.exec(ctx, lineSQL, o.By, o.Via, l.action, l.job, l.lease, l.replica, l.run, l.request, o.Reason, detail); err != nil {
		return fmt.Errorf("write the audit: %w", err)
	}
	return nil
}

func with(detail map[string]any, name string, value any) map[string]any {
	if detail == nil {
		detail = map[string]any{}
	}
	detail[name] = value
	return detail
}
