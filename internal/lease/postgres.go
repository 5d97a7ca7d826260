package lease

import (
	"context"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"sync/atomic"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
)

// NewPool returns the pool for an Elector: a few connections that nothing else may use, under the
// owner's AppName. base says where the database is.
func NewPool(ctx context.Context, base *pgxpool.Config, owner string) (*pgxpool.Pool, error) {
	cfg := base.Copy()
	cfg.ConnConfig.RuntimeParams["application_name"] = AppName(owner)
	// One each for the heartbeat, a retry, an acquisition, one that waits, a release, and a look.
	cfg.MaxConns, cfg.MinConns = 6, 2
	cfg.MaxConnLifetime = time.Hour
	// A ping would be a second round trip to each heartbeat. A connection that has died fails the
	// heartbeat instead, which is tried again at once on another.
	cfg.ShouldPing = func(context.Context, pgxpool.ShouldPingParams) bool { return false }
	cfg.AfterConnect = rehearseTakeover
	db, err := pgxpool.NewWithConfig(ctx, cfg)
	if err != nil {
		return nil, fmt.Errorf("make the pool of the leases: %w", err)
	}
	return db, nil
}

// postgres is the store that serves.
type postgres struct {
	db      *pgxpool.Pool
	timeout time.Duration // of a call
	held    atomic.Bool   // somebody held one of the rows at the last renewal
}

func newPostgres(db *pgxpool.Pool, timeout time.Duration) *postgres {
	return &postgres{db: db, timeout: timeout}
}

// The row of a lease that never had a term: nobody's, and expired. That of another replica, which
// registers the same this moment, may be met at any of the table's indexes, and is waited for.
const (
	registerSQL = `
INSERT INTO leadership (job_name, owner, expires_at, epoch)
SELECT name, '', clock_timestamp() - interval '1 second', 0 FROM unnest($1::text[]) AS name
 WHERE NOT EXISTS (SELECT FROM leadership l WHERE l.job_name = name) ORDER BY name
    ON CONFLICT DO NOTHING`

	missingSQL = `
SELECT name FROM unnest($1::text[]) AS name
 WHERE NOT EXISTS (SELECT FROM leadership l WHERE l.job_name = name) ORDER BY name`
)

// Members gone for a day are of no use to anybody.
const forgetSQL = `DELETE FROM replicas WHERE expires_at < clock_timestamp() - interval '1 day'`

const registerAbilitySQL = `INSERT INTO abilities (id, jobs) VALUES ($1, $2) ON CONFLICT (id) DO NOTHING`

func (p *postgres) register(ctx context.Context, names []string, a ability) error {
	jobs, counts, whole := shardsIn(names)
	missing, err := p.missing(ctx, slices.Concat(names, whole))
	if err != nil {
		return fmt.Errorf("look for %d leases: %w", len(names), err)
	}
	// In parts, which stay registered if the caller gives up: 100,000 would never come to their end at
	// once. Each replica does them in an order of its own, so that those that start together do each
	// other's work, and seldom wait for each other.
	parts := slices.Collect(slices.Chunk(missing, mostAtOnce))
	rand.Shuffle(len(parts), func(i, j int) { parts[i], parts[j] = parts[j], parts[i] })
	for _, some := range parts {
		if err := run(ctx, p.db, changeTx(ctx, "", statement{sql: registerSQL, args: []any{some}})); err != nil {
			return fmt.Errorf("register %d leases: %w", len(names), err)
		}
	}
	err = run(ctx, p.db, leaseTx(ctx, "",
		statement{sql: registerShardsSQL, args: []any{jobs, counts}},
		statement{sql: registerAbilitySQL, args: []any{a.id, a.names()}},
		statement{sql: forgetSQL}))
	if err != nil {
		return fmt.Errorf("register what this replica can lead: %w", err)
	}
	return nil
}

// missing are those of the names that have no row yet.
func (p *postgres) missing(ctx context.Context, names []string) (missing []string, err error) {
	err = run(ctx, p.db, leaseTx(ctx, "", statement{sql: missingSQL, args: []any{names}, read: func(rows pgx.Rows) (err error) {
		missing, err = pgx.CollectRows(rows, pgx.RowTo[string])
		return err
	}}))
	return missing, err
}

// A look at everybody: one row for each owner, with how many of its leases are unexpired and which have
// expired or are out of force, and for each job of which it has several one more, with how many; one for
// each other member, and one for each job that has, or had, several leases. It takes no locks: an
// upsert whose condition is false would lock the row of the lease, and hold up its renewal.
//
// Every member reads every lease at every heartbeat, so it is read once, and nothing is asked of a row
// but its owner and its expiry: with a condition on the name the planner expects few, and sorts all.
// Shards have an index of their own, leadership_shards.
//
// Another program may hold a lease for ever, or until a year that Go cannot say: the earliest expiry is
// no later than tomorrow, or the look would fail, and with it all takeovers.
const lookSQL = `WITH ` + lookParts

