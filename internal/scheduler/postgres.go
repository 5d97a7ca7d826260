package scheduler

import (
	"context"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"rota/internal/fence"
)

// postgres is the store. Its statements are sent unnamed: a plan that was kept from when a table
// was nearly empty is a bad one for thousands of leases, and a pooler in transaction mode keeps none.
type postgres struct {
	db    *pgxpool.Pool
	owner string
}

// callTimeout bounds one statement on the client's side. What executes later than that is harmless.
const callTimeout = 4 * time.Second

func (p *postgres) raise(ctx context.Context, t fence.Token, tables []fence.Table) (int64, error) {
	return fence.Raise(ctx, p.db, t, tables...)
}

// heldSQL locks the lease rows against a change of epoch until the statement commits, and leaves
// out those that somebody else has locked. It has no condition on owner and epoch, so that a row
// that is missing is a locked one, and one that has passed on is there to be judged.
const heldSQL = `
held AS MATERIALIZED (
    SELECT l.job_name, l.owner, l.epoch, l.expires_at
      FROM leadership l JOIN asked a ON a.lease = l.job_name
     ORDER BY l.job_name
       FOR KEY SHARE OF l SKIP LOCKED)`

// beginSQL: with its lease row locked, every open run of a lease that is not of this very term is
// of an earlier one. The ticks of a schedule that is new to this lease count from now.
const beginSQL = `
WITH asked AS MATERIALIZED (
    SELECT * FROM unnest($2::text[], $3::bigint[], $4::text[]) AS a(lease, epoch, schedule)),` + heldSQL + `,
led AS MATERIALIZED (
    SELECT a.lease, a.epoch, a.schedule, clock_timestamp() AS now, p.last_tick, p.schedule AS former
      FROM asked a JOIN held h ON h.job_name = a.lease
      LEFT JOIN progress p ON p.lease = a.lease
     WHERE h.owner = $1 AND h.epoch = a.epoch AND h.expires_at > clock_timestamp()),
orphan AS MATERIALIZED (
    SELECT r.id FROM runs r JOIN led ON led.lease = r.lease
     WHERE r.ended_at IS NULL AND (r.owner <> $1 OR r.epoch <> led.epoch)
       FOR UPDATE OF r SKIP LOCKED),
closed AS (
    UPDATE runs r SET ended_at = clock_timestamp(), outcome = 'lost', error = 'its term ended before it did'
      FROM orphan WHERE r.id = orphan.id
    RETURNING r.lease),
first AS (
    INSERT INTO progress (lease, last_tick, schedule)
    SELECT lease, now, schedule FROM led WHERE former IS NULL
        ON CONFLICT (lease) DO NOTHING
    RETURNING lease, last_tick),
stale AS MATERIALIZED (
    SELECT p.lease FROM progress p JOIN led ON led.lease = p.lease
     WHERE led.former <> led.schedule
       FOR UPDATE OF p SKIP LOCKED),
changed AS (
    UPDATE progress p SET last_tick = led.now, schedule = led.schedule, updated_at = clock_timestamp()
      FROM stale JOIN led ON led.lease = stale.lease
     WHERE p.lease = stale.lease
    RETURNING p.lease, p.last_tick)
SELECT a.lease, a.epoch,
       CASE WHEN led.lease IS NOT NULL AND (led.former = led.schedule OR f.lease IS NOT NULL OR c.lease IS NOT NULL) THEN 'begun'
            WHEN led.lease IS NOT NULL THEN 'locked'
            WHEN h.job_name IS NULL AND l.job_name IS NOT NULL THEN 'locked'
            ELSE 'fenced' END,
       coalesce(f.last_tick, c.last_tick, led.last_tick, '-infinity'),
       (SELECT count(*) FROM closed WHERE closed.lease = a.lease)
  FROM asked a
  LEFT JOIN leadership l ON l.job_name = a.lease
  LEFT JOIN held h ON h.job_name = a.lease
  LEFT JOIN led ON led.lease = a.lease
  LEFT JOIN first f ON f.lease = a.lease
  LEFT JOIN changed c ON c.lease = a.lease`

