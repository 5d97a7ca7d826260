package fence_test

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"rota/internal/fence"
)

const varietySQL = `
CREATE TYPE health AS ENUM ('UP', 'DOWN');
CREATE DOMAIN port AS int CHECK (VALUE BETWEEN 1 AND 65535);
CREATE TABLE variety (
    id     bigint PRIMARY KEY,
    tags   text[], counts int[], health health, port port, doc jsonb, raw bytea, price numeric(10,2),
    code   varchar(3), fixed char(4), at timestamptz, day date, ok boolean, ratio double precision, note text, seen timestamptz
);
SELECT fence_protect('variety');`

type common struct {
	ID   int64      `db:"id"`
	Note *string    `db:"note"`
	Seen *time.Time `db:"seen"` // the fence sets it
}

type variety struct {
	common
	Tags   []string       `db:"tags"`
	Counts []int          `db:"counts"`
	Health healthOf       `db:"health"`
	Port   int            `db:"port"`
	Doc    map[string]any `db:"doc"`
	Raw    []byte         `db:"raw"`
	Price  float64        `db:"price"`
	Code   string         `db:"code"`
	Fixed  string         `db:"fixed"`
	At     time.Time      `db:"at"`
	Day    time.Time      `db:"day"`
	OK     bool           `db:"ok"`
	Ratio  float64        `db:"ratio"`
	Memo   string         `db:"-"`
}

type healthOf string

func varieties() []variety {
	note := `a "quoted", {braced} \ and ünïcode`
	return []variety{
		{
			common: common{ID: 1, Note: &note}, Tags: []string{"x", `y"z`, ""}, Counts: []int{1, 2}, Health: "DOWN", Port: 443,
			Doc: map[string]any{"a": []any{"b"}}, Raw: []byte{0, 255}, Price: 12.5, Code: "", Fixed: "abcd",
			At: time.Date(2026, 3, 1, 12, 0, 0, 123000, time.UTC), Day: day, OK: true, Ratio: 0.1,
		},
		{common: common{ID: 2, Note: new(string)}, Health: "UP", Port: 1, Fixed: "efgh", At: day, Day: day},
	}
}

// What is written is what is read, whatever the column's type, in every exec mode that a pooler may
// need; many rows and a single one, which have SQL of their own.
func TestUpsertWritesEveryType(t *testing.T) {
	t.Parallel()
	db := newDB(t)
	exec(t, db, varietySQL)
	table := fence.Table{Name: "variety", Key: []string{"id"}, Stamp: "seen"}
	a := takeOver(t, db, "a")
	want := varieties()
	for _, mode := range execModes {
		pool := poolOn(t, db.Config().ConnString(), func(cfg *pgxpool.Config) {
			cfg.ConnConfig.DefaultQueryExecMode = mode
		})
		a.Writer = fence.NewWriter(a.term, a.end, pool, a.token, fence.Shard{}, table)
		for name, write := range map[string]func() error{
			"many rows": func() error { return a.Upsert(within(t), table, want) },
			"single rows": func() error {
				return errors.Join(a.Upsert(within(t), table, want[0]), a.Upsert(within(t), table, &want[1]))
			},
		} {
			exec(t, db, `DELETE FROM variety`)
			for range 2 {
				if err := write(); err != nil {
					t.Errorf("%s, %s: %v", mode, name, err)
				}
			}
			if diff := cmp.Diff(want, readVarieties(t, db), cmp.AllowUnexported(variety{}, common{})); diff != "" {
				t.Errorf("%s, %s (-written +read)\n%s", mode, name, diff)
			}
		}
	}
	want[0].Code = "long"
	for _, rows := range []any{want, want[0]} {
		if err := a.Upsert(within(t), table, rows); !hasCode(err, "22001") {
			t.Errorf("a value too long for its column: got %v, want 22001 instead of a silent cut", err)
		}
	}
}

func readVarieties(t *testing.T, db *pgxpool.Pool) []variety {
	t.Helper()
	rows, err := db.Query(within(t), `SELECT id, note, seen, tags, counts, health, port, doc, raw, price, code, fixed, at, day, ok, ratio FROM variety ORDER BY id`)
	wantNoError(t, err)
	got, err := pgx.CollectRows(rows, pgx.RowToStructByName[variety])
	wantNoError(t, err)
	for i := range got {
		if got[i].Seen == nil {
			t.Error("the stamp was not set")
		}
		got[i].Seen = nil
		got[i].At = got[i].At.UTC()
	}
	return got
}