const lookParts = `clock AS MATERIALIZED (
    SELECT clock_timestamp() AS at
)
SELECT clock.at, g.kind, coalesce(g.owner, ''), coalesce(g.word, ''), coalesce(g.n, 0), least(g.earliest, clock.at + interval '1 day'), coalesce(g.free, '{}'),
       clock_timestamp()
  FROM clock
  LEFT JOIN (
       SELECT 'lease' AS kind, owner, NULL AS word, count(*) FILTER (WHERE expires_at > (SELECT at FROM clock) AND owner <> '') AS n,
              min(expires_at) FILTER (WHERE expires_at > (SELECT at FROM clock) AND owner <> '') AS earliest,
              array_agg(job_name) FILTER (WHERE expires_at <= (SELECT at FROM clock) OR owner = '') AS free
         FROM leadership GROUP BY owner
       UNION ALL
       SELECT 'shard', owner, regexp_replace(job_name, '\.\d+of(\d+)$', '.of\1') AS kin, count(*), NULL, NULL
         FROM leadership
        WHERE strpos(job_name, '.') > 0 AND expires_at > (SELECT at FROM clock) AND owner <> ''
        GROUP BY owner, kin
       UNION ALL
       SELECT 'peer', id, ability, 0, expires_at, NULL
         FROM replicas WHERE expires_at > (SELECT at FROM clock) AND NOT draining AND id <> $1
       UNION ALL
       SELECT 'count', NULL, job, n, NULL, NULL FROM job_shards) AS g ON true`

const memberSQL = `
INSERT INTO replicas AS r (id, host, pid, version, started_at, seen_at, expires_at, clock_offset, hints, draining, ability)
SELECT $1, $2, $3, $4, $5, now.at, now.at + $6::interval, $7::interval, $8, $9, $10
  FROM (SELECT clock_timestamp() AS at OFFSET 0) AS now
    ON CONFLICT (id) DO UPDATE
   SET seen_at = EXCLUDED.seen_at, expires_at = EXCLUDED.expires_at, clock_offset = EXCLUDED.clock_offset,
       hints = EXCLUDED.hints, draining = EXCLUDED.draining
RETURNING draining`

// memberAndLookSQL is both in one statement, and so a transaction by itself.
const memberAndLookSQL = `WITH me AS (` + memberSQL + `), ` + lookParts

func (p *postgres) look(ctx context.Context, owner string) (look, error) {
	l := look{}
	if err := run(ctx, p.db, segment{{sql: lookSQL, args: []any{owner}, read: l.read}}); err != nil {
		return look{}, fmt.Errorf("look at the leases: %w", err)
	}
	return l, nil
}

func (l *look) read(rows pgx.Rows) error {
	var kind *string // nil: there is nothing at all
	var owner, word string
	var n int64
	var earliest time.Time
	var free []string
	loads := map[string]*load{}
	_, err := pgx.ForEachRow(rows, []any{&l.now, &kind, &owner, &word, &n, &earliest, &free, &l.answered}, func() error {
		switch {
		case kind == nil:
		case *kind == "peer":
			l.peers = append(l.peers, peer{owner, word})
		case *kind == "count":
			if l.counts == nil {
				l.counts = map[string]int{}
			}
			l.counts[word] = int(n)
		case *kind == "shard":
			loadOf(loads, owner).split(word, int(n))
		default:
			l.all += int(n) + len(free)
			l.free = append(l.free, free...)
			if n > 0 {
				o := loadOf(loads, owner)
				o.leases, o.earliest = int(n), earliest
			}
		}
		return nil
	})
	for _, owner := range slices.Sorted(maps.Keys(loads)) {
		l.owners = append(l.owners, *loads[owner])
	}
	if l.received.IsZero() {
		l.received = l.now
	}
	return err
}

func loadOf(loads map[string]*load, owner string) *load {
	if loads[owner] == nil {
		loads[owner] = &load{owner: owner}
	}
	return loads[owner]
}

// Acquisition of expired leases. The epoch rises above every epoch known, of the row, of its history,
// and of the caller. Its row of lease_epochs is locked beside the lease's, for the fenced writes in
// flight of the term that has passed hold that one: FOR UPDATE waits for them, or here skips the
// lease, whose verdict is then busy. A trigger would wait for them in any case, with all the others.
const acquireSQL = `
WITH asked AS MATERIALIZED (
    SELECT * FROM unnest($2::text[], $3::bigint[]) WITH ORDINALITY AS a(job_name, seen, i)
), expired AS MATERIALIZED (
    SELECT l.job_name, l.epoch AS last, l.expires_at AS ended, a.i,
           greatest(l.epoch, a.seen, (SELECT max(t.epoch) FROM terms t WHERE t.job_name = l.job_name)) AS known
      FROM leadership l JOIN asked a ON a.job_name = l.job_name JOIN lease_epochs f ON f.job_name = l.job_name
     WHERE l.expires_at <= clock_timestamp()
     ORDER BY l.job_name
       FOR UPDATE OF l, f %s
), clock AS MATERIALIZED (
    SELECT clock_timestamp() AS at FROM (SELECT count(*) FROM expired) AS locked_first
), won AS (
    UPDATE leadership l SET owner = $1, epoch = e.known + 1, expires_at = clock.at + $4::interval
      FROM expired e, clock
     WHERE l.job_name = e.job_name AND l.expires_at <= clock.at AND e.known < $5
    RETURNING e.i, l.epoch, e.last = 0 AS first, clock.at - ` + endedSQL + ` AS idle
)
SELECT i, 3, epoch, first, idle FROM won
UNION ALL
SELECT e.i, 2, e.known, false, interval '0' FROM expired e WHERE e.known >= $5
UNION ALL
SELECT a.i, CASE WHEN l.expires_at <= clock_timestamp() THEN 1 ELSE 0 END, 0, false, interval '0'
  FROM (SELECT * FROM asked WHERE i IN (SELECT i FROM asked EXCEPT SELECT i FROM expired)) a
  LEFT JOIN leadership l ON l.job_name = a.job_name`

