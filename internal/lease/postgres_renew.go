package lease

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
)

// Renewal. Nearly always nobody else holds any of the rows, and none is lost: then updating them is all
// there is to do, and locking them first a seventh of the time for nothing. So a heartbeat renews by
// renewAllSQL, which only says how many it has renewed. Where these are not all, or somebody holds a row
// for longer than patience, renewSQL finds out the rest, in a round trip more.

// patience is how long a heartbeat waits for a row that somebody holds. The clock may have been read
// that much before the row is updated: what runs out within it is left to renewSQL.
const patience = 50 * time.Millisecond

// renewAllSQL may wait for a row, unlike renewSQL, and so meets what commits meanwhile. PostgreSQL
// then judges the newest version by the same condition, and reads the clock once more: a lease that was
// released or taken is not touched, and one that a newer renewal has moved is not shortened. The later of
// two expiries would not do, for it would last for hours once the database's clock had been set back by these.
//
// No name is returned, and nothing is joined, for a join under a row lock copies every row of its other
// side: IS TRUE keeps the planner from making one, and leaves a hash table that each row is looked up in.
const renewAllSQL = `
WITH renewed AS (
    UPDATE leadership l SET expires_at = clock_timestamp() + $4::interval
     WHERE l.owner = $1 AND l.expires_at > clock_timestamp() + $5::interval
       AND ((l.job_name, l.epoch) IN (SELECT * FROM unnest($2::text[], $3::bigint[]))) IS TRUE
    RETURNING 1)
SELECT count(*) FROM renewed`

// renewSQL renews and says what became of each. Each row is locked before the clock is read: an older
// renewal that had waited behind a newer one would shorten it. Fenced writes do not lock this row, and
// what somebody else holds is skipped, so that it costs that lease alone. All that are renewed together
// expire together.
//
// What has been locked is updated by its place. If another transaction put a newer version of the row
// there after the snapshot, nothing is found at that place, and the lease counts as locked: it is tried
// again.
//
// The answer is how many were renewed, and what was not, if anything. The rows are locked as they lie
// in the table: nothing waits here, so that no order is needed, and a sort took a tenth of the time.
const renewSQL = `
WITH mine AS MATERIALIZED (
    SELECT l.ctid AS place FROM leadership l
     WHERE l.owner = $1 AND l.expires_at > clock_timestamp()
       AND ((l.job_name, l.epoch) IN (SELECT * FROM unnest($2::text[], $3::bigint[]))) IS TRUE
       FOR NO KEY UPDATE OF l SKIP LOCKED
), clock AS MATERIALIZED (
    SELECT clock_timestamp() AS at FROM (SELECT count(*) FROM mine) AS locked_first
), renewed AS (
    UPDATE leadership l SET expires_at = (SELECT at FROM clock) + $4::interval
     WHERE l.ctid = ANY (ARRAY(SELECT place FROM mine)) AND l.owner = $1
    RETURNING l.job_name, l.epoch
), told AS MATERIALIZED (
    SELECT count(*) AS n FROM renewed
)
SELECT 2 AS verdict, n, NULL::bigint[] FROM told
UNION ALL
SELECT CASE WHEN l.owner = $1 AND l.epoch = a.epoch AND l.expires_at > clock_timestamp() THEN 1 ELSE 0 END,
       count(*), array_agg(a.i)
  FROM unnest($2::text[], $3::bigint[]) WITH ORDINALITY AS a(job_name, epoch, i)
  LEFT JOIN leadership l ON l.job_name = a.job_name
 WHERE (SELECT n FROM told) < cardinality($2)
   AND NOT EXISTS (SELECT FROM renewed r WHERE r.job_name = a.job_name AND r.epoch = a.epoch)
 GROUP BY 1`

func (p *postgres) renew(ctx context.Context, owner string, lease time.Duration, held []holding) ([]verdict, error) {
	verdicts := make([]verdict, len(held))
	if err := run(ctx, p.db, leaseTx(ctx, "", verdictStatement(renewSQL, owner, held, verdicts, lease))); err != nil {
		return nil, fmt.Errorf("renew %d leases: %w", len(held), err)
	}
	p.held.Store(slices.Contains(verdicts, locked))
	return verdicts, nil
}

