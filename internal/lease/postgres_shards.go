package lease

import (
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/jackc/pgx/v5"

	"rota/internal/fence"
)

// The row of a job that has several leases for the first time. Its one lease of before is what has
// been led by then; where somebody has deleted the row, it is made up from the leases that there are.
const registerShardsSQL = `
INSERT INTO job_shards (job, n, acting, epoch_high)
SELECT a.job, a.n, least(1024, coalesce((
           SELECT substring(l.job_name FROM '\.\d+of(\d{1,4})$')::integer FROM leadership l
            WHERE split_part(l.job_name, '.', 1) = a.job AND l.owner <> '' ORDER BY l.expires_at DESC LIMIT 1), 1)),
       coalesce((SELECT max(l.epoch) FROM leadership l WHERE split_part(l.job_name, '.', 1) = a.job), 0)
  FROM unnest($1::text[], $2::integer[]) AS a(job, n)
 WHERE NOT EXISTS (SELECT FROM job_shards s WHERE s.job = a.job)
 ORDER BY a.job
    ON CONFLICT (job) DO NOTHING`

// shardsIn are the jobs that have several of the leases, how many those are, and the names of the
// leases that they would have if they had one each: these are there to be put out of force.
func shardsIn(names []string) (jobs []string, counts []int32, whole []string) {
	for _, name := range names {
		if job, s := fence.SplitLease(name); s.K == 1 {
			jobs, counts, whole = append(jobs, job), append(counts, int32(s.Of)), append(whole, job)
		}
	}
	return jobs, counts, whole
}

// A count is put in force with its job's row locked, so that no lease is being acquired meanwhile.
// Whether a member has the other count is asked by the statement itself, since one may have joined.
const resizeSQL = `
WITH asked AS MATERIALIZED (
    SELECT * FROM unnest($1::text[], $2::integer[], $3::integer[], $4::text[]) AS a(job, n, orphan, kin)
), ours AS MATERIALIZED (
    SELECT s.job FROM job_shards s JOIN asked a ON a.job = s.job ORDER BY s.job FOR UPDATE OF s SKIP LOCKED
), changed AS (
    UPDATE job_shards s SET n = a.n
      FROM asked a JOIN ours ON ours.job = a.job
     WHERE s.job = a.job AND s.n <> a.n
       AND (a.orphan = 0 OR s.n = a.orphan AND NOT EXISTS (
            SELECT FROM replicas r JOIN abilities b ON b.id = r.ability
             WHERE r.expires_at > clock_timestamp() AND NOT r.draining AND a.kin = ANY (b.jobs))))
SELECT job FROM ours`

func (p *postgres) resize(ctx context.Context, asked []resize) (settled []string, err error) {
	n := len(asked)
	jobs, counts, orphans, kin := make([]string, n), make([]int32, n), make([]int32, n), make([]string, n)
	for i, a := range asked {
		jobs[i], counts[i], orphans[i] = a.job, int32(a.count), int32(a.orphan)
		kin[i] = Leases(a.job, a.orphan, false)[0].kin()
	}
	err = run(ctx, p.db, leaseTx(ctx, "", statement{
		sql: resizeSQL, args: []any{jobs, counts, orphans, kin},
		read: func(rows pgx.Rows) (err error) {
			settled, err = pgx.CollectRows(rows, pgx.RowTo[string])
			return err
		},
	}))
	if err != nil {
		return nil, fmt.Errorf("put %d counts of shards in force: %w", n, err)
	}
	return settled, nil
}