// endedSQL is when a lease ran out, as far as that is a time to reckon with: another program may have
// written minus infinity to free it.
const endedSQL = `greatest(ended, clock.at - interval '1 year')`

// absurdEpoch is where epochs have come too near the end of a bigint to be believed.
const absurdEpoch = int64(1) << 62

func (p *postgres) acquire(ctx context.Context, owner string, lease time.Duration, claims []claim, wait bool) ([]grant, error) {
	if len(claims) == 1 && !wait && !claims[0].counted {
		g, ok, err := p.acquireOne(ctx, owner, lease, claims[0])
		if err != nil {
			return nil, fmt.Errorf("acquire %s: %w", claims[0].name, err) // it may have come through: not asked again
		}
		if ok {
			return []grant{g}, nil
		}
	}
	how := "SKIP LOCKED"
	if wait {
		how = ""
	}
	// Those of a job that has a count have a transaction of their own, so that none undoes the other.
	var parts [2][]claim
	for _, c := range claims {
		parts[asInt(c.counted)] = append(parts[asInt(c.counted)], c)
	}
	told := [2][]grant{make([]grant, len(parts[0])), make([]grant, len(parts[1]))}
	var segments []segment
	if len(parts[0]) > 0 {
		segments = append(segments, changeTx(ctx, "", acquireWhole(owner, lease, parts[0], how, told[0])))
	}
	if len(parts[1]) > 0 {
		segments = append(segments, leaseTx(ctx, "", acquireShards(owner, lease, parts[1], how, told[1])...))
	}
	if err := run(ctx, p.db, segments...); err != nil {
		return nil, fmt.Errorf("acquire %d leases: %w", len(claims), err)
	}
	grants := make([]grant, len(claims))
	for i, c := range claims {
		grants[i], told[asInt(c.counted)] = told[asInt(c.counted)][0], told[asInt(c.counted)][1:]
	}
	return grants, nil
}

func asInt(b bool) int {
	if b {
		return 1
	}
	return 0
}

// acquireWhole is the statement that acquires leases of jobs that have one each.
func acquireWhole(owner string, lease time.Duration, claims []claim, how string, grants []grant) statement {
	names, seen := make([]string, len(claims)), make([]int64, len(claims))
	for i, c := range claims {
		names[i], seen[i] = c.name, c.seen
	}
	return statement{
		sql: fmt.Sprintf(acquireSQL, how), args: []any{owner, names, seen, lease, absurdEpoch},
		read: func(rows pgx.Rows) error { return readGrants(rows, grants) },
	}
}

func readGrants(rows pgx.Rows, grants []grant) error {
	told := 0
	var i, epoch int64
	var o int32
	var first bool
	var idle time.Duration
	_, err := pgx.ForEachRow(rows, []any{&i, &o, &epoch, &first, &idle}, func() error {
		grants[i-1] = grant{outcome: outcome(o), epoch: epoch, first: first, idle: idle}
		told++
		return nil
	})
	if err == nil && told != len(grants) {
		return fmt.Errorf("%d answers to %d claims", told, len(grants))
	}
	return err
}

const mineSQL = `SELECT job_name, epoch FROM leadership WHERE owner = $1 AND expires_at > clock_timestamp()`

func (p *postgres) mine(ctx context.Context, owner string) (held []holding, err error) {
	err = run(ctx, p.db, segment{{sql: mineSQL, args: []any{owner}, read: func(rows pgx.Rows) error {
		var h holding
		_, err := pgx.ForEachRow(rows, []any{&h.name, &h.epoch}, func() error {
			held = append(held, h)
			return nil
		})
		return err
	}}})
	if err != nil {
		return nil, fmt.Errorf("look for leases of %s: %w", owner, err)
	}
	return held, nil
}

const leaveSQL = `DELETE FROM replicas WHERE id = $1`

func (p *postgres) leave(ctx context.Context, owner string) error {
	if err := run(ctx, p.db, segment{{sql: leaveSQL, args: []any{owner}}}); err != nil {
		return fmt.Errorf("end the membership of %s: %w", owner, err)
	}
	return nil
}
