package scheduler

// inheritSQL is the part of a begin that hands the progress of a job on to the leases of another
// count. Its last tick is the last that all leases of the former count have claimed, and that none of
// them has left unfinished where it is to be run again: so the work of every key is done at least once
// at each tick, whichever lease it was of. What some of the former have done after that is done again.
//
// The former leases are those of the last generation in which any began; they have all been handed
// their progress then, and claim no more: a claim locks its lease's row, which a change of the count
// has waited for. What they left open is closed, for no later term of theirs does it.
//
// All leases of the new count inherit in one statement, with the job's row locked, or none does: where
// somebody holds a row, the verdict is that it is locked. A late or second one changes nothing.
const inheritSQL = `
turning AS MATERIALIZED (
    SELECT s.job FROM job_shards s
     WHERE s.job IN (SELECT job FROM led WHERE turns)
     ORDER BY s.job
       FOR NO KEY UPDATE OF s SKIP LOCKED),
heirs AS MATERIALIZED (
    SELECT DISTINCT ON (led.job) led.job, led.n, led.schedule, led.tries, led.now, led.generation
      FROM led JOIN turning ON turning.job = led.job WHERE led.turns ORDER BY led.job, led.lease),
kin AS MATERIALIZED (
    SELECT h.*, CASE WHEN h.n = 1 THEN h.job ELSE h.job || '.' || k || 'of' || h.n END AS lease
      FROM heirs h, generate_series(1, h.n) AS k),
ours AS MATERIALIZED (
    SELECT p.lease FROM progress p WHERE p.lease IN (SELECT lease FROM kin) ORDER BY p.lease FOR UPDATE OF p SKIP LOCKED),
past AS MATERIALIZED (
    SELECT h.job, h.schedule = p.schedule AS same, h.tries, p.lease, p.last_tick, p.open
      FROM heirs h JOIN progress p ON split_part(p.lease, '.', 1) = h.job
     WHERE p.generation = (SELECT max(q.generation) FROM progress q WHERE split_part(q.lease, '.', 1) = h.job AND q.generation < h.generation)
       AND NOT EXISTS (SELECT FROM kin k JOIN progress o ON o.lease = k.lease
                        WHERE k.job = h.job AND NOT EXISTS (SELECT FROM ours WHERE ours.lease = k.lease))),
leftover AS MATERIALIZED (
    SELECT r.id, past.job, r.lease,
           CASE WHEN r.request_id IS NULL AND r.attempt < past.tries AND NOT EXISTS (
                SELECT FROM runs n WHERE n.lease = r.lease AND n.tick = r.tick AND n.attempt > r.attempt) THEN r.tick END AS tick
      FROM past CROSS JOIN LATERAL (
           SELECT unnest(past.open) AS id
            UNION
           (SELECT n.id FROM runs n WHERE n.lease = past.lease ORDER BY n.tick DESC, n.attempt DESC LIMIT 1)
            UNION
           SELECT n.id FROM runs n WHERE n.lease = past.lease AND n.again) o
      JOIN runs r ON r.id = o.id
     WHERE r.ended_at IS NULL OR r.again),
spent AS MATERIALIZED (
    SELECT r.id FROM runs r
     WHERE r.id IN (SELECT id FROM leftover WHERE lease NOT IN (SELECT lease FROM led))
       FOR UPDATE OF r SKIP LOCKED),
ended AS (
    UPDATE runs r SET again = false, ended_at = coalesce(r.ended_at, clock_timestamp()), outcome = coalesce(r.outcome, 'lost'),
           error = coalesce(r.error, 'its term ended before it did, and the job has another count of shards')
      FROM spent WHERE r.id = spent.id),
inherited AS (
    INSERT INTO progress AS p (lease, last_tick, schedule, generation)
    SELECT k.lease, CASE WHEN b.same THEN least(b.last, (SELECT min(l.tick) - interval '1 microsecond' FROM leftover l WHERE l.job = k.job), k.now) ELSE k.now END,
           k.schedule, k.generation
      FROM kin k LEFT JOIN (SELECT job, bool_and(same) AS same, min(last_tick) AS last FROM past GROUP BY job) b ON b.job = k.job
     WHERE NOT EXISTS (SELECT FROM kin o JOIN progress q ON q.lease = o.lease
                        WHERE o.job = k.job AND NOT EXISTS (SELECT FROM ours WHERE ours.lease = o.lease))
     ORDER BY k.lease
        ON CONFLICT (lease) DO UPDATE
       SET last_tick = EXCLUDED.last_tick, schedule = EXCLUDED.schedule, generation = EXCLUDED.generation, updated_at = clock_timestamp()
     WHERE p.generation < EXCLUDED.generation
    RETURNING p.lease, p.last_tick)`
