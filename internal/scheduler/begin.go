package scheduler

import (
	"context"
	"encoding/json"
	"fmt"
	"time"

	"rota/internal/fence"
)

// beginSQL: with its lease's epoch locked, every open run of a lease that is not of this very term is
// of an earlier one; one that was to be cancelled is not run again. What is open stands in the progress;
// the newest run is looked at too, for a replica of an earlier version notes nothing there. The ticks of a schedule that is new to this lease count from now. A last tick
// that lies ahead was claimed before the database's clock was set back: it is brought back to now,
// or there would be silence until the clock has caught up; what was run of the time in between is
// not run twice, for its rows are there. A lease with several runs to be run again, as may be where
// somebody held a row at an earlier begin, has a line in the answer for each.
//
// The first of a job's leases that begins since their count has changed begins for all of them; see
// inheritSQL.
const beginSQL = `
WITH asked AS MATERIALIZED (
    SELECT * FROM unnest($2::text[], $3::bigint[], $4::text[], $5::integer[], $6::text[], $7::integer[])
        AS a(lease, epoch, schedule, tries, job, n)),` + heldSQL + `,
led AS MATERIALIZED (
    SELECT a.lease, a.epoch, a.schedule, a.tries, a.job, a.n, t.now, p.last_tick, p.open, p.schedule AS former, s.generation,
           coalesce(p.generation, 0) < coalesce(s.generation, 0) AS turns,
           p.schedule = a.schedule AND p.last_tick <= t.now AND p.generation >= coalesce(s.generation, 0) AS settled
      FROM asked a JOIN held h ON h.job_name = a.lease
      LEFT JOIN progress p ON p.lease = a.lease
      LEFT JOIN job_shards s ON s.job = a.job
      CROSS JOIN LATERAL (SELECT clock_timestamp() AS now) t
     WHERE h.owner = $1 AND h.epoch = a.epoch AND h.expires_at > t.now),` + inheritSQL + `,
orphan AS MATERIALIZED (
    SELECT r.id, r.attempt < led.tries AND NOT EXISTS (
               SELECT FROM requests q WHERE q.kind = 'cancel' AND q.run_id = r.id) AS again
      FROM led CROSS JOIN LATERAL (
           SELECT unnest(led.open) AS id
            UNION
           (SELECT n.id FROM runs n WHERE n.lease = led.lease ORDER BY n.tick DESC, n.attempt DESC LIMIT 1)) o
      JOIN runs r ON r.id = o.id
     WHERE r.ended_at IS NULL AND (r.owner <> $1 OR r.epoch <> led.epoch)
       FOR UPDATE OF r SKIP LOCKED),
closed AS (
    UPDATE runs r SET ended_at = clock_timestamp(), outcome = 'lost', error = 'its term ended before it did', again = orphan.again
      FROM orphan WHERE r.id = orphan.id
    RETURNING r.lease, r.id, r.tick, r.attempt, r.request_id, r.again),
unfinished AS (
    SELECT lease, id, tick, attempt, request_id
      FROM (SELECT lease, id, tick, attempt, request_id FROM closed WHERE again
             UNION ALL
            SELECT r.lease, r.id, r.tick, r.attempt, r.request_id
              FROM runs r JOIN led ON led.lease = r.lease
             WHERE r.again AND r.attempt < led.tries) u
     WHERE (SELECT 1 FROM runs n WHERE n.lease = u.lease AND n.tick = u.tick AND n.attempt > u.attempt LIMIT 1) IS NULL),
first AS (
    INSERT INTO progress (lease, last_tick, schedule)
    SELECT lease, now, schedule FROM led WHERE former IS NULL AND NOT turns
        ON CONFLICT (lease) DO NOTHING
    RETURNING lease, last_tick),
stale AS MATERIALIZED (
    SELECT p.lease FROM progress p JOIN led ON led.lease = p.lease
     WHERE NOT led.settled AND NOT led.turns
       FOR UPDATE OF p SKIP LOCKED),
changed AS (
    UPDATE progress p SET last_tick = led.now, schedule = led.schedule, updated_at = clock_timestamp()
      FROM stale JOIN led ON led.lease = stale.lease
     WHERE p.lease = stale.lease
    RETURNING p.lease, p.last_tick)
SELECT a.lease, a.epoch,
       CASE WHEN led.lease IS NOT NULL AND (led.settled OR f.lease IS NOT NULL OR c.lease IS NOT NULL OR i.lease IS NOT NULL) THEN 'begun'
            WHEN led.lease IS NOT NULL THEN 'locked'
            WHEN h.job_name IS NULL AND l.job_name IS NOT NULL THEN 'locked'
            ELSE 'fenced' END,
       coalesce(i.last_tick, f.last_tick, c.last_tick, led.last_tick, '-infinity'), coalesce(led.now, clock_timestamp()),
       (SELECT count(*) FROM closed WHERE closed.lease = a.lease),
       coalesce(u.tick, '-infinity'), coalesce(u.attempt, 0), coalesce(u.request_id, 0), q.args
  FROM asked a
  LEFT JOIN leadership l ON l.job_name = a.lease
  LEFT JOIN held h ON h.job_name = a.lease
  LEFT JOIN led ON led.lease = a.lease
  LEFT JOIN first f ON f.lease = a.lease
  LEFT JOIN changed c ON c.lease = a.lease
  LEFT JOIN inherited i ON i.lease = a.lease
  LEFT JOIN unfinished u ON u.lease = a.lease
  LEFT JOIN requests q ON q.id = u.request_id
 ORDER BY u.id`

func (p *postgres) begin(ctx context.Context, asked []opening) (map[fence.Token]opened, error) {
	n := len(asked)
	leases, epochs, schedules, tries := make([]string, n), make([]int64, n), make([]string, n), make([]int32, n)
	jobs, counts := make([]string, n), make([]int32, n)
	for i, o := range asked {
		leases[i], epochs[i], schedules[i], tries[i] = o.token.Lease, o.token.Epoch, o.schedule, int32(o.tries)
		job, s := fence.SplitLease(o.token.Lease)
		jobs[i], counts[i] = job, int32(max(1, s.Of))
	}
	found := make(map[fence.Token]opened, n)
	t := fence.Token{Owner: p.owner}
	var o opened
	var last time.Time
	var tried attempt
	var args *json.RawMessage
	err := p.each(ctx, settingsSQL, beginSQL, []any{p.owner, leases, epochs, schedules, tries, jobs, counts},
		[]any{
			&t.Lease, &t.Epoch, &o.verdict, (*instant)(&last), &o.now, &o.lost,
			(*instant)(&tried.tick), &tried.number, &tried.request, &args,
		}, func() {
			o.last, o.again = last, found[t].again
			if tried.number > 0 {
				next := attempt{tick: tried.tick, number: tried.number + 1, request: tried.request}
				if args != nil {
					next.args = *args
				}
				o.again = append(o.again, next)
			}
			found[t] = o
		})
	if err != nil {
		return nil, fmt.Errorf("begin %d terms: %w", n, err)
	}
	return found, nil
}
