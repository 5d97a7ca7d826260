package status

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgtype"
)

// JIT compilation and parallel workers take longer to start than such queries run. A plan that does
// not know the parameters cannot know how little a LIMIT leaves to be read.
const beginSQL = `
SELECT clock_timestamp(), set_config('statement_timeout', $1, true), set_config('jit', 'off', true),
       set_config('max_parallel_workers_per_gather', '0', true), set_config('plan_cache_mode', 'force_custom_plan', true)`

// walkSQL is for what reads the beginning of an index. A bitmap would collect all that there is of a
// job before the first row, and a planner without statistics takes it for cheap.
const walkSQL = `SELECT set_config('enable_bitmapscan', 'off', true)`

// read makes one snapshot, in one transaction, so that no row of it is older than another.
func (r *Reader) read(ctx context.Context) (*Snapshot, error) {
	ctx, cancel := context.WithTimeout(ctx, r.limit)
	defer cancel()
	s := new(Snapshot)
	var err error
	s.AsOf, err = r.view(ctx, []question{{leasesSQL, []any{Window}}, {refusedSQL, nil}, {replicasSQL, nil}, {pausesSQL, nil}, {ableSQL, nil}, {countsSQL, nil}},
		func(asOf time.Time, res pgx.BatchResults) error { return r.load(asOf, res, s) })
	if err != nil {
		return nil, fmt.Errorf("read the status: %w", err)
	}
	s.Tag = tag(s)
	return s, nil
}

func (r *Reader) load(asOf time.Time, res pgx.BatchResults, s *Snapshot) error {
	rows, err := collect(res, scanLease)
	if err != nil {
		return fmt.Errorf("leases: %w", err)
	}
	refused, err := collect(res, scanRefused)
	if err != nil {
		return fmt.Errorf("refused writes: %w", err)
	}
	if s.Replicas, err = collect(res, scanReplica); err != nil {
		return fmt.Errorf("replicas: %w", err)
	}
	if s.Pauses, err = collect(res, scanPause); err != nil {
		return fmt.Errorf("pauses: %w", err)
	}
	able, err := collect(res, scanAbility)
	if err != nil {
		return fmt.Errorf("abilities: %w", err)
	}
	s.able = make(map[string][]string, len(able))
	for _, a := range able {
		s.able[a.id] = a.jobs
	}
	counts, err := collect(res, scanCount)
	if err != nil {
		return fmt.Errorf("counts of shards: %w", err)
	}
	s.Leases = describe(asOf, inForce(asOf, rows, counts), refused, s.Pauses, r.jobs)
	strand(s.Leases, s.able)
	s.Replicas = stand(asOf, s.Replicas, s.Leases)
	return nil
}

// A question is one statement of a view.
type question struct {
	sql  string
	args []any
}

// view asks all questions in one transaction that sees one state of the rows, and calls load with
// the database's clock and the answers. It takes no longer than the reader's limit.
func (r *Reader) view(ctx context.Context, asked []question, load func(time.Time, pgx.BatchResults) error) (asOf time.Time, err error) {
	ctx, cancel := context.WithTimeout(ctx, r.limit)
	defer cancel()
	var b pgx.Batch
	b.Queue(beginSQL, fmt.Sprint(r.limit.Milliseconds()))
	for _, q := range asked {
		b.Queue(q.sql, q.args...)
	}
	opts := pgx.TxOptions{IsoLevel: pgx.RepeatableRead, AccessMode: pgx.ReadOnly}
	err = pgx.BeginTxFunc(ctx, r.db, opts, func(tx pgx.Tx) error {
		res := tx.SendBatch(ctx, &b)
		defer func() { _ = res.Close() }() // an error shows in what is read before
		if err := res.QueryRow().Scan(&asOf, nil, nil, nil, nil); err != nil {
			return fmt.Errorf("begin: %w", err)
		}
		asOf = asOf.UTC()
		return load(asOf, res)
	})
	return asOf, err
}

// ErrUnread says that the database did not answer, or not in time. It wraps the reason.
var ErrUnread = errors.New("the database could not be read")

// ask is a view of history for one who looks by himself, with an error that is ErrUnread,
// pgx.ErrNoRows, or that of a ctx that ended first.
func (r *Reader) ask(ctx context.Context, asked []question, load func(time.Time, pgx.BatchResults) error) (time.Time, error) {
	asked = append([]question{{walkSQL, nil}}, asked...)
	bound, cancel := context.WithTimeout(ctx, r.patience)
	defer cancel()
	asOf, err := r.view(bound, asked, func(asOf time.Time, res pgx.BatchResults) error {
		if _, err := res.Exec(); err != nil {
			return err
		}
		return load(asOf, res)
	})
	switch {
	case err == nil || errors.Is(err, pgx.ErrNoRows):
		return asOf, err
	case ctx.Err() != nil:
		return asOf, context.Cause(ctx)
	}
	return asOf, fmt.Errorf("%w: %w", ErrUnread, err)
}

func collect[T any](res pgx.BatchResults, scan pgx.RowToFunc[T]) ([]T, error) {
	rows, err := res.Query()
	if err != nil {
		return nil, err
	}
	return pgx.CollectRows(rows, scan)
}

// instant is a time that Go and JSON can say; zero for NULL, an infinity, and years beyond 9999,
// any of which another program may have written.
func instant(ts pgtype.Timestamptz) time.Time {
	t := ts.Time.UTC()
	if !ts.Valid || ts.InfinityModifier != pgtype.Finite || t.Year() < 1 || t.Year() > 9999 {
		return time.Time{}
	}
	return t
}

// ordered is a time that compares with others as the database would compare it.
func ordered(ts pgtype.Timestamptz) time.Time {
	if ts.InfinityModifier == pgtype.Infinity {
		return time.Unix(1<<40, 0)
	}
	return ts.Time // minus infinity is the zero time
}

func value[T any](p *T) (v T) {
	if p != nil {
		v = *p
	}
	return v
}
