package scheduler

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"rota/internal/registry"
)

// HistoryName is the name of the job that prunes history. No other job may have it.
const HistoryName = "rota-history"

// Keep is how much history is kept. Whatever it says, the newest run and the newest success of each
// lease are, and all that is open or to be run again.
type Keep struct {
	// Age is how old a run gets, from its end, and a request, from when it was made; 0: DefaultAge.
	// The key of a request is forgotten with it.
	Age time.Duration
	// Runs is how many each job keeps, the newest; 0: DefaultRuns.
	Runs int
	// Terms is how many each lease keeps, the newest; 0: DefaultTerms. Acquisitions count from the
	// highest epoch there is, so the newest is never pruned.
	Terms int
}

// What is kept where nothing is said.
const (
	DefaultAge   = 30 * 24 * time.Hour
	DefaultRuns  = 10_000
	DefaultTerms = 1000
)

// History is the job that prunes runs, terms and settled requests beyond what is to be kept. It
// deletes in small batches, each a short transaction that skips rows which somebody has locked, and
// rests between them, so that it holds up nobody; what it skips is for the next time. It needs no
// fence: two that prune at once do what one would.
func History(db *pgxpool.Pool, keep Keep) registry.Job {
	p := pruner{
		db: db, batch: 1000,
		keep: Keep{cmp.Or(keep.Age, DefaultAge), cmp.Or(keep.Runs, DefaultRuns), cmp.Or(keep.Terms, DefaultTerms)},
	}
	return registry.Job{
		Name: HistoryName, About: "Prunes runs, terms and requests beyond what is to be kept.",
		Schedule: registry.Every(10 * time.Minute), Run: p.run,
	}
}

// A pruner does it.
type pruner struct {
	db       *pgxpool.Pool
	keep     Keep
	batch    int
	draining <-chan struct{} // what is left then is for the next time
	n        pruned
}

// pruned counts rows.
type pruned struct{ runs, terms, requests int64 }

func (p pruner) run(ctx context.Context, run *registry.Run) error {
	p.draining = run.Draining
	began := time.Now()
	err := p.prune(ctx)
	if p.n != (pruned{}) {
		run.Log.Info("history pruned", "runs", p.n.runs, "terms", p.n.terms, "requests", p.n.requests, "took", time.Since(began).String())
	}
	if errors.Is(err, errDraining) {
		return nil
	}
	return err
}

var errDraining = errors.New("the lease is to be given up")

func (p *pruner) prune(ctx context.Context) error {
	for _, part := range []struct {
		what  string
		prune func(context.Context) error
	}{{"runs by age", p.oldRuns}, {"runs by number", p.surplusRuns}, {"terms", p.surplusTerms}, {"requests", p.oldRequests}} {
		if err := part.prune(ctx); err != nil {
			return fmt.Errorf("prune %s: %w", part.what, err)
		}
	}
	return nil
}

// spareSQL deletes those of a page that are spare and that nobody else needs, and tells where the
// page ends, and whether a row of it was old. What stands in a lease's progress is needed: the newest
// success does, and what a claim does not find there it takes for open.
const spareSQL = `,
needed AS MATERIALIZED (
    SELECT k.id
      FROM (SELECT DISTINCT lease FROM page WHERE spare) l, LATERAL (
           (SELECT unnest(open || success) AS id FROM progress p WHERE p.lease = l.lease)
           UNION ALL
           (SELECT id FROM runs r WHERE r.lease = l.lease ORDER BY tick DESC, attempt DESC LIMIT 1)) k),
spare AS MATERIALIZED (
    SELECT r.id FROM page p JOIN runs r ON r.id = p.id
     WHERE p.spare AND NOT r.again AND NOT EXISTS (SELECT FROM needed k WHERE k.id = p.id)
       FOR UPDATE OF r SKIP LOCKED),
gone AS (
    DELETE FROM runs r USING spare WHERE r.id = spare.id RETURNING 1)
SELECT coalesce(max(id), 0), count(*), coalesce(bool_or(old), false), (SELECT count(*) FROM gone) FROM page`

