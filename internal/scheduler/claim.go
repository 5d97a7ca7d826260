package scheduler

import (
	"context"
	"fmt"
	"time"

	"rota/internal/fence"
)

// claimSQL: a run is claimed by inserting its attempt while its lease row is locked, and with it the
// ticks that are written off. For ticks of the schedule the progress row is locked too, and skipped
// where it is held by somebody. A run that was claimed by this very term, and has not ended, is won
// again: its answer was lost, or it would not be asked for. Whatever the role's default is, the
// claim is on disk when it is answered, or a crash of the server would have the tick claimed twice.
//
// A request is locked against its withdrawal, and one that is settled has no run; one that somebody
// holds is asked for again. What is on record of it is read from its newest version, whenever that was
// committed.
//
// Whether a job is paused is asked here, so that a pause holds from the moment it is committed. A
// tick that was written off as missed is claimed as its attempt 2: that comes to pass only where the
// database's clock went forward and back, for else no tick comes after one that lies behind it. It is
// asked in a form that has the unique index alone to go by: as EXISTS, with =, it was a walk through
// all that was ever missed or skipped, for each claim.
const claimSQL = `
WITH asked AS MATERIALIZED (
    SELECT * FROM unnest($2::text[], $3::bigint[], $4::text[], $5::text[], $6::timestamptz[], $7::integer[], $8::bigint[], $9::timestamptz[])
        AS a(lease, epoch, job, kind, tick, attempt, request, until)
     WHERE (SELECT set_config('synchronous_commit', 'on', true)) = 'on'),` + heldSQL + `,
ready AS MATERIALIZED (
    SELECT p.lease, p.last_tick
      FROM progress p JOIN held h ON h.job_name = p.lease JOIN asked a ON a.lease = p.lease
     WHERE a.kind IN ('scheduled', 'rebase')
     ORDER BY p.lease
       FOR UPDATE OF p SKIP LOCKED),
wanted AS MATERIALIZED (
    SELECT q.id, q.done_at FROM requests q
     WHERE q.id = ANY (ARRAY(SELECT request FROM asked WHERE kind = 'requested'))
     ORDER BY q.id
       FOR SHARE OF q SKIP LOCKED),
stopped AS MATERIALIZED (
    SELECT job, format('paused by %s: %s', paused_by, reason) AS why FROM pauses
     WHERE until IS NULL OR until > clock_timestamp()),
judged AS MATERIALIZED (
    SELECT a.lease, a.epoch, a.job, a.kind, a.tick, a.attempt > 0 AS runs, nullif(a.request, 0) AS request, a.until, r.last_tick, t.now,
           a.attempt + coalesce((
               SELECT 1 FROM runs m WHERE m.lease = a.lease AND m.tick = a.tick AND m.attempt = 1
                  AND m.outcome IS NOT DISTINCT FROM 'missed' AND a.kind = 'scheduled'), 0) AS attempt,
           CASE WHEN a.request = 0 AND a.kind <> 'rebase' THEN coalesce(
               (SELECT why FROM stopped s WHERE s.job = a.job), (SELECT why FROM stopped s WHERE s.job = '*')) END AS paused,
           CASE WHEN h.job_name IS NULL AND l.job_name IS NOT NULL THEN 'locked'
                WHEN h.owner = $1 AND h.epoch = a.epoch AND h.expires_at > t.now THEN
                     CASE WHEN a.kind = 'requested' AND w.done_at IS NOT NULL THEN 'taken'
                          WHEN a.kind = 'requested' AND w.id IS NULL AND EXISTS (SELECT FROM requests q WHERE q.id = a.request) THEN 'locked'
                          WHEN a.kind NOT IN ('scheduled', 'rebase') THEN 'won'
                          WHEN r.lease IS NULL THEN 'locked'
                          WHEN a.kind = 'rebase' THEN 'rebased'
                          WHEN a.until > t.now THEN 'early'
                          WHEN a.until <= r.last_tick THEN 'taken'
                          ELSE 'won' END
                ELSE 'fenced' END AS verdict
      FROM asked a
      LEFT JOIN leadership l ON l.job_name = a.lease
      LEFT JOIN held h ON h.job_name = a.lease
      LEFT JOIN ready r ON r.lease = a.lease
      LEFT JOIN wanted w ON w.id = a.request AND a.kind = 'requested'
      CROSS JOIN LATERAL (SELECT clock_timestamp() AS now) t),
begun AS (
    INSERT INTO runs (lease, job, tick, attempt, request_id, epoch, owner, ended_at, outcome, error)
    SELECT lease, job, tick, attempt, request, epoch, $1,
           CASE WHEN paused IS NOT NULL THEN now END, CASE WHEN paused IS NOT NULL THEN 'skipped' END, paused
      FROM judged
     WHERE verdict = 'won' AND runs AND NOT (kind = 'moment' AND paused IS NOT NULL)
        ON CONFLICT DO NOTHING
    RETURNING id, lease, outcome),
written_off AS (
    INSERT INTO runs (lease, job, tick, first_tick, ticks, epoch, owner, ended_at, outcome, error)
    SELECT j.lease, j.job, p.tick, nullif(p.first, p.tick), p.ticks, j.epoch, $1, j.now, p.outcome, p.why
      FROM unnest($10::text[], $11::timestamptz[], $12::timestamptz[], $13::bigint[], $14::text[], $15::text[])
           AS p(lease, first, tick, ticks, outcome, why)
      JOIN judged j ON j.lease = p.lease
     WHERE j.verdict = 'won'
        ON CONFLICT DO NOTHING),
tried AS MATERIALIZED (
    SELECT r.id FROM runs r JOIN judged j ON r.lease = j.lease AND r.tick = j.tick AND r.attempt = j.attempt - 1
     WHERE j.kind = 'again' AND j.verdict = 'won' AND r.again
       FOR UPDATE OF r SKIP LOCKED),
retried AS (
    UPDATE runs r SET again = false FROM tried WHERE r.id = tried.id),
advanced AS (
    UPDATE progress p
       SET last_tick = CASE j.verdict WHEN 'won' THEN greatest(p.last_tick, j.until) ELSE least(p.last_tick, j.now) END,
           updated_at = clock_timestamp()
      FROM judged j
     WHERE j.kind IN ('scheduled', 'rebase') AND j.verdict IN ('won', 'rebased') AND p.lease = j.lease)
SELECT j.lease, j.epoch,
       CASE WHEN j.verdict = 'won' AND j.paused IS NOT NULL AND (j.kind = 'moment' OR b.id IS NOT NULL) THEN 'paused'
            WHEN m.id IS NOT NULL THEN 'won'
            WHEN j.verdict = 'won' AND j.runs THEN 'taken'
            ELSE j.verdict END,
       coalesce(m.id, 0), j.attempt, coalesce(j.last_tick, '-infinity'), j.now
  FROM judged j
  LEFT JOIN begun b ON b.lease = j.lease
 CROSS JOIN LATERAL (SELECT CASE WHEN b.id IS NOT NULL THEN b.id
            WHEN j.verdict IN ('won', 'taken') THEN (
                 SELECT id FROM runs r WHERE r.lease = j.lease AND r.tick = j.tick AND r.attempt = j.attempt
                    AND r.owner = $1 AND r.epoch = j.epoch AND r.ended_at IS NULL) END AS id) m`

