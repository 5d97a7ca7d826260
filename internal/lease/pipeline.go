package lease

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgtype"
	"github.com/jackc/pgx/v5/pgxpool"
)

// A statement is SQL and its arguments, and what reads its rows.
type statement struct {
	sql  string
	args []any
	read func(pgx.Rows) error // nil: there is nothing to read
}

// A segment is a list of statements that stand or fall together: one transaction.
type segment []statement

// settings is what every lease transaction sets for itself, so that it needs nothing of its session
// and a transaction pooler is no obstacle:
//
//   - timeouts, so that nothing executes long after its caller has given up;
//   - synchronous_commit: with it off, one epoch was granted twice across a crash of the server;
//   - plan_cache_mode: a generic plan made on a nearly empty table took 42 s for 10,000 renewals;
//   - work_mem: a lookup in a hash table that does not fit becomes one for each pair of rows;
//   - jit: compiling a statement for thousands of leases takes longer than executing it: 10,000 were
//     acquired in 0.7 s without, in 2.8 s with it;
//   - rota.reason: why the terms that it ends end, for their row in terms.
//
// The last column is when the database began with it; see receivedAt.
const settings = `SELECT set_config('statement_timeout', $1, true), set_config('lock_timeout', $1, true),
       set_config('synchronous_commit', 'on', true), set_config('plan_cache_mode', 'force_custom_plan', true),
       set_config('work_mem', '64MB', true), set_config('jit', 'off', true), set_config('rota.reason', $2, true),
       pg_catalog.clock_timestamp()`

// briefSettings are settings under which a statement waits for a lock no longer than patience.
var briefSettings = strings.Replace(settings, "'lock_timeout', $1", fmt.Sprintf("'lock_timeout', '%dms'", patience.Milliseconds()), 1)

// leaseTx is the statements in a transaction of their own that is bounded by ctx on the server too.
// It is READ COMMITTED whatever the role's default: each statement must see what committed before
// it, and a row lock must be followed by a look at the row's newest version. It is not READ WRITE
// by force: where jobs cannot write, nobody should lead.
func leaseTx(ctx context.Context, reason string, body ...statement) segment {
	return boundedTx(ctx, settings, reason, body...)
}

// changeSettings are those of transactions that begin or end terms of jobs that have one lease each, by
// triggers for the most part. These keep the plans of their statements; and with enable_seqscan off the
// plans are for an index, whatever the tables had in them when they were made.
const changeSettings = `SELECT set_config('statement_timeout', $1, true), set_config('lock_timeout', $1, true),
       set_config('synchronous_commit', 'on', true), set_config('enable_seqscan', 'off', true), set_config('jit', 'off', true),
       set_config('rota.reason', $2, true)`

// changeTx is leaseTx for those.
func changeTx(ctx context.Context, reason string, body ...statement) segment {
	return boundedTx(ctx, changeSettings, reason, body...)
}

// receivedAt has a lease transaction say when the database began with it.
func (s segment) receivedAt(at *time.Time) {
	s[1].read = func(rows pgx.Rows) error {
		columns := make([]any, len(rows.FieldDescriptions()))
		columns[len(columns)-1] = at
		_, err := pgx.ForEachRow(rows, columns, func() error { return nil })
		return err
	}
}

// boundedTx is leaseTx with settings of which $1 is the time that is left and $2 the reason.
func boundedTx(ctx context.Context, settings, reason string, body ...statement) segment {
	left := time.Minute
	if d, ok := ctx.Deadline(); ok {
		left = max(time.Millisecond, time.Until(d))
	}
	ms := strconv.FormatInt(left.Milliseconds(), 10)
	s := segment{{sql: "BEGIN ISOLATION LEVEL READ COMMITTED"}, {sql: settings, args: []any{ms, reason}}}
	return append(append(s, body...), statement{sql: "COMMIT"})
}

// run sends the segments in one round trip on a connection of the pool, and returns the first error.
func run(ctx context.Context, db *pgxpool.Pool, segments ...segment) error {
	return cmp.Or(runEach(ctx, db, segments...)...)
}

// runEach is run with an error for each segment: nil if all of it, COMMIT included, came through.
func runEach(ctx context.Context, db *pgxpool.Pool, segments ...segment) []error {
	conn, err := db.Acquire(ctx)
	if err != nil {
		return each(fmt.Errorf("connect: %w", err), segments)
	}
	// A connection that is left in a transaction is closed by Release.
	defer conn.Release()
	return exchange(ctx, conn.Conn(), segments)
}

func each(err error, segments []segment) []error {
	return slices.Repeat([]error{err}, len(segments))
}

// runOn is run on a connection.
func runOn(ctx context.Context, conn *pgx.Conn, segments ...segment) error {
	return cmp.Or(exchange(ctx, conn, segments)...)
}

// exchange sends the segments in one round trip, a Sync after each: what one of them did stays done if a
// later one fails. (A pgx.Batch would be one transaction.) Statements are unnamed, and never prepared.
func exchange(ctx context.Context, conn *pgx.Conn, segments []segment) []error {
	types := conn.TypeMap()
	p := conn.PgConn().StartPipeline(ctx)
	for _, seg := range segments {
		for _, st := range seg {
			if err := send(p, types, st); err != nil {
				_ = p.Close()
				return each(err, segments)
			}
		}
		p.SendPipelineSync()
	}
	if err := p.Flush(); err != nil {
		_ = p.Close()
		return each(fmt.Errorf("send: %w", err), segments)
	}
	errs := make([]error, len(segments))
	for i, seg := range segments {
		errs[i] = receive(p, types, seg)
	}
	if last := len(errs) - 1; errs[last] == nil {
		errs[last] = p.Close()
	} else {
		_ = p.Close()
	}
	return errs
}

func send(p *pgconn.Pipeline, types *pgtype.Map, st statement) error {
	values, oids, formats := make([][]byte, len(st.args)), make([]uint32, len(st.args)), make([]int16, len(st.args))
	for i, arg := range st.args {
		t, ok := types.TypeForValue(arg)
		if !ok {
			return fmt.Errorf("no type for argument %d, a %T", i+1, arg)
		}
		v, err := types.Encode(t.OID, pgtype.BinaryFormatCode, arg, []byte{})
		if err != nil {
			return fmt.Errorf("encode argument %d: %w", i+1, err)
		}
		values[i], oids[i], formats[i] = v, t.OID, pgtype.BinaryFormatCode
	}
	p.SendQueryParams(st.sql, values, oids, formats, []int16{pgtype.BinaryFormatCode})
	return nil
}

var errGone = errors.New("the connection has gone")

// receive reads the answers of a segment up to its Sync.
func receive(p *pgconn.Pipeline, types *pgtype.Map, seg segment) error {
	var first error
	next := 0
	for {
		result, err := p.GetResults()
		switch r := result.(type) {
		case *pgconn.PipelineSync:
			return first
		case *pgconn.ResultReader:
			if err := read(types, r, seg[next]); err != nil && first == nil {
				first = err
			}
			next++
		default:
			if err == nil && result == nil {
				return cmp.Or(first, errGone)
			}
		}
		if err != nil {
			if first == nil {
				first = err
			}
			if refused := new(pgconn.PgError); !errors.As(err, &refused) {
				return first
			}
		}
	}
}

func read(types *pgtype.Map, r *pgconn.ResultReader, st statement) error {
	if st.read == nil {
		_, err := r.Close()
		return err
	}
	rows := pgx.RowsFromResultReader(types, r)
	defer rows.Close()
	if err := st.read(rows); err != nil {
		return err
	}
	rows.Close()
	return rows.Err()
}