// What cannot be right is refused in Go, with words that tell what to do; the term goes on.
func TestUpsertRefusesWhatCannotBeRight(t *testing.T) {
	t.Parallel()
	db := newDB(t)
	exec(t, db, `CREATE TABLE bare (id text PRIMARY KEY)`)
	a := takeOver(t, db, "a")
	bare := fence.Table{Name: "bare", Key: []string{"id"}}
	keyless := fence.Table{Name: "bridge_status"}
	w := fence.NewWriter(a.term, a.end, db, a.token, fence.Shard{}, bridgeStatus, readings, bare)
	w2 := fence.NewWriter(a.term, a.end, db, a.token, fence.Shard{}, keyless)
	type id struct {
		ID string `db:"id"`
	}
	for _, c := range []struct {
		name  string
		w     *fence.Writer
		table fence.Table
		rows  any
		want  string
	}{
		{"equal keys", w, bridgeStatus, []status{{"LP-1", "UP"}, {"LP-2", "UP"}, {"LP-1", "DOWN"}}, "two rows have the key bridge_id=LP-1"},
		{"an undeclared table", w, fence.Table{Name: "symbols"}, status{}, "Protects"},
		{"another key than declared", w, keyless, status{}, "Protects"},
		{"no key", w2, keyless, status{}, "names no key"},
		{"no epoch column", w, bare, id{"x"}, "fence_protect('bare')"},
		{"no such column", w, bridgeStatus, struct {
			status
			Odd int `db:"odd"`
		}{}, "no column odd"},
		{"no field for the key", w, readings, struct {
			Bridge string `db:"bridge_id"`
		}{}, "key column day"},
		{"a NULL key", w, bridgeStatus, struct {
			Bridge *string `db:"bridge_id"`
		}{}, "bridge_id is NULL"},
		{"an untagged field", w, bridgeStatus, struct {
			status
			Latency int
		}{}, "field Latency"},
		{"a tag twice", w, bridgeStatus, struct {
			A string `db:"bridge_id"`
			B string `db:"bridge_id"`
		}{}, "two fields"},
		{"nil", w, bridgeStatus, nil, "nil"},
		{"a nil pointer", w, bridgeStatus, []*status{{"LP-1", "UP"}, nil}, "row 1"},
		{"no struct", w, bridgeStatus, []string{"LP-1"}, "want a struct"},
	} {
		err := c.w.Upsert(within(t), c.table, c.rows)
		if err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: got %v, want %q in it", c.name, err, c.want)
		}
		if errors.Is(err, fence.ErrFenced) || errors.Is(err, fence.ErrUnknown) {
			t.Errorf("%s: got %v, want neither a refusal nor a doubt", c.name, err)
		}
	}
	if got := bridges(t, db); got != "" || a.term.Err() != nil {
		t.Errorf("written: %s; the term ended by %v", got, context.Cause(a.term))
	}
	wantNoError(t, w.Upsert(within(t), bridgeStatus, []status{}))
}

// A table that is altered under a running leader does not stop it.
func TestUpsertSurvivesAlterTable(t *testing.T) {
	t.Parallel()
	db := newDB(t)
	a := takeOver(t, db, "a")
	write := func() error { return a.Upsert(within(t), bridgeStatus, status{"LP-1", "7"}) }
	wantNoError(t, write())
	for _, sql := range []string{
		`ALTER TABLE bridge_status ADD COLUMN note text NOT NULL DEFAULT ''`,
		`ALTER TABLE bridge_status ALTER COLUMN health TYPE varchar(20)`,
		`ALTER TABLE bridge_status ALTER COLUMN health TYPE integer USING health::int`,
		`ALTER TABLE bridge_status ALTER COLUMN health TYPE text`,
		`ALTER TABLE bridge_status DROP COLUMN note`,
	} {
		exec(t, db, sql)
		if err := write(); err != nil {
			t.Errorf("after %s: %v", sql, err)
		}
	}
	exec(t, db, `ALTER TABLE bridge_status RENAME COLUMN health TO state`)
	if err := write(); err == nil || !strings.Contains(err.Error(), "no column health") {
		t.Errorf("got %v, want the column that is missing", err)
	}
}
