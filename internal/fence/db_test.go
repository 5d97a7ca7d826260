package fence_test

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgxpool"

	"rota/internal/fence"
	"rota/internal/pgtest"
)

// The tables stand in a schema of their own, beside those of the jobs.
const tablesSQL = `
CREATE SCHEMA desk;
CREATE TABLE bridge_status (
    bridge_id  text PRIMARY KEY,
    health     text NOT NULL,
    checked_at timestamptz NOT NULL DEFAULT clock_timestamp()
);
SELECT fence_protect('bridge_status');

CREATE TABLE readings (
    bridge_id  text NOT NULL,
    day        date NOT NULL,
    value      integer,
    PRIMARY KEY (bridge_id, day)
) PARTITION BY RANGE (day);
CREATE TABLE readings_2026 PARTITION OF readings FOR VALUES FROM ('2026-01-01') TO ('2027-01-01');
CREATE TABLE readings_rest PARTITION OF readings DEFAULT;
SELECT fence_protect('readings');

CREATE TABLE prices (symbol text PRIMARY KEY, bid integer NOT NULL);
SELECT fence_protect('prices', true);

CREATE TABLE ticks (symbol text NOT NULL, day date NOT NULL, bid integer NOT NULL, PRIMARY KEY (symbol, day))
    PARTITION BY RANGE (day);
CREATE TABLE ticks_2026 PARTITION OF ticks FOR VALUES FROM ('2026-01-01') TO ('2027-01-01');
SELECT fence_protect('ticks', true);
CREATE TABLE ticks_rest PARTITION OF ticks DEFAULT;`

var (
	bridgeStatus = fence.Table{Name: "bridge_status", Key: []string{"bridge_id"}, Stamp: "checked_at"}
	readings     = fence.Table{Name: "desk.readings", Key: []string{"bridge_id", "day"}}
	prices       = fence.Table{Name: "prices", Key: []string{"symbol"}, Large: true}
	ticks        = fence.Table{Name: "desk.ticks", Key: []string{"symbol", "day"}, Large: true}
)

// protected are all of them.
var protected = []fence.Table{bridgeStatus, readings, prices, ticks}

type status struct {
	Bridge string `db:"bridge_id"`
	Health string `db:"health"`
}

type reading struct {
	Bridge string    `db:"bridge_id"`
	Day    time.Time `db:"day"`
	Value  *int      `db:"value"`
}

type price struct {
	Symbol string `db:"symbol"`
	Bid    int    `db:"bid"`
}

type tick struct {
	Symbol string    `db:"symbol"`
	Day    time.Time `db:"day"`
	Bid    int       `db:"bid"`
}

func newDB(t testing.TB) *pgxpool.Pool {
	t.Helper()
	db := poolOn(t, pgtest.URL(t), nil)
	exec(t, db, tablesSQL)
	return db
}

// poolOn opens a pool on a database as a replica would, save for what change changes.
func poolOn(t testing.TB, url string, change func(*pgxpool.Config)) *pgxpool.Pool {
	t.Helper()
	cfg, err := pgxpool.ParseConfig(url)
	if err != nil {
		t.Fatal(err)
	}
	cfg.MaxConns = 40
	cfg.ConnConfig.RuntimeParams["search_path"] = "desk, public"
	if change != nil {
		change(cfg)
	}
	db, err := pgxpool.NewWithConfig(context.Background(), cfg)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(db.Close)
	return db
}

// patience is how long a test waits for what should come at once.
const patience = 20 * time.Second

func within(t testing.TB) context.Context {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	t.Cleanup(cancel)
	return ctx
}

func exec(t testing.TB, db *pgxpool.Pool, sql string, args ...any) int64 {
	t.Helper()
	tag, err := db.Exec(within(t), sql, args...)
	if err != nil {
		t.Fatalf("%s: %v", sql, err)
	}
	return tag.RowsAffected()
}

func value[T any](t testing.TB, db *pgxpool.Pool, sql string, args ...any) T {
	t.Helper()
	var v T
	if err := db.QueryRow(within(t), sql, args...).Scan(&v); err != nil {
		t.Fatalf("%s: %v", sql, err)
	}
	return v
}

// eventually waits for something that can be observed.
func eventually(t testing.TB, what string, ok func() bool) {
	t.Helper()
	deadline := time.Now().Add(patience)
	for !ok() {
		if time.Now().After(deadline) {
			t.Fatalf("after %v still not: %s", patience, what)
		}
		time.Sleep(2 * time.Millisecond)
	}
}

// leader is a term as the lease's elector would hand it out, with its writer.
type leader struct {
	*fence.Writer
	token fence.Token
	term  context.Context
	end   context.CancelCauseFunc
}

const takeOverSQL = `
INSERT INTO leadership AS l (job_name, owner, expires_at, epoch) VALUES ($1, $2, clock_timestamp() + '1 hour', 1)
ON CONFLICT (job_name) DO UPDATE
   SET owner = $2, expires_at = clock_timestamp() + '1 hour', epoch = l.epoch + 1
RETURNING epoch`

const lease = "bridge_health"

// takeOver gives the lease to a new owner, whether it has expired or not: harder on the fence than
// life is.
func takeOver(t testing.TB, db *pgxpool.Pool, owner string) *leader {
	t.Helper()
	token := fence.Token{Lease: lease, Owner: owner, Epoch: value[int64](t, db, takeOverSQL, lease, owner)}
	return writerOf(t, db, token)
}

func writerOf(t testing.TB, db *pgxpool.Pool, token fence.Token) *leader {
	t.Helper()
	term, end := context.WithCancelCause(context.Background())
	t.Cleanup(func() { end(nil) })
	return &leader{
		Writer: fence.NewWriter(term, end, db, token, fence.Shard{}, protected...),
		token:  token, term: term, end: end,
	}
}

// again is a writer of the same term that has not been refused yet: what another process, or a
// packet that was under way, would still write with.
func (l *leader) again(t testing.TB, db *pgxpool.Pool) *leader { return writerOf(t, db, l.token) }

func (l *leader) raise(t testing.TB, db *pgxpool.Pool) {
	t.Helper()
	if _, err := fence.Raise(within(t), db, l.token, fence.Shard{}, protected...); err != nil {
		t.Fatal(err)
	}
}

func wantFenced(t testing.TB, err error) {
	t.Helper()
	if !errors.Is(err, fence.ErrFenced) {
		t.Errorf("got %v, want ErrFenced", err)
	}
	if errors.Is(err, fence.ErrUnknown) {
		t.Errorf("got %v, want a known outcome", err)
	}
}

func wantNoError(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Errorf("got %v, want no error", err)
	}
}

func hasCode(err error, code string) bool {
	var pg *pgconn.PgError
	return errors.As(err, &pg) && pg.Code == code
}
