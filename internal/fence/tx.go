package fence

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgtype"
)

// beginSQL is one round trip in the simple protocol, and its settings last for this transaction, so
// that a pooler in transaction mode is no obstacle. The timeouts bound how long a former leader's
// transaction can hold up its successor. The guard needs READ COMMITTED: it must see a takeover
// that committed after the transaction began. The mark is gone once the transaction has ended.
const beginSQL = `BEGIN ISOLATION LEVEL READ COMMITTED READ WRITE;
SELECT set_config('idle_in_transaction_session_timeout', '500ms', true),
       set_config('lock_timeout', '500ms', true),
       set_config('rota.fenced', 'yes', true)`

// rollbackTimeout bounds the rollback after a failure; a connection that does not answer within it
// is closed, which ends its transaction all the same.
const rollbackTimeout = 500 * time.Millisecond

// errEnded: see Tx.
var errEnded = errors.New("the function ended the transaction itself, so that what it committed was not fenced: the fence commits, and an error rolls back")

// Tx runs fn in a transaction, which commits only if the term still holds its lease: fn returned
// nil, and a guard that runs last, in the same round trip as COMMIT, found the lease as it was
// and locked its epoch against a takeover until the commit is done.
//
// Any SQL will do, and whatever it writes to a protected table should store Epoch in its epoch
// column. A pause of more than 500 ms between two statements ends the transaction, and so does a
// wait of more than 500 ms for a lock. fn must not commit: Commit is an error on what it gets, and
// a COMMIT in SQL, which cannot be prevented, is reported. The connection is never given back in a
// transaction, whatever fn does, panics included.
//
// A refusal is ErrFenced; an error that leaves the outcome open is ErrUnknown; after any other,
// fn's own included, nothing was written.
func (w *Writer) Tx(ctx context.Context, fn func(pgx.Tx) error) error {
	if err := w.tx(ctx, fn); err != nil {
		return fmt.Errorf("fenced transaction: %w", err)
	}
	return nil
}

func (w *Writer) tx(caller context.Context, fn func(pgx.Tx) error) error {
	if err := w.over(); err != nil {
		return err
	}
	ctx := w.bound(caller)
	defer w.unbound(ctx)
	pooled, err := w.db.Acquire(ctx)
	if err != nil {
		return w.judge(err, false)
	}
	defer pooled.Release() // closes the connection if it is still in a transaction
	conn := pooled.Conn()
	tx, err := conn.BeginTx(ctx, pgx.TxOptions{BeginQuery: beginSQL})
	if err != nil {
		return w.judge(err, false)
	}
	defer rollback(ctx, conn)
	b := newBoundTx(tx, w)
	defer b.free()
	if err := fn(b); err != nil {
		return w.judge(err, false)
	}
	if err := stillOpen(conn); err != nil {
		return w.judge(err, false)
	}
	if err := w.over(); err != nil {
		return err
	}
	err, sent := w.commit(ctx, conn.PgConn())
	return w.judge(err, sent)
}

// rollback ends the transaction if it is still open.
func rollback(ctx context.Context, conn *pgx.Conn) {
	if conn.IsClosed() || conn.PgConn().TxStatus() == 'I' {
		return
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), rollbackTimeout)
	defer cancel()
	// On failure the connection is still in the transaction, and the pool closes it.
	_, _ = conn.Exec(ctx, "ROLLBACK")
}

// stillOpen says why a transaction whose function is content cannot be committed.
func stillOpen(conn *pgx.Conn) error {
	switch {
	case conn.IsClosed():
		return errors.New("its connection was lost")
	case conn.PgConn().TxStatus() == 'I':
		return errEnded
	case conn.PgConn().TxStatus() == 'E':
		return errors.New("the function returned nil although a statement had failed, which undoes all the others")
	}
	return nil
}

// guardSQL is completed by the watermarks that the guard looks at as well: those of the writer's
// large tables, any of which the function may have written to.
const guardSQL = `SELECT rota_guard($1, $2, $3%s), current_setting('rota.fenced', true)`

var plainGuard = fmt.Sprintf(guardSQL, "") // what all terms but a few have in common

func guardOf(tables []Table) string {
	var large []string
	for _, t := range tables {
		if t.Large {
			large = append(large, t.literal())
		}
	}
	if len(large) == 0 {
		return plainGuard
	}
	return fmt.Sprintf(guardSQL, ", ARRAY["+list(large)+"]")
}

// commit sends the guard and COMMIT without a Sync between them, so that the server skips COMMIT if
// the guard raises.
func (w *Writer) commit(ctx context.Context, conn *pgconn.PgConn) (err error, sent bool) {
	p := conn.StartPipeline(ctx)
	p.SendQueryParams(w.guard, w.token.params(), []uint32{pgtype.TextOID, pgtype.TextOID, pgtype.Int8OID}, nil, nil)
	p.SendQueryParams("COMMIT", nil, nil, nil, nil)
	err = p.Sync()
	var guard, commit *pgconn.Result
	if err == nil {
		guard, err = result(p)
	}
	if err == nil {
		commit, err = result(p)
	}
	if closed := p.Close(); err == nil {
		err = closed
	}
	switch {
	case err != nil:
		return err, true
	case commit.CommandTag.String() != "COMMIT":
		return fmt.Errorf("the server answered COMMIT by %s", commit.CommandTag), false
	case string(guard.Rows[0][1]) != "yes":
		return errEnded, false
	}
	return nil, true
}

func result(p *pgconn.Pipeline) (*pgconn.Result, error) {
	next, err := p.GetResults()
	if err != nil {
		return nil, err
	}
	reader, ok := next.(*pgconn.ResultReader)
	if !ok {
		return nil, fmt.Errorf("unexpected %T from the server", next)
	}
	r := reader.Read()
	return r, r.Err
}
