package control

import (
	"context"
	"errors"
	"fmt"

	"github.com/jackc/pgx/v5"
)

const (
	// withdrawnSQL locks the request against the claim of its run, which locks it too: one of them
	// waits for the other, or leaves it for later, and sees what the other did.
	withdrawnSQL = `
SELECT kind, coalesce(job, ''), coalesce(lease, ''), done_at IS NOT NULL, coalesce(result, '')
  FROM requests WHERE id = $1 FOR NO KEY UPDATE`
	begunSQL    = `SELECT id, ended_at IS NOT NULL FROM runs WHERE request_id = $1 ORDER BY attempt DESC LIMIT 1`
	withdrawSQL = `UPDATE requests SET done_at = clock_timestamp(), result = $2 WHERE id = $1`
)

// A Withdrawn is a request to run a job that will not be carried out.
type Withdrawn struct {
	ID     int64  `json:"request"`
	Job    string `json:"job"`
	Lease  string `json:"lease"`
	Result string `json:"result"`
}

// Withdraw settles a request to run a job of which no run has begun; none begins from then on. What
// has begun, or is settled, is refused.
func (d *Desk) Withdraw(ctx context.Context, o Order, request int64) (Withdrawn, error) {
	o, err := o.checked(true)
	if err != nil {
		return Withdrawn{}, err
	}
	w := Withdrawn{ID: request, Result: "withdrawn by " + o.By + ": " + o.Reason}
	err = d.do(ctx, fmt.Sprintf("withdraw request %d", request), nothing, func(ctx context.Context, t tx) error {
		if err := t.lockWaiting(ctx, &w); err != nil {
			return err
		}
		if err := t.exec(ctx, withdrawSQL, request, w.Result); err != nil {
			return fmt.Errorf("settle the request: %w", err)
		}
		return t.write(ctx, o, line{
			action: actionWithdraw, job: w.Job, lease: w.Lease, request: request, detail: map[string]any{"result": w.Result},
		})
	})
	return w, err
}

// lockWaiting refuses a request that is none for a run, or no longer waits.
func (t tx) lockWaiting(ctx context.Context, w *Withdrawn) error {
	var kind Kind
	var done, ended bool
	var result string
	err := t.row(ctx, withdrawnSQL, w.ID).Scan(&kind, &w.Job, &w.Lease, &done, &result)
	switch {
	case errors.Is(err, pgx.ErrNoRows):
		return refuse(ErrNotFound, "there is no request %d: requests list has those that wait", w.ID)
	case err != nil:
		return fmt.Errorf("look at the request: %w", err)
	case kind != Run:
		return refuse(ErrInvalid, "request %d is no request to run a job (%s): only those are withdrawn", w.ID, kind)
	}
	var run int64
	err = t.row(ctx, begunSQL, w.ID).Scan(&run, &ended)
	switch {
	case err == nil && ended:
		return refuse(ErrRefused, "request %d has been carried out already, by run %d", w.ID, run)
	case err == nil:
		return refuse(ErrRefused, "request %d has begun already: runs cancel %d ends its run", w.ID, run)
	case !errors.Is(err, pgx.ErrNoRows):
		return fmt.Errorf("look for a run: %w", err)
	case done:
		return refuse(ErrRefused, "request %d is settled already: %s", w.ID, result)
	}
	return nil
}
