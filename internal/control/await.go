package control

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"
)

const (
	// awaitEvery is how often what is waited for is looked at.
	awaitEvery = 100 * time.Millisecond
	// awaitPatience is how long the database may be away meanwhile.
	awaitPatience = 30 * time.Second
)

// Now is the time by the database's clock.
func (d *Desk) Now(ctx context.Context) (now time.Time, err error) {
	bound, cancel := context.WithTimeout(ctx, orderTimeout)
	defer cancel()
	if err = d.db.QueryRow(bound, `SELECT clock_timestamp()`, pgx.QueryExecModeExec).Scan(&now); err != nil {
		err = explain(ctx, err, "ask for the database's time", false)
	}
	return now, err
}

const resultSQL = `SELECT coalesce(result, ''), done_at IS NOT NULL FROM requests WHERE id = $1`

// Await returns what became of a request, once that is written down.
func (d *Desk) Await(ctx context.Context, request int64) (result string, err error) {
	err = d.poll(ctx, func(ctx context.Context) (done bool, err error) {
		err = d.db.QueryRow(ctx, resultSQL, pgx.QueryExecModeExec, request).Scan(&result, &done)
		return done, err
	})
	return result, err
}

const nextLeaderSQL = `
SELECT owner, epoch FROM leadership WHERE job_name = $1 AND epoch > $2 AND owner <> '' AND expires_at > clock_timestamp()`

// AwaitLeader returns who leads a lease under an epoch above the given one, once somebody does.
func (d *Desk) AwaitLeader(ctx context.Context, lease string, above int64) (owner string, epoch int64, err error) {
	err = d.poll(ctx, func(ctx context.Context) (bool, error) {
		err := d.db.QueryRow(ctx, nextLeaderSQL, pgx.QueryExecModeExec, lease, above).Scan(&owner, &epoch)
		if errors.Is(err, pgx.ErrNoRows) {
			return false, nil
		}
		return err == nil, err
	})
	return owner, epoch, err
}

// An Attempt is a run that was made for a request.
type Attempt struct {
	Run     int64  `json:"run"` // 0: there is none
	Attempt int    `json:"attempt"`
	Owner   string `json:"owner"`
	Outcome string `json:"outcome"` // empty: it is under way, or there is none
	Error   string `json:"error"`   // what a run that did not succeed said, or why there is none
}

var attemptSQL = `
SELECT coalesce(r.id, 0), coalesce(r.attempt, 0), coalesce(r.owner, ''), coalesce(r.outcome, ''),
       coalesce(r.error, CASE WHEN r.id IS NULL THEN q.result END, ''), coalesce(r.again, false), q.done_at IS NOT NULL,
       coalesce(extract(epoch FROM clock_timestamp() - ` + orNever("r.ended_at") + `), 0)::float8
  FROM requests q
  LEFT JOIN LATERAL (SELECT * FROM runs r WHERE r.request_id = q.id ORDER BY r.attempt DESC LIMIT 1) r ON true
 WHERE q.id = $1`

// AwaitRun returns the last attempt at a run that was asked for, once no further one is to come.
// tell gets each attempt as it begins. A run that is refused by its leader has none.
func (d *Desk) AwaitRun(ctx context.Context, asked Asked, tell func(Attempt)) (a Attempt, err error) {
	told := 0
	err = d.poll(ctx, func(ctx context.Context) (bool, error) {
		var again, settled bool
		var age float64
		err := d.db.QueryRow(ctx, attemptSQL, pgx.QueryExecModeExec, asked.ID).
			Scan(&a.Run, &a.Attempt, &a.Owner, &a.Outcome, &a.Error, &again, &settled, &age)
		if err != nil {
			return false, err
		}
		if a.Attempt > told {
			told = a.Attempt
			tell(a)
		}
		switch {
		case a.Run == 0:
			return settled, nil
		case a.Outcome == "" || again:
			return false, nil
		}
		return time.Duration(age*float64(time.Second)) >= d.untilNext(asked.Job, a), nil
	})
	return a, err
}

// untilNext is how long after its end an attempt may be followed by another, which its leader makes
// unless a newer tick or the end of its term comes first. 0: none follows.
func (d *Desk) untilNext(job string, a Attempt) time.Duration {
	switch a.Outcome {
	case "failed", "panicked", "timed_out":
	default:
		return 0
	}
	pause, more := d.jobs[job].Retry.After(a.Attempt)
	if !more {
		return 0
	}
	return pause*5/4 + 10*time.Second
}

// poll looks until it is done. A database that is away for a while is waited for.
func (d *Desk) poll(ctx context.Context, look func(context.Context) (bool, error)) error {
	tick := time.NewTicker(awaitEvery)
	defer tick.Stop()
	good := time.Now()
	for {
		call, cancel := context.WithTimeout(ctx, callTimeout)
		done, err := look(call)
		cancel()
		switch {
		case done && err == nil:
			return nil
		case err == nil:
			good = time.Now()
		case ctx.Err() == nil && (errors.Is(err, pgx.ErrNoRows) || time.Since(good) > awaitPatience):
			return fmt.Errorf("wait for the order to be carried out: %w", err)
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			return fmt.Errorf("no longer waiting (%w); the order stands", context.Cause(ctx))
		}
	}
}
