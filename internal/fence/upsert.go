package fence

import (
	"context"
	"errors"
	"fmt"
	"reflect"
	"strings"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
)

// Upsert writes a struct, or a slice of structs or of pointers to them, by their db tags: all rows
// or none, in one statement, which is refused if the term is over or a row has a higher epoch.
//
// Every exported field needs a tag; db:"-" leaves it out. The fence itself sets the columns epoch
// and t.Stamp, so that fields for them, which a struct may have for reading, are passed over. Two
// rows with one key, a NULL in a key and a table that is not among the writer's are errors. An
// empty slice writes nothing and asks the database nothing, but is refused too once the term is
// known to be over. A shard's writer refuses rows that are another shard's.
//
// It waits at most half a second for a row that another transaction holds. Calls that upsert few rows of
// one table at the same time may share a statement; if that fails, each is tried by itself, and waits
// again. A refusal is ErrFenced; an error that leaves the outcome open is ErrUnknown; after any other
// nothing was written.
func (w *Writer) Upsert(ctx context.Context, t Table, rows any) error {
	if err := w.upsert(ctx, t, rows); err != nil {
		return fmt.Errorf("upsert %s: %w", t.Name, err)
	}
	return nil
}

func (w *Writer) upsert(ctx context.Context, t Table, rows any) error {
	if err := w.over(); err != nil {
		return err
	}
	if err := w.mayWrite(t); err != nil {
		return err
	}
	values, typ, err := structs(rows)
	if err != nil || len(values) == 0 {
		return err
	}
	if s, ok := w.statement(t.Name, typ); ok && len(values) <= fewRows {
		rows, err := s.encode(values, w.shard)
		if err != nil {
			return w.judge(err, false)
		}
		if o := w.share(ctx, s, rows); !o.apart {
			return w.judge(o.err, o.sent)
		}
	}
	err, sent := w.alone(ctx, t, values, typ)
	return w.judge(err, sent)
}

// alone upserts the rows in a statement of their own, and once more where the table has changed its
// columns since they were looked up. It says whether an error came from the statement itself.
func (w *Writer) alone(caller context.Context, t Table, values []reflect.Value, typ reflect.Type) (err error, sent bool) {
	ctx := w.bound(caller)
	defer w.unbound(ctx)
	conn, err := w.db.Acquire(ctx)
	if err != nil {
		return fmt.Errorf("nothing was written: %w", err), false
	}
	defer conn.Release()
	s, cached := w.statement(t.Name, typ)
	if cached {
		err, sent = w.sendValues(ctx, conn.Conn(), s, values)
		if !outdated(err) {
			return err, sent
		}
	}
	s, lookup := w.prepare(ctx, conn.Conn(), t, typ)
	if lookup != nil {
		return errors.Join(err, lookup), false
	}
	if err, sent = w.sendValues(ctx, conn.Conn(), s, values); err == nil {
		w.keep(t.Name, typ, s)
	}
	return err, sent
}

// outdated says whether a statement failed as it does when its table has been altered: class 42
// and a cached plan that no longer fits. Nothing was written then.
func outdated(err error) bool {
	if err == nil {
		return false
	}
	var pg *pgconn.PgError
	return errors.As(err, &pg) && (strings.HasPrefix(pg.Code, "42") || pg.Code == "0A000")
}

func (w *Writer) sendValues(ctx context.Context, conn *pgx.Conn, s *statement, values []reflect.Value) (err error, sent bool) {
	rows, err := s.encode(values, w.shard)
	if err != nil {
		return err, false
	}
	return w.send(ctx, conn, s, rows)
}

// send sends the statement, and asks why where it has written nothing.
func (w *Writer) send(ctx context.Context, conn *pgx.Conn, s *statement, rows [][]cell) (err error, sent bool) {
	if len(rows) == 1 {
		if wrote, err := w.sendOne(ctx, conn, s, rows[0]); wrote || err != nil {
			return err, true
		}
	}
	tag, err := conn.Exec(ctx, s.many, columns(w.token.args(true), rows)...)
	if err != nil || tag.RowsAffected() > 0 {
		return err, true
	}
	// Either the guard found no lease, and finds none now, or a trigger of the table's own kept all rows out.
	_, err = conn.Exec(ctx, askSQL, w.token.Lease, w.token.Owner, w.token.Epoch)
	return err, false
}

const askSQL = `SELECT rota_guard($1::text, $2::text, $3::bigint)`
