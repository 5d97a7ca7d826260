package scheduler

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"time"

	"rota/internal/fence"
)

// claimSQL: a run is claimed by inserting its attempt while its lease's epoch is locked, and with it the
// ticks that are written off. The progress row is locked too, and skipped where it is held by somebody.
// Whatever the role's default is, the claim is on disk when it is answered, or a crash of the server
// would have the tick claimed twice. A run that was claimed by this very term, and has not ended, is won
// again: its answer was lost, or it would not be asked for.
//
// What is open of a lease stands in its progress: each claim adds its run, and takes out what it sees to
// have ended, of which it keeps the newest success. A run that it does not see was claimed a moment ago.
//
// A request is locked against its withdrawal, and one that is settled has no run; one that somebody
// holds is asked for again. What is on record of it is read from its newest version, whenever that was
// committed.
//
// A row of progress or of lease_epochs that is gone, and not merely held, is no reason to ask again: the claim
// is refused, and the next term makes both anew.
//
// Whether a job is paused is asked here, so that a pause holds from the moment it is committed. A
// tick that was written off as missed is claimed as its attempt 2: that comes to pass only where the
// database's clock went forward and back, for else no tick comes after one that lies behind it. It is
// asked only where attempt 1 is there.
const claimSQL = `
WITH asked AS MATERIALIZED (
    SELECT * FROM unnest($2::text[], $3::bigint[], $4::text[], $5::text[], $6::timestamptz[], $7::integer[], $8::bigint[], $9::timestamptz[])
        AS a(lease, epoch, job, kind, tick, attempt, request, until)
     WHERE (SELECT set_config('synchronous_commit', 'on', true)) = 'on'),` + heldSQL + `,
ready AS MATERIALIZED (
    SELECT lease, last_tick, open, success FROM progress
     WHERE lease = ANY (ARRAY(SELECT job_name FROM held WHERE owner = $1))
       FOR UPDATE SKIP LOCKED),
wanted AS MATERIALIZED (
    SELECT id, done_at FROM requests
     WHERE id = ANY (ARRAY(SELECT request FROM asked WHERE kind = 'requested'))
       FOR SHARE SKIP LOCKED),
stopped AS MATERIALIZED (
    SELECT job, format('paused by %s: %s', paused_by, reason) AS why FROM pauses
     WHERE until IS NULL OR until > clock_timestamp()),
judged AS MATERIALIZED (
    SELECT a.*, r.last_tick, t.now,
           CASE WHEN a.request = 0 AND a.kind <> 'rebase' THEN coalesce(
               (SELECT why FROM stopped s WHERE s.job = a.job), (SELECT why FROM stopped s WHERE s.job = '*')) END AS paused,
           CASE WHEN h.job_name IS NULL AND EXISTS (SELECT FROM leadership l JOIN lease_epochs e USING (job_name) WHERE l.job_name = a.lease) THEN 'locked'
                WHEN h.owner = $1 AND h.epoch = a.epoch AND h.expires_at > t.now THEN
                     CASE WHEN a.kind = 'requested' AND w.done_at IS NOT NULL THEN 'taken'
                          WHEN a.kind = 'requested' AND w.id IS NULL AND EXISTS (SELECT FROM requests q WHERE q.id = a.request) THEN 'locked'
                          WHEN r.lease IS NULL AND EXISTS (SELECT FROM progress p WHERE p.lease = a.lease) THEN 'locked'
                          WHEN r.lease IS NULL THEN 'fenced'
                          WHEN a.kind = 'rebase' THEN 'rebased'
                          WHEN a.kind <> 'scheduled' THEN 'won'
                          WHEN a.until > t.now THEN 'early'
                          WHEN a.until <= r.last_tick THEN 'taken'
                          ELSE 'won' END
                ELSE 'fenced' END AS verdict
      FROM asked a
      LEFT JOIN held h ON h.job_name = a.lease
      LEFT JOIN ready r ON r.lease = a.lease
      LEFT JOIN wanted w ON w.id = a.request AND a.kind = 'requested'
      CROSS JOIN LATERAL (SELECT clock_timestamp() AS now) t),
first AS (
    INSERT INTO runs (lease, job, tick, attempt, request_id, epoch, owner, ended_at, outcome, error)
    SELECT lease, job, tick, attempt, nullif(request, 0), epoch, $1,
           CASE WHEN paused IS NOT NULL THEN now END, CASE WHEN paused IS NOT NULL THEN 'skipped' END, paused
      FROM judged
     WHERE CASE WHEN verdict = 'won' AND attempt > 0 AND NOT (kind = 'moment' AND paused IS NOT NULL) THEN true END
        ON CONFLICT DO NOTHING
    RETURNING id, lease, attempt, outcome),
there AS MATERIALIZED (
    SELECT * FROM judged
     WHERE verdict = 'won' AND attempt > 0 AND kind = 'scheduled' AND lease NOT IN (SELECT lease FROM first)),
second AS (
    INSERT INTO runs (lease, job, tick, attempt, epoch, owner, ended_at, outcome, error)
    SELECT lease, job, tick, attempt + 1, epoch, $1,
           CASE WHEN paused IS NOT NULL THEN now END, CASE WHEN paused IS NOT NULL THEN 'skipped' END, paused
      FROM there t
     WHERE (SELECT m.outcome FROM runs m WHERE m.lease = t.lease AND m.tick = t.tick AND m.attempt = t.attempt) = 'missed'
        ON CONFLICT DO NOTHING
    RETURNING id, lease, attempt, outcome),
begun AS MATERIALIZED (SELECT * FROM first UNION ALL SELECT * FROM second),
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
answer AS MATERIALIZED (
    SELECT j.lease, j.epoch, j.now, j.last_tick,
           CASE WHEN j.verdict = 'rebased' THEN least(j.last_tick, j.now)
                WHEN j.verdict = 'won' AND j.kind = 'scheduled' THEN greatest(j.last_tick, j.until)
                WHEN b.id IS NOT NULL THEN j.last_tick END AS next,
           CASE WHEN b.outcome IS NULL THEN b.id END AS opened,
           CASE WHEN j.verdict = 'won' AND j.paused IS NOT NULL AND (j.kind = 'moment' OR b.id IS NOT NULL) THEN 'paused'
                WHEN m.id IS NOT NULL THEN 'won'
                WHEN j.verdict = 'won' AND j.attempt > 0 THEN 'taken'
                ELSE j.verdict END AS verdict,
           coalesce(m.id, 0) AS run, n.attempt
      FROM judged j
      LEFT JOIN begun b ON b.lease = j.lease
     CROSS JOIN LATERAL (SELECT CASE WHEN b.id IS NOT NULL THEN b.attempt
            WHEN j.kind = 'scheduled' AND j.verdict IN ('won', 'taken') AND (
                 SELECT outcome FROM runs r WHERE r.lease = j.lease AND r.tick = j.tick AND r.attempt = j.attempt) = 'missed' THEN j.attempt + 1
            ELSE j.attempt END AS attempt) n
     CROSS JOIN LATERAL (SELECT CASE WHEN b.id IS NOT NULL THEN b.id
            WHEN j.verdict IN ('won', 'taken') THEN (
                 SELECT id FROM runs r WHERE r.lease = j.lease AND r.tick = j.tick AND r.attempt = n.attempt
                    AND r.owner = $1 AND r.epoch = j.epoch AND r.ended_at IS NULL) END AS id) m),
moves AS MATERIALIZED (
    SELECT a.lease, a.next, o.open || a.opened AS open, greatest(r.success, o.success) AS success, a.now
      FROM answer a JOIN ready r ON r.lease = a.lease
     CROSS JOIN LATERAL (SELECT CASE cardinality(r.open) WHEN 1 THEN (SELECT outcome FROM runs WHERE runs.id = r.open[1]) END AS outcome OFFSET 0) f
     CROSS JOIN LATERAL (SELECT
           CASE WHEN f.outcome IS NOT NULL THEN '{}' WHEN cardinality(r.open) < 2 THEN r.open
                ELSE ARRAY(SELECT id FROM unnest(r.open) AS o(id) WHERE (SELECT outcome FROM runs WHERE runs.id = o.id) IS NULL) END AS open,
           CASE WHEN f.outcome = 'success' THEN r.open[1] WHEN cardinality(r.open) > 1 THEN (
                SELECT max(id) FROM runs WHERE id = ANY (r.open) AND outcome = 'success') END AS success) o
     WHERE a.next IS NOT NULL),
advanced AS (
    UPDATE progress p SET last_tick = m.next, open = m.open, success = m.success, updated_at = m.now
      FROM moves m WHERE p.lease = m.lease)
SELECT lease, epoch, verdict, run, attempt, coalesce(last_tick, '-infinity'), now FROM answer`

