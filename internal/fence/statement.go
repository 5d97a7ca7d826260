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
	"github.com/jackc/pgx/v5/pgtype"
)

// A statement is the upsert of one type of struct into one table.
type statement struct {
	again  string // SQL for one row, where it is known until when the lease is held
	one    string // for one row, which tells that
	many   string // for any number of rows
	fields []field
	oids   []uint32
	key    []int // positions in fields
	shard  int   // that of the column which decides a row's shard; below 0: none does
	turns  turns

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
// that it is set, as Prepare has done; where $4 is false it is set for the session, as somebody has
// changed it there.
const guardRowSQL = `
SELECT CASE current_setting('lock_timeout') WHEN '500ms' THEN NULL ELSE set_config('lock_timeout', '500ms', $4::boolean) END
  FROM lease_epochs e JOIN leadership l ON l.job_name = e.job_name
 WHERE e.job_name = $1::text AND e.epoch = $3::bigint
   AND l.owner = $2::text AND l.epoch = $3::bigint AND l.expires_at > clock_timestamp()
   FOR KEY SHARE OF e`

// args are the parameters of guardRowSQL.
func (t Token) args(local bool) []any { return []any{t.Lease, t.Owner, t.Epoch, local} }

// Of a large table the watermark is locked as well, after the lease's epoch and before any row. Where it
// is the token's, as after a raise, the table's triggers need not look at it for every row: rota.raised
// tells them, for as long as the lock holds.
const (
	markedSQL = `
WITH guard AS MATERIALIZED (%[2]s
), mark AS MATERIALIZED (
    SELECT w.epoch FROM fence_watermarks w WHERE w.protected = %[1]s AND EXISTS (SELECT FROM guard) FOR KEY SHARE OF w
), told AS MATERIALIZED (
    SELECT set_config('rota.raised', epoch || ' ' || %[1]s::oid, true) FROM mark WHERE epoch = %[3]s)`
	notAboveMarkSQL = `
 WHERE CASE WHEN (SELECT epoch FROM mark) > %s THEN rota_refuse('the table was raised to a higher epoch')
            WHEN EXISTS (SELECT FROM told) THEN true ELSE true END`
)

// A guard is how a statement looks at its lease.
type guard struct {
	sql   string // which has a row if the lease is the term's
	epoch string // the term's, as SQL
	first int    // the number of the first parameter that is a row's
}

// prepare makes the statement by the catalog's word on the table.
func (w *Writer) prepare(ctx context.Context, conn *pgx.Conn, t Table, typ reflect.Type) (*statement, error) {
	fields, err := fieldsOf(typ)
	if err != nil {
		return nil, err
	}
	columns, err := t.columns(ctx, conn)
	if err != nil {
		return nil, err
	}
	fields = slices.DeleteFunc(fields, func(f field) bool { return t.setByFence(f.column) })
	s := &statement{fields: fields, types: conn.TypeMap().Copy()}
	s.turns = turns{longest: longest, begin: func(b *shared) { w.sendShared(s, b) }}
	var types []string
	for _, f := range fields {
		c, ok := columns[f.column]
		if !ok {
			return nil, fmt.Errorf("it has no column %s", f.column)
		}
		s.oids, types = append(s.oids, c.oid), append(types, c.sql)
	}
	if s.key, err = t.keyIn(fields); err != nil {
		return nil, err
	}
	s.shard = slices.IndexFunc(fields, func(f field) bool { return t.Shard != "" && f.column == t.Shard })
	looks := guard{sql: guardRowSQL, epoch: "$3::bigint", first: 5}
	knows := guard{sql: w.token.guardKnownSQL(), epoch: fmt.Sprintf("%d::bigint", w.token.Epoch), first: 2}
	s.again = t.oneSQL(fields, types, knows)
	s.one = t.oneSQL(fields, types, looks) + knownSQL
	s.many = t.manySQL(fields, types, looks)
	return s, nil
}

// oneSQL is the upsert of a single row, which has SQL of its own, for a function in FROM costs a tenth
// of such an upsert.
//
// Every value travels as text and is cast to its column's type in the statement: that works for
// every type, arrays, enums and domains included, and in every one of pgx's exec modes.
func (t Table) oneSQL(fields []field, types []string, g guard) string {
	var values []string
	for i, typ := range types {
		values = append(values, fmt.Sprintf("$%d::text::%s", g.first+i, typ))
	}
	return t.upsertSQL(fields, values, g, "", oneOrNothing)
}

// manySQL is the upsert of any number of rows, in an array for each column.
func (t Table) manySQL(fields []field, types []string, g guard) string {
	var values, params, names []string
	for i, typ := range types {
		values = append(values, fmt.Sprintf("r.v%d::%s", i, typ))
		params = append(params, fmt.Sprintf("$%d::text[]", g.first+i))
		names = append(names, fmt.Sprintf("v%d", i))
	}
	return t.upsertSQL(fields, values, g, fmt.Sprintf(", unnest(%s) AS r (%s)", list(params), list(names)), allOrNothing)
}

func (t Table) upsertSQL(fields []field, values []string, g guard, rows, filter string) string {
	var into, key, set []string
	for _, f := range fields {
		into = append(into, quoted(f.column))
	}
	// The epoch comes last, where fence_protect has put it: an INSERT whose columns are in the table's
	// order needs a step less.
	if t.Stamp != "" {
		into, values = append(into, quoted(t.Stamp)), append(values, "clock_timestamp()")
	}
	into, values = append(into, epochColumn), append(values, g.epoch)
	for _, k := range t.Key {
		key = append(key, quoted(k))
	}
	for _, column := range into {
		if !slices.Contains(key, column) {
			set = append(set, fmt.Sprintf("%[1]s = EXCLUDED.%[1]s", column))
		}
	}
	from, mark, notAbove := "("+g.sql+") AS guard", "", ""
	if t.Large {
		from, mark, notAbove = "guard", fmt.Sprintf(markedSQL, t.literal(), g.sql, g.epoch), fmt.Sprintf(notAboveMarkSQL, g.epoch)
	}
	return fmt.Sprintf(upsertSQL, t.ident(), list(into), list(values), from+rows, list(key), list(set), mark, notAbove, filter)
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
