package fence

import (
	"context"
	"errors"
	"fmt"
	"reflect"
	"slices"
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
// It waits at most half a second for a row that another transaction holds. A refusal is ErrFenced;
// an error that leaves the outcome open is ErrUnknown; after any other nothing was written.
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
	ctx, stop := w.bound(ctx)
	defer stop()
	conn, err := w.db.Acquire(ctx)
	if err != nil {
		return w.judge(fmt.Errorf("nothing was written: %w", err), false)
	}
	defer conn.Release()
	err, sent := w.upsertOn(ctx, conn.Conn(), t, values, typ)
	return w.judge(err, sent)
}

// upsertOn sends the statement, and sends it once more where the table has changed its columns
// since they were looked up. It says whether an error came from the statement itself.
func (w *Writer) upsertOn(ctx context.Context, conn *pgx.Conn, t Table, values []reflect.Value, typ reflect.Type) (err error, sent bool) {
	s, cached := w.statement(t.Name, typ)
	if cached {
		err, sent = w.send(ctx, conn, s, values)
		if !outdated(err) {
			return err, sent
		}
	}
	s, lookup := prepare(ctx, conn, t, typ)
	if lookup != nil {
		return errors.Join(err, lookup), false
	}
	if err, sent = w.send(ctx, conn, s, values); err == nil {
		w.keep(t.Name, typ, s)
	}
	return err, sent
}

// outdated says whether a statement failed as it does when its table has been altered: class 42
// and a cached plan that no longer fits. Nothing was written then.
func outdated(err error) bool {
	var pg *pgconn.PgError
	return errors.As(err, &pg) && (strings.HasPrefix(pg.Code, "42") || pg.Code == "0A000")
}

func (w *Writer) send(ctx context.Context, conn *pgx.Conn, s *statement, values []reflect.Value) (err error, sent bool) {
	rows, err := s.rows(conn.TypeMap(), values)
	if err == nil {
		err = s.checkShard(rows, w.shard)
	}
	if err != nil {
		return err, false
	}
	args := append(make([]any, 0, 3+len(s.fields)), w.token.Lease, w.token.Owner, w.token.Epoch)
	if len(rows) == 1 {
		_, err = conn.Exec(ctx, s.one, append(args, single(rows[0])...)...)
	} else {
		_, err = conn.Exec(ctx, s.many, append(args, columns(rows)...)...)
	}
	return err, true
}

// A statement is the upsert of one type of struct into one table.
type statement struct {
	one, many string // SQL for one row, and for any number
	fields    []field
	oids      []uint32
	key       []int // positions in fields
	shard     int   // that of the column which decides a row's shard; below 0: none does
}

// upsertSQL's order of events: the guard looks at the lease and locks its epoch, which happens before
// any row is written because the first row of the source waits for its answer; then come the rows,
// each compared with the version that is the latest at that moment.
//
// The guard's lock_timeout holds for this statement, its own lock included: a term that is over
// must not keep the lease's epoch while it waits for somebody's row.
const upsertSQL = `
WITH guard AS MATERIALIZED (
    SELECT set_config('lock_timeout', '500ms', true) FROM lease_epochs
     WHERE job_name = $1::text AND epoch = $3::bigint
       AND EXISTS (SELECT FROM leadership
                    WHERE job_name = $1::text AND owner = $2::text AND epoch = $3::bigint AND expires_at > clock_timestamp())
       FOR KEY SHARE)%[7]s
INSERT INTO %[1]s AS t (%[2]s)
SELECT %[3]s %[4]s
 WHERE CASE WHEN NOT EXISTS (SELECT FROM guard) THEN rota_refuse('its lease has passed on or has expired')
            %[8]sELSE true END
ON CONFLICT (%[5]s) DO UPDATE SET %[6]s
 WHERE CASE WHEN t.epoch <= EXCLUDED.epoch THEN true
            ELSE rota_refuse('a row was written or raised under a higher epoch') END`