func (p *postgres) claim(ctx context.Context, asked []claim) (map[fence.Token]claimed, error) {
	found := make(map[fence.Token]claimed, len(asked))
	var plain []claim
	for _, c := range asked {
		if c.plain() {
			plain = append(plain, c)
		}
	}
	if len(plain) > 0 {
		if err := p.claimPlain(ctx, plain, found); err != nil {
			return nil, err
		}
	}
	if len(found) == len(asked) {
		return found, nil
	}
	rest := slices.DeleteFunc(slices.Clone(asked), func(c claim) bool { return found[c.token].verdict == won })
	return found, p.claimRest(ctx, rest, found)
}

// claimRest adds a verdict on each claim to found. On an error, what was found before still stands.
func (p *postgres) claimRest(ctx context.Context, asked []claim, found map[fence.Token]claimed) error {
	t := fence.Token{Owner: p.owner}
	var c claimed
	judged := make(map[fence.Token]claimed, len(asked))
	err := p.each(ctx, settingsSQL, claimSQL, append(append([]any{p.owner}, asks(asked)...), writtenOff(asked)...),
		[]any{&t.Lease, &t.Epoch, &c.verdict, &c.run, &c.attempt, (*instant)(&c.last), &c.now}, func() { judged[t] = c })
	if err != nil {
		return fmt.Errorf("claim the ticks of %d leases: %w", len(asked), err)
	}
	maps.Copy(found, judged)
	return nil
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