func (p *postgres) begin(ctx context.Context, asked []opening) (map[fence.Token]opened, error) {
	leases, epochs, schedules := make([]string, len(asked)), make([]int64, len(asked)), make([]string, len(asked))
	for i, o := range asked {
		leases[i], epochs[i], schedules[i] = o.token.Lease, o.token.Epoch, o.schedule
	}
	found := make(map[fence.Token]opened, len(asked))
	t := fence.Token{Owner: p.owner}
	var o opened
	err := p.each(ctx, beginSQL, []any{p.owner, leases, epochs, schedules},
		[]any{&t.Lease, &t.Epoch, &o.verdict, (*instant)(&o.last), &o.lost}, func() { found[t] = o })
	if err != nil {
		return nil, fmt.Errorf("begin %d terms: %w", len(asked), err)
	}
	return found, nil
}

// claimSQL: a tick is claimed by inserting its attempt 1 while its lease row is locked. The progress
// row is locked too, and skipped where it is held by somebody. A tick that was claimed by this very
// term, and has not ended, is won again: its answer was lost, or it would not be asked for. Whatever
// the role's default is, the claim is on disk when it is answered, or a crash of the server would
// have the tick claimed twice.
const claimSQL = `
WITH asked AS MATERIALIZED (
    SELECT * FROM unnest($2::text[], $3::bigint[], $4::text[], $5::timestamptz[], $6::boolean[], $7::boolean[])
        AS a(lease, epoch, job, tick, moment, skip)
     WHERE (SELECT set_config('synchronous_commit', 'on', true)) = 'on'),` + heldSQL + `,
ready AS MATERIALIZED (
    SELECT p.lease, p.last_tick
      FROM progress p JOIN held h ON h.job_name = p.lease
     ORDER BY p.lease
       FOR UPDATE OF p SKIP LOCKED),
judged AS MATERIALIZED (
    SELECT a.*, r.last_tick, t.now,
           CASE WHEN h.job_name IS NULL AND l.job_name IS NOT NULL THEN 'locked'
                WHEN h.owner = $1 AND h.epoch = a.epoch AND h.expires_at > t.now THEN
                     CASE WHEN r.lease IS NULL THEN 'locked'
                          WHEN a.moment THEN 'won'
                          WHEN a.tick > t.now THEN 'early'
                          WHEN a.tick <= r.last_tick THEN 'taken'
                          ELSE 'won' END
                ELSE 'fenced' END AS verdict
      FROM asked a
      LEFT JOIN leadership l ON l.job_name = a.lease
      LEFT JOIN held h ON h.job_name = a.lease
      LEFT JOIN ready r ON r.lease = a.lease
      CROSS JOIN LATERAL (SELECT clock_timestamp() AS now) t),
begun AS (
    INSERT INTO runs (lease, job, tick, epoch, owner, ended_at, outcome)
    SELECT lease, job, tick, epoch, $1, CASE WHEN skip THEN now END, CASE WHEN skip THEN 'skipped' END
      FROM judged WHERE verdict = 'won'
        ON CONFLICT (lease, tick, attempt) DO NOTHING
    RETURNING id, lease),
advanced AS (
    UPDATE progress p SET last_tick = greatest(p.last_tick, j.tick), updated_at = clock_timestamp()
      FROM judged j
     WHERE j.verdict = 'won' AND p.lease = j.lease)
SELECT j.lease, j.epoch,
       CASE WHEN coalesce(b.id, m.id) IS NOT NULL THEN 'won' WHEN j.verdict = 'won' THEN 'taken' ELSE j.verdict END,
       coalesce(b.id, m.id, 0), coalesce(j.last_tick, '-infinity'), j.now
  FROM judged j
  LEFT JOIN begun b ON b.lease = j.lease
  LEFT JOIN runs m ON m.lease = j.lease AND m.tick = j.tick AND m.attempt = 1
        AND j.verdict IN ('won', 'taken') AND m.owner = $1 AND m.epoch = j.epoch AND m.ended_at IS NULL`