const oldRunsSQL = `
WITH page AS MATERIALIZED (
    SELECT id, lease, started_at < t.limit AS old, coalesce(ended_at < t.limit, false) AS spare
      FROM runs, (SELECT clock_timestamp() - $3::interval AS limit) t
     WHERE id > $1 ORDER BY id LIMIT $2)` + spareSQL

// oldRuns walks from the oldest until it meets a page of young ones.
func (p *pruner) oldRuns(ctx context.Context) error {
	return p.pages(ctx, &p.n.runs, oldRunsSQL, p.keep.Age)
}

const surplusRunsSQL = `
WITH page AS MATERIALIZED (
    SELECT id, lease, true AS old, ended_at IS NOT NULL AS spare
      FROM runs
     WHERE job = $3 AND id > $1 AND id <= $4 ORDER BY id LIMIT $2)` + spareSQL

const (
	// One name after the other by the index: what reads all rows for them takes a second.
	jobsOfRunsSQL = `
WITH RECURSIVE names AS (
    (SELECT job FROM runs ORDER BY job LIMIT 1)
    UNION ALL
    SELECT (SELECT r.job FROM runs r WHERE r.job > n.job ORDER BY r.job LIMIT 1) FROM names n WHERE n.job IS NOT NULL)
SELECT job FROM names WHERE job IS NOT NULL`

	newestSurplusRunSQL = `SELECT id FROM runs WHERE job = $1 ORDER BY id DESC OFFSET $2 LIMIT 1`
)

func (p *pruner) surplusRuns(ctx context.Context) error {
	return p.each(ctx, jobsOfRunsSQL, newestSurplusRunSQL, p.keep.Runs, func(job string, newest int64) error {
		return p.pages(ctx, &p.n.runs, surplusRunsSQL, job, newest)
	})
}

const (
	leasesOfTermsSQL = `
WITH RECURSIVE names AS (
    (SELECT job_name FROM terms ORDER BY job_name LIMIT 1)
    UNION ALL
    SELECT (SELECT t.job_name FROM terms t WHERE t.job_name > n.job_name ORDER BY t.job_name LIMIT 1) FROM names n WHERE n.job_name IS NOT NULL)
SELECT job_name FROM names WHERE job_name IS NOT NULL`

	newestSurplusTermSQL = `SELECT epoch FROM terms WHERE job_name = $1 ORDER BY epoch DESC OFFSET $2 LIMIT 1`

	surplusTermsSQL = `
WITH page AS MATERIALIZED (
    SELECT job_name, epoch, ended_at IS NOT NULL AS spare
      FROM terms
     WHERE job_name = $3 AND epoch > $1 AND epoch <= $4 ORDER BY epoch LIMIT $2),
spare AS MATERIALIZED (
    SELECT t.job_name, t.epoch FROM page p JOIN terms t USING (job_name, epoch)
     WHERE p.spare
       FOR UPDATE OF t SKIP LOCKED),
gone AS (
    DELETE FROM terms t USING spare s WHERE t.job_name = s.job_name AND t.epoch = s.epoch RETURNING 1)
SELECT coalesce(max(epoch), 0), count(*), true, (SELECT count(*) FROM gone) FROM page`
)

// surplusTerms is the one who writes terms beside the triggers of leadership, and only deletes.
func (p *pruner) surplusTerms(ctx context.Context) error {
	return p.each(ctx, leasesOfTermsSQL, newestSurplusTermSQL, p.keep.Terms, func(lease string, newest int64) error {
		return p.pages(ctx, &p.n.terms, surplusTermsSQL, lease, newest)
	})
}

