package scheduler

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"time"

	"github.com/jackc/pgx/v5/pgconn"

	"rota/internal/fence"
)

// plainSQL claims what is claimed most, the next tick of each of some leases and nothing else, and says
// what it has won. Whatever else may be the case, claimSQL finds out: a lease that has passed on, a row
// that is held, a pause, a tick that is not due or written off already. So it looks each lease up
// and locks what it finds, one after the other, whatever the planner knows of the tables; where a newer
// version of a row was locked than was seen, it must still fit.
//
// Whoever inserts a run of a lease has its progress locked, so that a tick after last_tick has none yet,
// but for what comes again after the clock was set back. Then nothing at all is claimed by this: a
// conflict is an error, and not an answer that each run would have to pay for.
const plainSQL = `
WITH ready AS MATERIALIZED (
    SELECT a.lease, a.epoch, a.job, a.tick
      FROM unnest($2::text[], $3::bigint[], $4::text[], $5::timestamptz[]) AS a(lease, epoch, job, tick)
     CROSS JOIN LATERAL (
           SELECT FROM lease_epochs f WHERE f.job_name = a.lease AND f.epoch = a.epoch FOR KEY SHARE SKIP LOCKED) f
     CROSS JOIN LATERAL (
           SELECT FROM leadership l WHERE l.job_name = a.lease AND l.epoch = a.epoch AND l.owner = $1 AND l.expires_at > clock_timestamp() OFFSET 0) l
     CROSS JOIN LATERAL (
           SELECT FROM progress p WHERE p.lease = a.lease AND p.last_tick < a.tick FOR UPDATE SKIP LOCKED) p
     WHERE a.tick <= clock_timestamp()
       AND a.job <> ALL (ARRAY(SELECT job FROM pauses WHERE until IS NULL OR until > clock_timestamp()))
       AND NOT EXISTS (SELECT FROM pauses WHERE job = '*' AND (until IS NULL OR until > clock_timestamp()))),
begun AS (
    INSERT INTO runs (lease, job, tick, epoch, owner)
    SELECT lease, job, tick, epoch, $1 FROM ready
    RETURNING id, lease, tick),
advanced AS (
    UPDATE progress p SET last_tick = b.tick, updated_at = clock_timestamp(), (open, success) = (
           SELECT CASE WHEN f.outcome IS NOT NULL THEN '{}' WHEN cardinality(p.open) < 2 THEN p.open
                       ELSE ARRAY(SELECT id FROM unnest(p.open) AS o(id) WHERE (SELECT outcome FROM runs WHERE runs.id = o.id) IS NULL) END || b.id,
                  CASE WHEN f.outcome = 'success' THEN greatest(p.success, p.open[1]) WHEN cardinality(p.open) > 1 THEN greatest(p.success, (
                       SELECT max(id) FROM runs WHERE id = ANY (p.open) AND outcome = 'success')) ELSE p.success END
             FROM (SELECT CASE cardinality(p.open) WHEN 1 THEN (SELECT outcome FROM runs WHERE runs.id = p.open[1]) END AS outcome OFFSET 0) f)
      FROM begun b WHERE p.lease = b.lease)
SELECT lease, id, clock_timestamp() FROM begun`

// plainSettingsSQL: besides what all set, progress is found by its key too.
const plainSettingsSQL = settingsSQL + `, set_config('enable_hashjoin', 'off', true)`

const uniqueViolation = "23505"

// claimPlain adds to found what it has won of plain claims. What it does not tell of is to be claimed by
// claimRest, which finds out why.
func (p *postgres) claimPlain(ctx context.Context, asked []claim, found map[fence.Token]claimed) error {
	n := len(asked)
	leases, epochs, jobs, ticks := make([]string, n), make([]int64, n), make([]string, n), make([]time.Time, n)
	of := make(map[string]fence.Token, n)
	for i, c := range asked {
		leases[i], epochs[i], jobs[i], ticks[i] = c.token.Lease, c.token.Epoch, c.job, c.run.tick
		of[c.token.Lease] = c.token
	}
	var lease string
	c := claimed{verdict: won, attempt: 1}
	won := make(map[fence.Token]claimed, n)
	err := p.each(ctx, plainSettingsSQL, plainSQL, []any{p.owner, leases, epochs, jobs, ticks}, []any{&lease, &c.run, &c.now},
		func() { won[of[lease]] = c })
	var refused *pgconn.PgError
	switch {
	case errors.As(err, &refused) && refused.Code == uniqueViolation:
		return nil
	case err != nil:
		return fmt.Errorf("claim the next ticks of %d leases: %w", n, err)
	}
	maps.Copy(found, won)
	return nil
}

// plain reports whether a claim is for the next tick and nothing else.
func (c claim) plain() bool {
	return c.kind == scheduled && c.run.number == 1 && len(c.passed) == 0 && c.until.Equal(c.run.tick)
}