func (p *postgres) claim(ctx context.Context, asked []claim) (map[fence.Token]claimed, error) {
	n := len(asked)
	leases, epochs, jobs := make([]string, n), make([]int64, n), make([]string, n)
	ticks, moments, skips := make([]time.Time, n), make([]bool, n), make([]bool, n)
	for i, c := range asked {
		leases[i], epochs[i], jobs[i] = c.token.Lease, c.token.Epoch, c.job
		ticks[i], moments[i], skips[i] = c.tick, c.moment, c.skip
	}
	found := make(map[fence.Token]claimed, n)
	t := fence.Token{Owner: p.owner}
	var c claimed
	err := p.each(ctx, claimSQL, []any{p.owner, leases, epochs, jobs, ticks, moments, skips},
		[]any{&t.Lease, &t.Epoch, &c.verdict, &c.run, (*instant)(&c.last), &c.now}, func() { found[t] = c })
	if err != nil {
		return nil, fmt.Errorf("claim %d ticks: %w", n, err)
	}
	return found, nil
}

// recordSQL: a run that the next term has closed as lost may be amended once, by its own process,
// to fenced, with the count of its refused writes. A row that is gone (pruned) is settled.
const recordSQL = `
WITH ended AS MATERIALIZED (
    SELECT * FROM unnest($1::bigint[], $2::text[], $3::text[], $4::text[], $5::integer[], $6::float8[])
        AS e(id, owner, outcome, error, refused, ago)),
free AS MATERIALIZED (
    SELECT r.id, r.owner, r.ended_at, r.outcome FROM runs r JOIN ended e ON e.id = r.id
     ORDER BY r.id
       FOR UPDATE OF r SKIP LOCKED),
settled AS (
    UPDATE runs r
       SET ended_at = greatest(r.started_at, coalesce(r.ended_at, clock_timestamp() - make_interval(secs => e.ago))),
           outcome = e.outcome, error = nullif(e.error, ''), refused = e.refused
      FROM ended e JOIN free f ON f.id = e.id
     WHERE r.id = e.id AND f.owner = e.owner
       AND (f.ended_at IS NULL OR f.outcome = 'lost' AND e.outcome = 'fenced'))
SELECT e.id FROM ended e
 WHERE EXISTS (SELECT FROM free f WHERE f.id = e.id) OR NOT EXISTS (SELECT FROM runs r WHERE r.id = e.id)`

func (p *postgres) record(ctx context.Context, ends []end) (map[int64]bool, error) {
	n := len(ends)
	ids, owners, outcomes := make([]int64, n), make([]string, n), make([]string, n)
	faults, refused, ago := make([]string, n), make([]int32, n), make([]float64, n)
	for i, e := range ends {
		ids[i], owners[i], outcomes[i], faults[i] = e.run, e.owner, string(e.outcome), e.fault
		refused[i], ago[i] = int32(e.refused), time.Since(e.at).Seconds()
	}
	settled := make(map[int64]bool, n)
	var id int64
	err := p.each(ctx, recordSQL, []any{ids, owners, outcomes, faults, refused, ago}, []any{&id}, func() { settled[id] = true })
	if err != nil {
		return nil, fmt.Errorf("record %d runs: %w", n, err)
	}
	return settled, nil
}

// each runs a query, and calls f for each row once it is scanned.
func (p *postgres) each(ctx context.Context, sql string, args, scan []any, f func()) error {
	ctx, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	rows, err := p.db.Query(ctx, sql, append([]any{pgx.QueryExecModeExec}, args...)...)
	if err != nil {
		return err
	}
	_, err = pgx.ForEachRow(rows, scan, func() error {
		f()
		return nil
	})
	return err
}