const oldRequestsSQL = `
WITH page AS MATERIALIZED (
    SELECT id, made_at < t.limit AS old, made_at < t.limit AND done_at IS NOT NULL AS spare
      FROM requests, (SELECT clock_timestamp() - $3::interval AS limit) t
     WHERE id > $1 ORDER BY id LIMIT $2),
spare AS MATERIALIZED (
    SELECT q.id FROM page p JOIN requests q ON q.id = p.id
     WHERE p.spare
       FOR UPDATE OF q SKIP LOCKED),
gone AS (
    DELETE FROM requests q USING spare WHERE q.id = spare.id RETURNING 1)
SELECT coalesce(max(id), 0), count(*), coalesce(bool_or(old), false), (SELECT count(*) FROM gone) FROM page`

func (p *pruner) oldRequests(ctx context.Context) error {
	return p.pages(ctx, &p.n.requests, oldRequestsSQL, p.keep.Age)
}

// each calls f for each name that has more than keep, with the newest of its surplus.
func (p *pruner) each(ctx context.Context, namesSQL, newestSQL string, keep int, f func(name string, newest int64) error) error {
	var names []string
	err := p.do(ctx, namesSQL, nil, func(rows pgx.Rows) (err error) {
		names, err = pgx.CollectRows(rows, pgx.RowTo[string])
		return err
	})
	if err != nil {
		return err
	}
	for _, name := range names {
		if err := p.rest(ctx, 0); err != nil {
			return err
		}
		var newest []int64
		err := p.do(ctx, newestSQL, []any{name, keep}, func(rows pgx.Rows) (err error) {
			newest, err = pgx.CollectRows(rows, pgx.RowTo[int64])
			return err
		})
		if err == nil && len(newest) > 0 {
			err = f(name, newest[0])
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// pages goes through the pages of a statement, whose first parameters are where the page begins and
// how long it is. After a batch that deletes something it rests for as long as that took.
func (p *pruner) pages(ctx context.Context, n *int64, sql string, args ...any) error {
	for after, more := int64(0), true; more; {
		began := time.Now()
		var length, gone int64
		var old bool
		err := p.do(ctx, sql, append([]any{after, p.batch}, args...), func(rows pgx.Rows) error {
			_, err := pgx.ForEachRow(rows, []any{&after, &length, &old, &gone}, func() error { return nil })
			return err
		})
		if err != nil {
			return err
		}
		*n += gone
		more = old && length == int64(p.batch)
		pause := time.Duration(0)
		if more && gone > 0 {
			pause = max(breath, time.Since(began))
		}
		if err := p.rest(ctx, pause); err != nil {
			return err
		}
	}
	return nil
}

// breath is the least time between two batches of which the first deleted something.
const breath = 20 * time.Millisecond

// rest returns after a pause, or with the reason why there is to be no more.
func (p *pruner) rest(ctx context.Context, pause time.Duration) error {
	select {
	case <-ctx.Done():
		return context.Cause(ctx)
	case <-p.draining:
		return errDraining
	default:
	}
	if pause == 0 {
		return nil
	}
	select {
	case <-time.After(pause):
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	case <-p.draining:
		return errDraining
	}
}

// patientSQL: history that was pruned and came back after a crash is pruned again, so nobody waits
// for a disk. The plans must be those by the indexes, whatever the planner knows of the tables.
const patientSQL = `
SELECT set_config('synchronous_commit', 'off', true), set_config('statement_timeout', '10s', true), set_config('jit', 'off', true),
       set_config('plan_cache_mode', 'force_custom_plan', true), set_config('enable_seqscan', 'off', true),
       set_config('enable_bitmapscan', 'off', true), set_config('max_parallel_workers_per_gather', '0', true)`

// do runs a statement in a transaction of its own, in one round trip.
func (p *pruner) do(ctx context.Context, sql string, args []any, read func(pgx.Rows) error) error {
	var b pgx.Batch
	b.Queue(patientSQL)
	b.Queue(sql, args...)
	res := p.db.SendBatch(ctx, &b)
	_, err := res.Exec()
	if err == nil {
		var rows pgx.Rows
		if rows, err = res.Query(); err == nil {
			err = read(rows)
		}
	}
	if end := res.Close(); err == nil {
		err = end
	}
	return err
}
