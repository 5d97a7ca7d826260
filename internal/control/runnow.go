package control

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"

	"github.com/jackc/pgx/v5"

	"rota/internal/registry"
)

const (
	// mostWaiting is how many requests to run one job may wait at a time.
	mostWaiting = 1000
	longestKey  = 200
)

// RunNow asks for a run of a job besides its ticks, with a JSON object laid over its arguments. The
// job's leader runs it, once, after the run that it may be at; a pause does not keep it from doing so.
//
// A request that is made again under the same key is the same one, and must have the same arguments;
// so with a key it is safe to ask again when the answer was lost.
func (d *Desk) RunNow(ctx context.Context, o Order, job string, args json.RawMessage, key string) (Asked, error) {
	o, err := o.checked(false)
	if err != nil {
		return Asked{}, err
	}
	kept, err := d.runnable(job, args, key)
	if err != nil {
		return Asked{}, err
	}
	var a Asked
	err = d.do(ctx, "ask for a run of "+job, steer, func(ctx context.Context, t tx) error {
		if err := d.knows(ctx, t, job); err != nil {
			return err
		}
		a = Asked{Job: job, Lease: job}
		if err := t.insertRun(ctx, o, &a, kept, key); err != nil {
			return err
		}
		return t.expectRun(ctx, &a)
	})
	return a, err
}

// runnable refuses what the leader would refuse, as far as it can be known here.
func (d *Desk) runnable(job string, args json.RawMessage, key string) (*string, error) {
	if len(key) > longestKey || key != plain(key) {
		return nil, refuse(ErrInvalid, "the key must be text of at most %d bytes", longestKey)
	}
	kept, err := stored(args)
	if err != nil {
		return nil, err
	}
	j, ok := d.jobs[job]
	if !ok {
		return kept, nil // another version's, whose leader will look at them
	}
	if j.Schedule.Kind() == registry.Unbroken {
		return nil, refuse(ErrRefused, "job %q is continuous: it runs whenever it is led, and not on request; leases step-down starts it anew", job)
	}
	return kept, checkArgs(j, args)
}

const (
	waitingSQL   = `SELECT count(*) FROM requests WHERE kind = 'run' AND lease = $1 AND done_at IS NULL`
	insertRunSQL = `
INSERT INTO requests (kind, job, lease, args, key, reason, asked_by)
VALUES ('run', $1, $2, $3::jsonb, nullif($4, ''), $5, $6)
    ON CONFLICT (job, key) WHERE key IS NOT NULL DO NOTHING
RETURNING id`
	sameKeySQL = `
SELECT id, args IS NOT DISTINCT FROM $3::jsonb, coalesce(result, '')
  FROM requests WHERE job = $1 AND key = $2`
)

// insertRun makes the request, or finds the one that has its key. One that is being made at the same
// moment is waited for.
func (t tx) insertRun(ctx context.Context, o Order, a *Asked, args *string, key string) error {
	var waiting int
	if err := t.row(ctx, waitingSQL, a.Lease).Scan(&waiting); err != nil {
		return fmt.Errorf("count the requests: %w", err)
	}
	err := t.row(ctx, insertRunSQL, a.Job, a.Lease, args, key, o.Reason, o.By).Scan(&a.ID)
	switch {
	case errors.Is(err, pgx.ErrNoRows):
		return t.sameRun(ctx, a, args, key)
	case isDataError(err):
		return because(ErrInvalid, err, "the arguments cannot be stored")
	case err != nil:
		return fmt.Errorf("make the request: %w", err)
	case waiting >= mostWaiting:
		return refuse(ErrRefused, "%d requests to run %q wait already: see why nobody takes them before asking for more", waiting, a.Job)
	}
	detail := map[string]any{}
	if args != nil {
		detail["args"] = json.RawMessage(*args)
	}
	if key != "" {
		detail["key"] = key
	}
	return t.write(ctx, o, line{action: string(Run), job: a.Job, lease: a.Lease, request: a.ID, detail: detail})
}

func (t tx) sameRun(ctx context.Context, a *Asked, args *string, key string) error {
	var same bool
	var result string
	if err := t.row(ctx, sameKeySQL, a.Job, key, args).Scan(&a.ID, &same, &result); err != nil {
		return fmt.Errorf("find the request of key %q: %w", key, err)
	}
	if !same {
		return refuse(ErrRefused, "request %d to run %q has the key %q already, with other arguments: use another key", a.ID, a.Job, key)
	}
	a.Existed = true
	if result != "" {
		a.Expect = "it was settled: " + result
	}
	return nil
}

// isDataError says that a value is none that the database can hold, such as a zero byte in jsonb.
func isDataError(err error) bool {
	return isState(err, "22P05", "22P02", "22003", "22021", "22030", "54000", "54001")
}

const expectRunSQL = `
SELECT coalesce((SELECT l.owner FROM leadership l WHERE l.job_name = $1 AND l.expires_at > clock_timestamp()), ''),
       EXISTS (SELECT FROM progress p JOIN runs r ON r.id = ANY (p.open) WHERE p.lease = $1 AND r.ended_at IS NULL)
    OR EXISTS (SELECT FROM requests q WHERE q.kind = 'run' AND q.lease = $1 AND q.done_at IS NULL AND q.id < $2),
       EXISTS (SELECT FROM pauses p WHERE p.job IN ($3, '*') AND (p.until IS NULL OR p.until > clock_timestamp()))`

// expectRun says what will come of the request.
func (t tx) expectRun(ctx context.Context, a *Asked) error {
	if a.Expect != "" {
		return nil
	}
	var busy, paused bool
	if err := t.row(ctx, expectRunSQL, a.Lease, a.ID, a.Job).Scan(&a.Replica, &busy, &paused); err != nil {
		return fmt.Errorf("look at the job: %w", err)
	}
	switch {
	case a.Replica == "":
		a.Expect = "nobody leads the job: it waits until somebody does"
	case busy:
		a.Expect = "it waits for the run under way on " + a.Replica
	default:
		a.Expect = "it starts at once on " + a.Replica
	}
	if paused {
		a.Expect += "; the job is paused, which does not keep a requested run back"
	}
	return nil
}