// Of a large table the watermark is locked as well, after the lease's epoch and before any row. Where it
// is the token's, as after a raise, the table's triggers need not look at it for every row: rota.raised
// tells them, for as long as the lock holds.
const (
	markedSQL = `,
mark AS MATERIALIZED (
    SELECT w.epoch FROM fence_watermarks w WHERE w.protected = %[1]s AND EXISTS (SELECT FROM guard) FOR KEY SHARE OF w
), told AS MATERIALIZED (
    SELECT set_config('rota.raised', epoch || ' ' || %[1]s::oid, true) FROM mark WHERE epoch = $3::bigint)`
	aboveSQL = `WHEN (SELECT epoch FROM mark) > $3::bigint THEN rota_refuse('the table was raised to a higher epoch')
            WHEN EXISTS (SELECT FROM told) THEN true
            `
)

// prepare makes the statement by the catalog's word on the table. A single row has SQL of its own,
// for a function in FROM costs a tenth of such an upsert.
//
// Every value travels as text and is cast to its column's type in the statement: that works for
// every type, arrays, enums and domains included, and in every one of pgx's exec modes.
func prepare(ctx context.Context, conn *pgx.Conn, t Table, typ reflect.Type) (*statement, error) {
	fields, err := fieldsOf(typ)
	if err != nil {
		return nil, err
	}
	columns, err := t.columns(ctx, conn)
	if err != nil {
		return nil, err
	}
	fields = slices.DeleteFunc(fields, func(f field) bool { return t.setByFence(f.column) })
	s := &statement{fields: fields}
	var into, one, many, params, names, set []string
	for i, f := range fields {
		c, ok := columns[f.column]
		if !ok {
			return nil, fmt.Errorf("it has no column %s", f.column)
		}
		name := quoted(f.column)
		s.oids = append(s.oids, c.oid)
		into = append(into, name)
		one = append(one, fmt.Sprintf("$%d::text::%s", i+4, c.sql))
		many = append(many, fmt.Sprintf("r.v%d::%s", i, c.sql))
		params = append(params, fmt.Sprintf("$%d::text[]", i+4))
		names = append(names, fmt.Sprintf("v%d", i))
		if !slices.Contains(t.Key, f.column) {
			set = append(set, fmt.Sprintf("%s = EXCLUDED.%s", name, name))
		}
	}
	if s.key, err = t.keyIn(fields); err != nil {
		return nil, err
	}
	rest := "$3::bigint"
	into = append(into, epochColumn)
	set = append(set, "epoch = EXCLUDED.epoch")
	if t.Stamp != "" {
		name := quoted(t.Stamp)
		into, rest = append(into, name), rest+", clock_timestamp()"
		set = append(set, fmt.Sprintf("%s = EXCLUDED.%s", name, name))
	}
	var key []string
	for _, k := range t.Key {
		key = append(key, quoted(k))
	}
	s.shard = slices.IndexFunc(fields, func(f field) bool { return t.Shard != "" && f.column == t.Shard })
	var mark, above string
	if t.Large {
		mark, above = fmt.Sprintf(markedSQL, t.literal()), aboveSQL
	}
	sql := func(values []string, from string) string {
		return fmt.Sprintf(upsertSQL, t.ident(), list(into), list(append(values, rest)), from, list(key), list(set), mark, above)
	}
	s.one = sql(one, "")
	s.many = sql(many, fmt.Sprintf("FROM unnest(%s) AS r (%s)", list(params), list(names)))
	return s, nil
}

func list(items []string) string { return strings.Join(items, ", ") }

// keyIn finds the key's columns among the fields.
func (t Table) keyIn(fields []field) ([]int, error) {
	if len(t.Key) == 0 {
		return nil, errors.New("its fence.Table names no key columns")
	}
	var key []int
	for _, k := range t.Key {
		i := slices.IndexFunc(fields, func(f field) bool { return f.column == k })
		if i < 0 {
			return nil, fmt.Errorf("no field is tagged as its key column %s", k)
		}
		key = append(key, i)
	}
	return key, nil
}