// Acquisition of leases of jobs that have a count. It is two statements of one transaction, so that
// the second sees what had committed when the first had locked the jobs' rows: by the second, nobody
// can have acquired a lease of another count, or put one in force. Of what somebody holds the first
// says nothing, and the second takes nothing.
const (
	lockShardsSQL = `
SELECT set_config('rota.locked', coalesce(string_agg(job, ' '), ''), true)
  FROM (SELECT job FROM job_shards WHERE job = ANY ($1::text[]) ORDER BY job FOR UPDATE %s) AS ours`

	// The first acquisition under a new count puts the leases of the former one out of force: none of
	// them may be led, each gets an epoch that nobody has worked under, which waits for the fenced writes
	// in flight and is what refuses later ones, and an expiry in a hundred years. So no program that goes by the rows takes
	// one; only an acquisition of this kind does, once its count is in force again.
	//
	// The epoch rises above every epoch known of any of the job's leases, and of its row.
	acquireShardsSQL = `
WITH asked AS MATERIALIZED (
    SELECT * FROM unnest($2::text[], $3::bigint[], $6::text[], $7::integer[]) WITH ORDINALITY AS a(job_name, seen, job, n, i)
), ours AS MATERIALIZED (
    SELECT s.* FROM job_shards s
     WHERE s.job = ANY (string_to_array(current_setting('rota.locked'), ' '))
       AND s.n = (SELECT min(a.n) FROM asked a WHERE a.job = s.job)
), former_names AS MATERIALIZED (
    SELECT o.job, CASE WHEN o.acting = 1 THEN o.job ELSE o.job || '.' || k || 'of' || o.acting END AS job_name
      FROM ours o, generate_series(1, o.acting) AS k WHERE o.acting <> o.n
), former AS MATERIALIZED (
    SELECT f.job, l.job_name, l.epoch, l.expires_at, l.owner <> '' AND l.expires_at > clock_timestamp() AS led
      FROM leadership l JOIN former_names f ON f.job_name = l.job_name JOIN lease_epochs e ON e.job_name = l.job_name
     ORDER BY l.job_name
       FOR UPDATE OF l, e %[1]s
), hindered AS MATERIALIZED (
    SELECT f.job, coalesce(bool_or(x.led), false) AS led
      FROM former_names f JOIN leadership l ON l.job_name = f.job_name LEFT JOIN former x ON x.job_name = f.job_name
     WHERE x.job_name IS NULL OR x.led
     GROUP BY f.job
), open AS MATERIALIZED (
    SELECT o.job, o.acting <> o.n AS turns, greatest(o.epoch_high,
           (SELECT max(f.epoch) FROM former f WHERE f.job = o.job),
           (SELECT max(l.epoch) FROM generate_series(1, o.n) AS k
              JOIN leadership l ON l.job_name = CASE WHEN o.n = 1 THEN o.job ELSE o.job || '.' || k || 'of' || o.n END),
           (SELECT max(greatest(a.seen, (SELECT max(t.epoch) FROM terms t WHERE t.job_name = a.job_name))) FROM asked a WHERE a.job = o.job)) AS known
      FROM ours o WHERE NOT EXISTS (SELECT FROM hindered h WHERE h.job = o.job)
), expired AS MATERIALIZED (
    SELECT l.job_name, a.job, a.i, l.epoch AS last, l.expires_at AS ended, l.owner
      FROM leadership l JOIN asked a ON a.job_name = l.job_name JOIN lease_epochs f ON f.job_name = l.job_name
     WHERE a.job IN (SELECT job FROM open) AND (l.expires_at <= clock_timestamp() OR l.owner = '')
     ORDER BY l.job_name
       FOR UPDATE OF l, f %[1]s
), clock AS MATERIALIZED (
    SELECT clock_timestamp() AS at FROM (SELECT count(*) FROM expired) AS locked_first
), due AS MATERIALIZED (
    SELECT e.*, open.known, open.known + open.turns::integer + row_number() OVER (PARTITION BY e.job ORDER BY e.job_name COLLATE "C") AS epoch
      FROM expired e JOIN open ON open.job = e.job
), won AS (
    UPDATE leadership l SET owner = $1, epoch = due.epoch, expires_at = clock.at + $4::interval
      FROM due, clock
     WHERE l.job_name = due.job_name AND (l.expires_at <= clock.at OR l.owner = '') AND due.known < $5
    RETURNING due.i, due.job, l.epoch, due.last = 0 OR due.owner = '' AS first, clock.at - ` + endedSQL + ` AS idle
), out AS (
    UPDATE leadership l SET owner = '', epoch = open.known + 1, expires_at = clock.at + interval '100 years'
      FROM former f JOIN open ON open.job = f.job, clock
     WHERE l.job_name = f.job_name AND f.job IN (SELECT job FROM won)
), counted AS (
    UPDATE job_shards s SET acting = s.n, generation = s.generation + (s.acting <> s.n)::integer, epoch_high = w.epoch
      FROM (SELECT job, max(epoch) AS epoch FROM won GROUP BY job) AS w
     WHERE s.job = w.job
)
SELECT i, 3, epoch, first, CASE WHEN first THEN interval '0' ELSE idle END FROM won
UNION ALL
SELECT i, 2, known, false, interval '0' FROM due WHERE known >= $5
UNION ALL
SELECT a.i, CASE WHEN l.job_name IS NULL OR s.n IS DISTINCT FROM a.n OR h.led THEN 0
                 WHEN h.job IS NOT NULL OR l.expires_at <= clock_timestamp() OR l.owner = '' THEN 1 ELSE 0 END, 0, false, interval '0'
  FROM (SELECT * FROM asked WHERE i IN (SELECT i FROM asked EXCEPT SELECT i FROM due)) a
  LEFT JOIN leadership l ON l.job_name = a.job_name
  LEFT JOIN job_shards s ON s.job = a.job
  LEFT JOIN hindered h ON h.job = a.job`
)

// acquireShards is the statements that acquire leases of jobs that have a count.
func acquireShards(owner string, lease time.Duration, claims []claim, wait string, grants []grant) []statement {
	n := len(claims)
	names, seen, jobs, counts := make([]string, n), make([]int64, n), make([]string, n), make([]int32, n)
	for i, c := range claims {
		job, s := fence.SplitLease(c.name)
		names[i], seen[i], jobs[i], counts[i] = c.name, c.seen, job, int32(max(1, s.Of))
	}
	return []statement{
		{sql: fmt.Sprintf(lockShardsSQL, wait), args: []any{slices.Compact(slices.Sorted(slices.Values(jobs)))}},
		{
			sql: fmt.Sprintf(acquireShardsSQL, wait), args: []any{owner, names, seen, lease, absurdEpoch, jobs, counts},
			read: func(rows pgx.Rows) error { return readGrants(rows, grants) },
		},
	}
}
