package control

import (
	"context"
	"unicode/utf8"
)

// Tried is an order that was refused, so that nothing came of it.
type Tried struct {
	Action  string // as the audit calls the order
	Job     string
	Lease   string
	Replica string
	Run     int64
	Request int64
	Why     string // it was refused
	More    int    // further attempts that this line stands for
}

// longestName is in bytes: what a stranger asks for may be of any length.
const longestName = 200

// Refused writes to the audit what was tried and refused. What is too long is cut short: the order was refused
// already, and is not refused again.
func (d *Desk) Refused(ctx context.Context, o Order, a Tried) error {
	o.Reason = cut(oneLine(plain(o.Reason)), longestReason)
	o.By, o.From = cut(oneLine(plain(o.By)), longestBy), cut(oneLine(plain(o.From)), longestName)
	o, err := o.checked(false)
	if err != nil {
		return err
	}
	detail := map[string]any{"outcome": "refused", "why": cut(oneLine(plain(a.Why)), longestReason)}
	if a.More > 0 {
		detail["more"] = a.More
	}
	return d.do(ctx, "write down an attempt", nothing, func(ctx context.Context, t tx) error {
		return t.write(ctx, o, line{
			action: a.Action, job: cut(plain(a.Job), longestName), lease: cut(plain(a.Lease), longestName),
			replica: cut(plain(a.Replica), longestName), run: a.Run, request: a.Request, detail: detail,
		})
	})
}

// cut keeps whole characters.
func cut(s string, n int) string {
	if len(s) <= n {
		return s
	}
	for n > 0 && !utf8.RuneStart(s[n]) {
		n--
	}
	return s[:n]
}
