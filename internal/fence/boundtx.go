package fence

import (
	"context"
	"errors"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
)

// A boundTx is the transaction that Tx hands out: it cannot be committed, and its statements are
// cut short when the term ends, whatever context they are given.
type boundTx struct {
	pgx.Tx
	w    *Writer
	root *boundTx // the transaction itself, when this is a savepoint in it
	last *bounded // context of the latest statement, the savepoints' among them
}

func newBoundTx(tx pgx.Tx, w *Writer) *boundTx {
	t := &boundTx{Tx: tx, w: w}
	t.root = t
	return t
}

var errCommit = errors.New("a fenced transaction is committed by the fence alone: return nil from the function")

func (t *boundTx) Commit(ctx context.Context) error {
	if t.root == t {
		return errCommit
	}
	return t.Tx.Commit(t.bound(ctx))
}

func (t *boundTx) Begin(ctx context.Context) (pgx.Tx, error) {
	nested, err := t.Tx.Begin(t.bound(ctx))
	if err != nil {
		return nil, err
	}
	return &boundTx{Tx: nested, w: t.w, root: t.root}, nil
}

func (t *boundTx) Exec(ctx context.Context, sql string, args ...any) (pgconn.CommandTag, error) {
	return t.Tx.Exec(t.bound(ctx), sql, args...)
}

func (t *boundTx) Query(ctx context.Context, sql string, args ...any) (pgx.Rows, error) {
	return t.Tx.Query(t.bound(ctx), sql, args...)
}

func (t *boundTx) QueryRow(ctx context.Context, sql string, args ...any) pgx.Row {
	return t.Tx.QueryRow(t.bound(ctx), sql, args...)
}

func (t *boundTx) SendBatch(ctx context.Context, b *pgx.Batch) pgx.BatchResults {
	return t.Tx.SendBatch(t.bound(ctx), b)
}

func (t *boundTx) CopyFrom(ctx context.Context, table pgx.Identifier, columns []string, src pgx.CopyFromSource) (int64, error) {
	return t.Tx.CopyFrom(t.bound(ctx), table, columns, src)
}

// bound is the context for the next statement. A connection does one thing at a time, so that the
// one before has been read to its end by now, and its context can go.
func (t *boundTx) bound(ctx context.Context) context.Context {
	t.root.free()
	t.root.last = t.w.bound(ctx)
	return t.root.last
}

func (t *boundTx) free() {
	if t.last != nil {
		t.w.unbound(t.last)
		t.last = nil
	}
}
