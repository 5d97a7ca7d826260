// Package pgtest gives each test a fresh, migrated database.
//
// A database is a clone of a template, which is migrated once for each state of
// the migrations and takes tens of milliseconds to clone; tests may therefore
// run in parallel, in any number of packages at once. The server is the one that
// ROTA_TEST_POSTGRES names, as `make test` sets it. Without it each test binary
// starts a server of its own, which ends when the binary does.
//
// Where there is no Postgres a test is skipped, and says why; where the variable
// CI is set it fails instead.
//
// A server of our own has goroutines for as long as the process lives. A package
// that looks for leaks ignores them by
// goleak.IgnoreAnyFunction("rota/internal/devdb.(*child).live") and (*child).read.
package pgtest

import (
	"context"
	"crypto/rand"
	"encoding/hex"
	"errors"
	"fmt"
	"net/url"
	"os"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgxpool"

	"rota/internal/devdb"
)

// Env names the variable with the URL of the server that tests are to use. Its
// user must be a superuser.
const Env = "ROTA_TEST_POSTGRES"

// patience bounds every step that a test waits for: a loaded machine is slow,
// and a hung one must not hold up the whole run.
const patience = time.Minute

// New returns a pool on a fresh, migrated database. When the test ends the pool
// is closed and the database dropped; by then the test must have given back
// every connection. pool.Config().ConnString() is the database's URL.
func New(t testing.TB) *pgxpool.Pool {
	t.Helper()
	cfg, err := pgxpool.ParseConfig(URL(t))
	if err != nil {
		t.Fatalf("parse the database's URL: %v", err)
	}
	// More than a test is likely to hold at once, whatever the number of cores.
	cfg.MaxConns = 16
	pool, err := pgxpool.NewWithConfig(context.Background(), cfg)
	if err != nil {
		t.Fatalf("make a pool: %v", err)
	}
	t.Cleanup(func() { closePool(t, pool) })
	return pool
}

// closePool fails the test rather than hang where a connection is still out.
func closePool(t testing.TB, pool *pgxpool.Pool) {
	done := make(chan struct{})
	go func() {
		defer close(done)
		pool.Close()
	}()
	select {
	case <-done:
	case <-time.After(10 * time.Second):
		t.Errorf("the test ended with %d connections still in use", pool.Stat().AcquiredConns())
	}
}

// URL returns the URL of a fresh, migrated database, which is dropped, with all
// its sessions, when the test ends.
func URL(t testing.TB) string {
	t.Helper()
	server := serverURL(t)
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	template, err := ensureTemplate(ctx, server)
	if err != nil {
		t.Fatalf("migrate the template of test databases: %v", err)
	}
	name := databaseName(t)
	if err := clone(ctx, server, name, template); err != nil {
		t.Fatalf("clone a test database: %v", err)
	}
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), patience)
		defer cancel()
		if err := exec(ctx, server, "DROP DATABASE "+ident(name)+" WITH (FORCE)"); err != nil {
			t.Errorf("drop the test's database: %v", err)
		}
	})
	return withDatabase(server, name)
}

// Cluster returns a server of this test's own, with no database of ours in it,
// for tests that halt, kill or configure Postgres. See Migrate. It is stopped
// when the test ends.
func Cluster(t testing.TB) *devdb.Cluster {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	c, err := devdb.Start(ctx, devdb.Config{Settings: FastSettings()})
	if err != nil {
		unavailable(t, err)
	}
	t.Cleanup(func() {
		if err := c.Stop(); err != nil {
			t.Errorf("stop the test's Postgres: %v", err)
		}
	})
	return c
}

// MigratedCluster is Cluster with the schema in its database postgres, and a pool on that, which is
// closed when the test ends.
func MigratedCluster(t testing.TB) (*devdb.Cluster, *pgxpool.Pool) {
	t.Helper()
	c := Cluster(t)
	Migrate(t, c.URL("postgres"))
	db, err := pgxpool.New(context.Background(), c.URL("postgres"))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(db.Close)
	return c, db
}

// FastSettings are those of a server whose data nobody needs after a crash.
func FastSettings() map[string]string {
	return map[string]string{
		"fsync":              "off",
		"synchronous_commit": "off",
		"full_page_writes":   "off",
	}
}

// own is this process's server, where Env names none.
var own = sync.OnceValues(func() (string, error) {
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	c, err := devdb.Start(ctx, devdb.Config{Settings: FastSettings()})
	if err != nil {
		return "", err
	}
	return c.URL("postgres"), nil
})

func serverURL(t testing.TB) string {
	t.Helper()
	if server := os.Getenv(Env); server != "" {
		return server
	}
	server, err := own()
	if err != nil {
		unavailable(t, err)
	}
	return server
}

// unavailable ends the test: as skipped where Postgres is merely not installed
// on somebody's machine, as failed otherwise.
func unavailable(t testing.TB, err error) {
	t.Helper()
	if errors.Is(err, devdb.ErrNotFound) && os.Getenv("CI") == "" {
		t.Skipf("this test needs PostgreSQL: %v", err)
	}
	t.Fatalf("start PostgreSQL for tests: %v", err)
}

// clone makes a database from a template, by copying its files: that takes a
// checkpoint, which costs little without fsync, and is four times as fast as
// copying through the log. A session that looks at the template
// just then, such as an autovacuum worker, is waited for.
func clone(ctx context.Context, server, name, template string) error {
	for {
		err := exec(ctx, server, "CREATE DATABASE "+ident(name)+" TEMPLATE "+ident(template)+" STRATEGY file_copy")
		var pgErr *pgconn.PgError
		if errors.As(err, &pgErr) && pgErr.Code == "55006" && ctx.Err() == nil { // object_in_use
			continue
		}
		return err
	}
}

func exec(ctx context.Context, server, sql string) error {
	conn, err := pgx.Connect(ctx, server)
	if err != nil {
		return fmt.Errorf("connect: %w", err)
	}
	defer func() { _ = conn.Close(ctx) }()
	_, err = conn.Exec(ctx, sql)
	return err
}

// databaseName is unique, and begins with the test's own for whoever looks at
// pg_stat_activity.
func databaseName(t testing.TB) string {
	var random [6]byte
	_, _ = rand.Read(random[:]) // never fails
	test := strings.Map(func(r rune) rune {
		if r >= 'a' && r <= 'z' || r >= 'A' && r <= 'Z' || r >= '0' && r <= '9' {
			return r
		}
		return '_'
	}, t.Name())
	return fmt.Sprintf("%.40s_%s", test, hex.EncodeToString(random[:]))
}

func withDatabase(server, name string) string {
	u, err := url.Parse(server)
	if err != nil {
		panic(err) // pgx has parsed it by now
	}
	u.Path = "/" + name
	return u.String()
}

func ident(name string) string { return pgx.Identifier{name}.Sanitize() }
