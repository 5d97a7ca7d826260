package scheduler

import (
	"context"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgtype"
	"github.com/jackc/pgx/v5/pgxpool"

	"rota/internal/fence"
)

// postgres is the store. Its statements are sent unnamed: a plan that was kept from when a table
// was nearly empty is a bad one for thousands of leases, and a pooler in transaction mode keeps none.
type postgres struct {
	db    *pgxpool.Pool
	owner string
}

// callTimeout bounds one statement on the client's side. What executes later than that is harmless.
const callTimeout = 4 * time.Second

func (p *postgres) raise(ctx context.Context, t fence.Token, s fence.Shard, tables []fence.Table) (int64, error) {
	return fence.Raise(ctx, p.db, t, s, tables...)
}

// heldSQL locks the leases' epochs against a change until the statement commits, and leaves out those
// that somebody else has locked. It has no condition on owner and epoch, so that a row that is missing
// is a locked one, and one that has passed on is there to be judged: by its epoch, whose newest version
// is the one that is locked, while owner and expiry are those of the statement's snapshot.
const heldSQL = `
held AS MATERIALIZED (
    SELECT l.job_name, l.owner, f.epoch, l.expires_at
      FROM lease_epochs f JOIN asked a ON a.lease = f.job_name JOIN leadership l ON l.job_name = f.job_name
     ORDER BY f.job_name
       FOR KEY SHARE OF f SKIP LOCKED)`

// settingsSQL is what each transaction sets for itself. The planner takes a statement for thousands of
// leases for one that is worth compiling, which took 650 ms of the 740 ms that a claim of 2000 needed;
// and for one that is worth a walk through all history, which took 390 ms of the 470 ms that the record
// of 2000 needed beside some 200,000 others. Whatever the role's default is, what is answered is on disk:
// a crash of the server that forgot an end would have the next term run what is done once more.
const settingsSQL = `SELECT set_config('jit', 'off', true), set_config('enable_seqscan', 'off', true), set_config('enable_mergejoin', 'off', true), set_config('random_page_cost', '0.1', true), set_config('synchronous_commit', 'on', true)`

// each runs a query in a transaction of its own, in one round trip, and calls f for each row once it
// is scanned.
func (p *postgres) each(ctx context.Context, settings, sql string, args, scan []any, f func()) error {
	ctx, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	conn, err := p.db.Acquire(ctx)
	if err != nil {
		return err
	}
	defer conn.Release()
	types := conn.Conn().TypeMap()
	params, err := encode(types, args)
	if err != nil {
		return err
	}
	binary := []int16{pgx.BinaryFormatCode} // for all
	var batch pgconn.Batch
	batch.ExecParams(settings, nil, nil, nil, nil)
	batch.ExecParams(sql, params.values, params.types, binary, binary)
	results := conn.Conn().PgConn().ExecBatch(ctx, &batch)
	if results.NextResult() {
		_, err = results.ResultReader().Close()
	}
	if err == nil && results.NextResult() {
		_, err = pgx.ForEachRow(pgx.RowsFromResultReader(types, results.ResultReader()), scan, func() error {
			f()
			return nil
		})
	}
	if end := results.Close(); err == nil { // only now it is committed
		err = end
	}
	return err
}

// parameters are those of a statement that is sent without asking the database for their types: of
// what is in thousands the text of each would be made here and read there.
type parameters struct {
	values [][]byte
	types  []uint32
}

func encode(types *pgtype.Map, args []any) (p parameters, err error) {
	for _, arg := range args {
		known, ok := types.TypeForValue(arg)
		if !ok {
			return p, fmt.Errorf("a parameter is a %T, of which no type is known", arg)
		}
		value, err := types.Encode(known.OID, pgx.BinaryFormatCode, arg, nil)
		if err != nil {
			return p, fmt.Errorf("encode a parameter: %w", err)
		}
		p.values, p.types = append(p.values, value), append(p.types, known.OID)
	}
	return p, nil
}
