package status

import (
	"cmp"
	"context"
	"fmt"
	"math"
	"slices"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgtype"
)

// A Run is one attempt at a tick, or the record of ticks that were skipped or missed.
type Run struct {
	ID        int64
	Lease     string
	Job       string
	Tick      time.Time
	Attempt   int
	Epoch     int64
	Owner     string
	StartedAt time.Time
	EndedAt   time.Time // zero: it runs
	Outcome   string    // empty while it runs
	Error     string    // or why it was skipped or missed; at most 1,000 characters of it
	Refused   int64     // its writes that the fence refused
	Request   int64     // the request that it was made for; zero: a scheduled tick
	FirstTick time.Time // of several ticks, of which Tick is the last; zero: it is for one
	Ticks     int64     // how many ticks it is for
}

// Running is the outcome that asks for runs that have not ended.
const Running = "running"

// runColumns are those of a run in a list, in the order of runRow.
const runColumns = `id, lease, job, tick, attempt, epoch, owner, started_at, ended_at, outcome, left(error, 1000) AS error,
       refused, request_id, first_tick, ticks`

// A runRow takes what runColumns selects, all of it NULL where there is no run.
type runRow struct {
	id, epoch, refused, request, ticks *int64
	lease, job, owner, outcome, fault  *string
	attempt                            *int
	tick, started, ended, first        pgtype.Timestamptz
}

func (r *runRow) columns() []any {
	return []any{
		&r.id, &r.lease, &r.job, &r.tick, &r.attempt, &r.epoch, &r.owner, &r.started, &r.ended, &r.outcome, &r.fault,
		&r.refused, &r.request, &r.first, &r.ticks,
	}
}

// run is nil where there is none.
func (r *runRow) run() *Run {
	if r.id == nil {
		return nil
	}
	return &Run{
		ID: *r.id, Lease: value(r.lease), Job: value(r.job), Tick: instant(r.tick), Attempt: value(r.attempt),
		Epoch: value(r.epoch), Owner: value(r.owner), StartedAt: instant(r.started), EndedAt: instant(r.ended),
		Outcome: value(r.outcome), Error: value(r.fault), Refused: value(r.refused), Request: value(r.request),
		FirstTick: instant(r.first), Ticks: value(r.ticks),
	}
}

func scanRun(row pgx.CollectableRow) (Run, error) {
	var r runRow
	if err := row.Scan(r.columns()...); err != nil {
		return Run{}, err
	}
	return *r.run(), nil
}

// Most is the highest limit of a list, and usual the one of who gives none.
const (
	Most  = 1000
	usual = 50
)

// RunsOf says which runs are wanted; the zero value: the newest of all.
type RunsOf struct {
	Job     string // empty: of all jobs
	Outcome string // one of Outcomes; empty: whatever it is
	Before  int64  // only runs with a lower id; zero: from the newest
	Limit   int    // 1 to Most; zero: 50
}

// A RunsPage is a part of the history, newest first.
type RunsPage struct {
	AsOf time.Time
	Runs []Run
	Next int64 // the Before of the page that follows; zero: there is none
}

// A walk by id, newest first, looks at each row that it meets until there are enough. Every outcome
// but success has indexes for it. What runs is little, and may be of any age, so it is collected
// first, from the progress of the leases.
const (
	runsSQL     = `SELECT ` + runColumns + ` FROM runs WHERE id < $1`
	openRunsSQL = `WITH runs AS MATERIALIZED (SELECT r.* FROM (SELECT unnest(open) AS id FROM progress) o JOIN runs r USING (id) WHERE r.ended_at IS NULL) ` + runsSQL
	newestSQL   = ` ORDER BY id DESC LIMIT $2`
)

// Outcomes are those that RunsOf may ask for.
var Outcomes = []string{
	Running, "success", "failed", "panicked", "timed_out", "cancelled", "fenced", "lost", "skipped", "missed",
}

// Validate says what is wrong with the question.
func (q RunsOf) Validate() error {
	if q.Outcome != "" && !slices.Contains(Outcomes, q.Outcome) {
		return fmt.Errorf("outcome %q: it must be one of %s", q.Outcome, strings.Join(Outcomes, ", "))
	}
	return validPage(q.Before, q.Limit)
}

// question asks for one run more than is wanted, to see whether there is one. The outcome, which is
// one of Outcomes, is no parameter: a partial index is used only for what is known beforehand.
func (q RunsOf) question() question {
	sql, args := runsSQL, []any{before(q.Before), q.Limit + 1}
	switch q.Outcome {
	case "":
	case Running:
		sql = openRunsSQL
	case "success":
		sql += ` AND outcome = 'success'`
	default:
		sql += ` AND but_success = '` + q.Outcome + `'`
	}
	if q.Job != "" {
		sql, args = sql+` AND job = $3`, append(args, q.Job)
	}
	return question{sql + newestSQL, args}
}

// Runs reads a page of the history.
func (r *Reader) Runs(ctx context.Context, q RunsOf) (RunsPage, error) {
	if err := q.Validate(); err != nil {
		return RunsPage{}, err
	}
	q.Limit = cmp.Or(q.Limit, usual)
	var p RunsPage
	var err error
	p.AsOf, err = r.ask(ctx, []question{q.question()}, func(_ time.Time, res pgx.BatchResults) (err error) {
		p.Runs, err = collect(res, scanRun)
		return err
	})
	if err != nil {
		return RunsPage{}, fmt.Errorf("read runs: %w", err)
	}
	if len(p.Runs) > q.Limit {
		p.Runs = p.Runs[:q.Limit]
		p.Next = p.Runs[q.Limit-1].ID
	}
	return p, nil
}

func validPage(before int64, limit int) error {
	if before < 0 {
		return fmt.Errorf("before %d: it must be an id", before)
	}
	if limit < 0 || limit > Most {
		return fmt.Errorf("limit %d: it must be 1 to %d", limit, Most)
	}
	return nil
}

// before is the id below which a page begins.
func before(id int64) int64 {
	if id == 0 {
		return math.MaxInt64
	}
	return id
}
