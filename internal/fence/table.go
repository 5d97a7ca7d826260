package fence

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/jackc/pgx/v5"
)

// A Table is a protected table: one with an epoch column, which a job writes through the fence.
// One value serves both registry.Job.Protects and Writer.Upsert.
type Table struct {
	Name  string   // as the catalog spells it; may be qualified by a schema
	Key   []string // the columns of the unique key that an upsert meets
	Shard string   // of a job with shards: the key column whose value, as text, decides a row's shard
	Stamp string   // optional: a column that every write sets to clock_timestamp()

	// Large says that the table has too many rows to rewrite them all at every takeover. Its raise
	// moves one row of fence_watermarks, which its triggers and the guard compare with: it needs
	// SELECT fence_protect('NAME', true), and each of its writes costs a look more.
	Large bool
}

// epochColumn is the column that makes a table a protected one.
const epochColumn = "epoch"

// ident is the table's name as SQL has it.
func (t Table) ident() string {
	return pgx.Identifier(strings.SplitN(t.Name, ".", 2)).Sanitize()
}

func (t Table) equal(o Table) bool {
	return t.Name == o.Name && t.Shard == o.Shard && t.Stamp == o.Stamp && t.Large == o.Large && slices.Equal(t.Key, o.Key)
}

func (t Table) keyed(column string) bool { return slices.Contains(t.Key, column) }

// setByFence says whether the fence gives the column its value.
func (t Table) setByFence(column string) bool {
	return column == epochColumn || (t.Stamp != "" && column == t.Stamp)
}

// literal is the table in an expression, as a value of type regclass.
func (t Table) literal() string {
	return "'" + strings.ReplaceAll(t.ident(), "'", "''") + "'::regclass"
}

func quoted(column string) string { return pgx.Identifier{column}.Sanitize() }

// A column's type, as the catalog has it.
type columnType struct {
	sql string // with schema where needed, without modifiers: an assignment enforces those, a cast would truncate
	oid uint32 // of what a domain is made of
}

const columnsSQL = `
SELECT a.attname, format_type(a.atttypid, -1), coalesce(nullif(t.typbasetype, 0), t.oid)
  FROM pg_attribute a JOIN pg_type t ON t.oid = a.atttypid
 WHERE a.attrelid = to_regclass($1::text) AND a.attnum > 0 AND NOT a.attisdropped`

// columns looks the table's columns up. It fails for one that is not a protected table.
func (t Table) columns(ctx context.Context, conn *pgx.Conn) (map[string]columnType, error) {
	rows, err := conn.Query(ctx, columnsSQL, t.ident())
	if err != nil {
		return nil, fmt.Errorf("look up its columns: %w", err)
	}
	columns := map[string]columnType{}
	var name string
	var c columnType
	if _, err := pgx.ForEachRow(rows, []any{&name, &c.sql, &c.oid}, func() error {
		columns[name] = c
		return nil
	}); err != nil {
		return nil, fmt.Errorf("look up its columns: %w", err)
	}
	if len(columns) == 0 {
		return nil, errors.New("there is no such table on the search path")
	}
	if _, ok := columns[epochColumn]; !ok {
		return nil, fmt.Errorf("it has no epoch column: SELECT fence_protect('%s')", t.Name)
	}
	return columns, nil
}