func (p *postgres) claim(ctx context.Context, asked []claim) (map[fence.Token]claimed, error) {
	found := make(map[fence.Token]claimed, len(asked))
	t := fence.Token{Owner: p.owner}
	var c claimed
	err := p.each(ctx, claimSQL, append(append([]any{p.owner}, asks(asked)...), writtenOff(asked)...),
		[]any{&t.Lease, &t.Epoch, &c.verdict, &c.run, &c.attempt, (*instant)(&c.last), &c.now}, func() { found[t] = c })
	if err != nil {
		return nil, fmt.Errorf("claim the ticks of %d leases: %w", len(asked), err)
	}
	return found, nil
}

// asks are the parameters for what is to be run; attempt 0 is none.
func asks(asked []claim) []any {
	n := len(asked)
	leases, epochs, jobs, kinds := make([]string, n), make([]int64, n), make([]string, n), make([]string, n)
	ticks, attempts, requests, untils := make([]time.Time, n), make([]int32, n), make([]int64, n), make([]time.Time, n)
	for i, c := range asked {
		leases[i], epochs[i], jobs[i], kinds[i] = c.token.Lease, c.token.Epoch, c.job, string(c.kind)
		ticks[i], attempts[i], requests[i], untils[i] = c.run.tick, int32(c.run.number), c.run.request, c.until
	}
	return []any{leases, epochs, jobs, kinds, ticks, attempts, requests, untils}
}

// writtenOff are the parameters for what is not.
func writtenOff(asked []claim) []any {
	leases, outcomes, whys := []string{}, []string{}, []string{}
	firsts, lasts, ticks := []time.Time{}, []time.Time{}, []int64{}
	for _, c := range asked {
		for _, p := range c.passed {
			leases, outcomes, whys = append(leases, c.token.Lease), append(outcomes, string(p.outcome)), append(whys, p.why)
			firsts, lasts, ticks = append(firsts, p.first), append(lasts, p.last), append(ticks, p.ticks)
		}
	}
	return []any{leases, firsts, lasts, ticks, outcomes, whys}
}
