package status

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgtype"
)

// A JobOf asks for a job's recent history.
type JobOf struct {
	Job     string
	Outcome string // as in RunsOf
	Before  int64  // as in RunsOf
}

// A JobHistory is what the history says of a job.
type JobHistory struct {
	AsOf  time.Time
	Runs  []Run     // a page, the newest first
	Next  int64     // the Before of the page that follows; zero: there is none
	Terms []Reign   // of all its leases, the newest first
	Times []Outcome // of its newest attempts that have ended, whatever page is asked for; the oldest first
	Open  []Request // what was asked for of it and is not settled, the oldest first
	Known bool      // there are runs of it, whatever page is asked for
}

// A Reign is a term, from its beginning.
type Reign struct {
	Lease      string
	Epoch      int64
	Owner      string
	AcquiredAt time.Time
	EndedAt    time.Time // zero: history has no end of it
	Reason     string
}

const (
	// What is shown of a job's history at once.
	shownRuns, shownTerms, shownTimes = 50, 40, 120

	reignsSQL = `
SELECT t.*
  FROM unnest($1::text[]) AS l(lease),
       LATERAL (SELECT job_name, epoch, owner, acquired_at, ended_at, end_reason
                  FROM terms WHERE job_name = l.lease AND NOT starts_with(owner, '` + nobodys + `')
                 ORDER BY epoch DESC LIMIT $2) t
 ORDER BY acquired_at DESC, epoch DESC LIMIT $2`

	// Skips may be many, and are no attempts: how far back the walk goes is bounded.
	timesSQL = `
SELECT id, tick, outcome, started_at, ended_at
  FROM (SELECT id, tick, outcome, started_at, ended_at FROM runs WHERE job = $1 ORDER BY id DESC LIMIT 1000) r
 WHERE outcome NOT IN ('skipped', 'missed')
 ORDER BY id DESC LIMIT $2`

	openOfJobSQL = `SELECT ` + requestColumns + ` FROM requests WHERE done_at IS NULL AND job = $1 ORDER BY id LIMIT 50`
)

const ranSQL = `SELECT EXISTS (SELECT FROM runs WHERE job = $1)`

// JobHistory reads the recent history of a job whose leases are given; it is kept as a snapshot is.
// Where asking is false it returns what is remembered.
func (r *Reader) JobHistory(ctx context.Context, q JobOf, leases []string, asking bool) (Reading[JobHistory], error) {
	runs := RunsOf{Job: q.Job, Outcome: q.Outcome, Before: q.Before, Limit: shownRuns}
	if err := runs.Validate(); err != nil {
		return Reading[JobHistory]{}, err
	}
	k := r.jobsKept.of(q)
	if !asking {
		return k.peek()
	}
	return k.get(ctx, r.fresh, r.patience, func(ctx context.Context) (JobHistory, error) {
		var h JobHistory
		var err error
		h.AsOf, err = r.ask(ctx, []question{
			runs.question(), {reignsSQL, []any{leases, shownTerms}}, {timesSQL, []any{q.Job, shownTimes}}, {openOfJobSQL, []any{q.Job}}, {ranSQL, []any{q.Job}},
		}, func(_ time.Time, res pgx.BatchResults) error { return h.load(res) })
		if err != nil {
			return JobHistory{}, fmt.Errorf("read the history of %q: %w", q.Job, err)
		}
		return h, nil
	})
}

func (h *JobHistory) load(res pgx.BatchResults) (err error) {
	if h.Runs, err = collect(res, scanRun); err != nil {
		return err
	}
	if len(h.Runs) > shownRuns {
		h.Runs = h.Runs[:shownRuns]
		h.Next = h.Runs[shownRuns-1].ID
	}
	if h.Terms, err = collect(res, scanReign); err != nil {
		return err
	}
	if h.Times, err = collect(res, scanOutcome); err != nil {
		return err
	}
	slices.Reverse(h.Times)
	if h.Open, err = collect(res, scanRequest); err != nil {
		return err
	}
	return res.QueryRow().Scan(&h.Known)
}

func scanReign(row pgx.CollectableRow) (t Reign, err error) {
	var acquired, ended pgtype.Timestamptz
	var reason *string
	err = row.Scan(&t.Lease, &t.Epoch, &t.Owner, &acquired, &ended, &reason)
	t.AcquiredAt, t.EndedAt, t.Reason = instant(acquired), instant(ended), value(reason)
	return t, err
}

func scanOutcome(row pgx.CollectableRow) (o Outcome, err error) {
	var tick, started, ended pgtype.Timestamptz
	err = row.Scan(&o.ID, &tick, &o.Outcome, &started, &ended)
	o.Tick, o.Took = instant(tick), took(started, ended)
	return o, err
}

// Record is Run for the many: kept as a snapshot is. Where asking is false it returns what is
// remembered.
func (r *Reader) Record(ctx context.Context, id int64, asking bool) (Reading[*RunRecord], error) {
	k := r.records.of(id)
	read := k.peek
	if asking {
		read = func() (Reading[*RunRecord], error) {
			return k.get(ctx, r.fresh, r.patience, func(ctx context.Context) (*RunRecord, error) {
				record, err := r.Run(ctx, id)
				if errors.Is(err, ErrNoRun) {
					return nil, nil // that there is none is an answer
				}
				return &record, err
			})
		}
	}
	got, err := read()
	if err == nil && got.Value == nil {
		return got, fmt.Errorf("run %d: %w", id, ErrNoRun)
	}
	return got, err
}