func (p *postgres) beat(ctx context.Context, m member, held []holding) ([]verdict, look, error) {
	verdicts := make([]verdict, len(held))
	if !p.held.Load() { // else it would wait for that row each time, and for nothing
		renewal := boundedTx(ctx, briefSettings, "", renewAll(m.owner, held, verdicts, m.lease))
		verdicts, l, err := p.beatWith(ctx, m, renewal, verdicts)
		if !errors.Is(err, errNotAll) && !isHeld(err) {
			return verdicts, l, err
		}
	}
	renewal := leaseTx(ctx, "", verdictStatement(renewSQL, m.owner, held, verdicts, m.lease))
	verdicts, l, err := p.beatWith(ctx, m, renewal, verdicts)
	p.held.Store(slices.Contains(verdicts, locked))
	return verdicts, l, err
}

// beatWith is a heartbeat in one round trip, with a renewal that tells the verdicts.
func (p *postgres) beatWith(ctx context.Context, m member, renewal segment, verdicts []verdict) ([]verdict, look, error) {
	l, n := look{}, len(verdicts)
	self := segment{{sql: memberAndLookSQL, read: l.read, args: []any{
		m.owner, m.host, int32(m.pid), m.version, m.started, m.lasts, m.offset, m.hints, m.draining, m.ability,
	}}}
	segments := []segment{renewal, self}
	if n == 0 {
		segments = segments[1:]
	} else {
		renewal.receivedAt(&l.received)
	}
	errs := runEach(ctx, p.db, segments...)
	if errs[0] != nil {
		verdicts = nil // by then it may have said that all went well
	}
	if err := cmp.Or(errs...); err != nil {
		return verdicts, l, fmt.Errorf("heartbeat with %d leases: %w", n, err)
	}
	return verdicts, l, nil
}

// errNotAll is that some of the leases were not renewed. Those that were, are.
var errNotAll = errors.New("not all of the leases were renewed")

// renewAll is the statement that renews all of the holdings, or fails with errNotAll.
func renewAll(owner string, held []holding, verdicts []verdict, lease time.Duration) statement {
	s := overHoldings(renewAllSQL, owner, held, lease, patience)
	s.read = func(rows pgx.Rows) error {
		n, err := pgx.CollectExactlyOneRow(rows, pgx.RowTo[int64])
		if err != nil {
			return err
		}
		if n != int64(len(held)) {
			return errNotAll
		}
		for i := range verdicts {
			verdicts[i] = renewed
		}
		return nil
	}
	return s
}

// isHeld reports whether a statement has waited in vain for a lock.
func isHeld(err error) bool {
	pg := new(pgconn.PgError)
	return errors.As(err, &pg) && pg.Code == "55P03"
}

// overHoldings is a statement whose first parameters are an owner and what it holds.
func overHoldings(sql, owner string, held []holding, more ...any) statement {
	names, epochs := make([]string, len(held)), make([]int64, len(held))
	for i, h := range held {
		names[i], epochs[i] = h.name, h.epoch
	}
	return statement{sql: sql, args: append([]any{owner, names, epochs}, more...)}
}

// verdictStatement is a statement over holdings. It answers with how many came through, and with the
// places in the list of those that did not. An answer that does not speak of each is an error.
func verdictStatement(sql, owner string, held []holding, verdicts []verdict, more ...any) statement {
	s := overHoldings(sql, owner, held, more...)
	s.read = func(rows pgx.Rows) error { return readVerdicts(rows, verdicts) }
	return s
}

func readVerdicts(rows pgx.Rows, verdicts []verdict) error {
	told := make([]verdict, len(verdicts))
	for i := range told {
		told[i] = renewed
	}
	var v int32
	var n, through, others int64
	var places []int64
	_, err := pgx.ForEachRow(rows, []any{&v, &n, &places}, func() error {
		if verdict(v) == renewed {
			through += n
			return nil
		}
		for _, i := range places {
			if told[i-1] == renewed { // else it is told twice, and the sum below is short
				told[i-1] = verdict(v)
				others++
			}
		}
		return nil
	})
	if err != nil {
		return err
	}
	if through+others != int64(len(verdicts)) {
		return fmt.Errorf("%d verdicts on %d leases", through+others, len(verdicts))
	}
	copy(verdicts, told)
	return nil
}
