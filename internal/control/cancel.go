package control

import (
	"context"
	"errors"
	"fmt"

	"github.com/jackc/pgx/v5"
)

const (
	runSQL = `
SELECT r.job, r.lease, r.owner, coalesce(r.outcome, ''),
       EXISTS (SELECT FROM leadership l WHERE l.job_name = r.lease AND l.owner = r.owner AND l.epoch = r.epoch
                                          AND l.expires_at > clock_timestamp())
  FROM runs r WHERE r.id = $1`
	openCancelSQL   = `SELECT id FROM requests WHERE kind = 'cancel' AND run_id = $1 AND done_at IS NULL ORDER BY id LIMIT 1`
	insertCancelSQL = `
INSERT INTO requests (kind, job, lease, run_id, reason, asked_by) VALUES ('cancel', $1, $2, $3, $4, $5) RETURNING id`
)

// Cancel asks for the end of a run. Its context ends; the run is over once its job has returned.
// While such a request is open, asking again finds it.
func (d *Desk) Cancel(ctx context.Context, o Order, run int64) (Asked, error) {
	o, err := o.checked(true)
	if err != nil {
		return Asked{}, err
	}
	a := Asked{Run: run}
	err = d.do(ctx, fmt.Sprintf("cancel run %d", run), steer, func(ctx context.Context, t tx) error {
		var outcome string
		var alive bool
		err := t.row(ctx, runSQL, run).Scan(&a.Job, &a.Lease, &a.Replica, &outcome, &alive)
		switch {
		case errors.Is(err, pgx.ErrNoRows):
			return refuse(ErrNotFound, "there is no run %d: runs list has those on record", run)
		case err != nil:
			return fmt.Errorf("look at the run: %w", err)
		case outcome != "":
			return refuse(ErrRefused, "run %d of %q has ended already: %s", run, a.Job, outcome)
		}
		a.Expect = "its context ends on " + a.Replica
		if !alive {
			a.Expect = "its term is over already: whoever leads the job next closes it as lost"
		}
		return t.once(ctx, &a, openCancelSQL, []any{run}, func() error {
			if err := t.row(ctx, insertCancelSQL, a.Job, a.Lease, run, o.Reason, o.By).Scan(&a.ID); err != nil {
				return fmt.Errorf("make the request: %w", err)
			}
			return t.write(ctx, o, line{action: string(Cancel), job: a.Job, lease: a.Lease, run: run, request: a.ID})
		})
	})
	return a, err
}

// once makes a request unless the query finds one. Two that are made at the very same moment are
// both made, which does no harm: what ends the one ends the other.
func (t tx) once(ctx context.Context, a *Asked, find string, args []any, insert func() error) error {
	err := t.row(ctx, find, args...).Scan(&a.ID)
	a.Existed = err == nil
	if errors.Is(err, pgx.ErrNoRows) {
		return insert()
	}
	if err != nil {
		return fmt.Errorf("look for such a request: %w", err)
	}
	return nil
}
