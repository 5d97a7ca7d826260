package fence

import (
	"context"
	"errors"
	"fmt"
	"reflect"
	"slices"
	"strings"
	"sync"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgtype"
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
func (w *Writer) alone(ctx context.Context, t Table, values []reflect.Value, typ reflect.Type) (err error, sent bool) {
	ctx, stop := w.bound(ctx)
	defer stop()
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
	s, lookup := prepare(ctx, conn.Conn(), t, typ)
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
	guard := []any{w.token.Lease, w.token.Owner, w.token.Epoch}
	if len(rows) == 1 {
		tag, err := conn.Exec(ctx, s.one, append(guard, single(rows[0])...)...)
		if err != nil || tag.RowsAffected() > 0 {
			return err, true
		}
	}
	tag, err := conn.Exec(ctx, s.many, append(guard, columns(rows)...)...)
	if err != nil || tag.RowsAffected() > 0 {
		return err, true
	}
	// Either the guard found no lease, and finds none now, or a trigger of the table's own kept all rows out.
	_, err = conn.Exec(ctx, askSQL, guard...)
	return err, false
}

const askSQL = `SELECT rota_guard($1::text, $2::text, $3::bigint)`

// A statement is the upsert of one type of struct into one table.
type statement struct {
	one, many string // SQL for one row, and for any number
	fields    []field
	oids      []uint32
	key       []int // positions in fields
	shard     int   // that of the column which decides a row's shard; below 0: none does
	turns     turns

	mu    sync.Mutex // guards types, which remembers what it has found out
	types *pgtype.Map
}

// upsertSQL's order of events: the guard looks at the lease and locks its epoch, which happens before
// any row is written because every row of the source is joined to the guard's; then come the rows,
// each compared with the version that is the latest at that moment.
//
// Where the guard finds no lease there are no rows, and the answer says so. Of many rows one that has
// a higher epoch must undo the others and raises; a single row is merely not written, and then the
// statement for many tells why. Every function that a plan names costs, called or not, and so does
// every subquery: on 32 connections these were most of what a fenced upsert of one row took.
const upsertSQL = `%[7]s
INSERT INTO %[1]s AS t (%[2]s)
SELECT %[3]s FROM %[4]s%[8]s
ON CONFLICT (%[5]s) DO UPDATE SET %[6]s
 WHERE %[9]s`

const (
	oneOrNothing = `t.epoch <= EXCLUDED.epoch`
	allOrNothing = `CASE WHEN t.epoch <= EXCLUDED.epoch THEN true
            ELSE rota_refuse('a row was written or raised under a higher epoch') END`
)

// The lock_timeout holds for the whole statement, the guard's own lock included: a term that is over
// must not keep the lease's epoch while it waits for somebody's row. To set it costs more than to see
// that it is set, as Prepare has done.
const guardRowSQL = `
SELECT CASE current_setting('lock_timeout') WHEN '500ms' THEN NULL ELSE set_config('lock_timeout', '500ms', true) END
  FROM lease_epochs e JOIN leadership l ON l.job_name = e.job_name
 WHERE e.job_name = $1::text AND e.epoch = $3::bigint
   AND l.owner = $2::text AND l.epoch = $3::bigint AND l.expires_at > clock_timestamp()
   FOR KEY SHARE OF e`

// Of a large table the watermark is locked as well, after the lease's epoch and before any row. Where it
// is the token's, as after a raise, the table's triggers need not look at it for every row: rota.raised
// tells them, for as long as the lock holds.
const (
	markedSQL = `
WITH guard AS MATERIALIZED (%[2]s
), mark AS MATERIALIZED (
    SELECT w.epoch FROM fence_watermarks w WHERE w.protected = %[1]s AND EXISTS (SELECT FROM guard) FOR KEY SHARE OF w
), told AS MATERIALIZED (
    SELECT set_config('rota.raised', epoch || ' ' || %[1]s::oid, true) FROM mark WHERE epoch = $3::bigint)`
	notAboveMarkSQL = `
 WHERE CASE WHEN (SELECT epoch FROM mark) > $3::bigint THEN rota_refuse('the table was raised to a higher epoch')
            WHEN EXISTS (SELECT FROM told) THEN true ELSE true END`
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
	s := &statement{fields: fields, types: conn.TypeMap().Copy(), turns: turns{longest: longest}}
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
	// The epoch comes last, where fence_protect has put it: an INSERT whose columns are in the table's
	// order needs a step less.
	rest := []string{"$3::bigint"}
	if t.Stamp != "" {
		name := quoted(t.Stamp)
		into, rest = append(into, name), []string{"clock_timestamp()", "$3::bigint"}
		set = append(set, fmt.Sprintf("%s = EXCLUDED.%s", name, name))
	}
	into = append(into, epochColumn)
	set = append(set, "epoch = EXCLUDED.epoch")
	var key []string
	for _, k := range t.Key {
		key = append(key, quoted(k))
	}
	s.shard = slices.IndexFunc(fields, func(f field) bool { return t.Shard != "" && f.column == t.Shard })
	guard, mark, notAbove := "("+guardRowSQL+") AS guard", "", ""
	if t.Large {
		guard, mark, notAbove = "guard", fmt.Sprintf(markedSQL, t.literal(), guardRowSQL), notAboveMarkSQL
	}
	sql := func(values []string, from, filter string) string {
		return fmt.Sprintf(upsertSQL, t.ident(), list(into), list(append(values, rest...)), from, list(key), list(set), mark, notAbove, filter)
	}
	s.one = sql(one, guard, oneOrNothing)
	s.many = sql(many, fmt.Sprintf("%s, unnest(%s) AS r (%s)", guard, list(params), list(names)), allOrNothing)
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
