package pgtest

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"rota/migrations"
)

func TestEachTestHasAMigratedDatabaseOfItsOwn(t *testing.T) {
	t.Parallel()
	a, b := New(t), New(t)
	exec := func(db *pgxpool.Pool, sql string) {
		t.Helper()
		if _, err := db.Exec(t.Context(), sql); err != nil {
			t.Fatal(err)
		}
	}
	exec(a, `INSERT INTO leadership (job_name, owner, expires_at, epoch) VALUES ('a', 'me', now(), 1)`)
	exec(b, `INSERT INTO leadership (job_name, owner, expires_at, epoch) VALUES ('a', 'you', now(), 1)`)
	exec(a, `SELECT max(version_id) FROM `+migrations.VersionTable)

	var owner string
	if err := a.QueryRow(t.Context(), `SELECT owner FROM leadership`).Scan(&owner); err != nil {
		t.Fatal(err)
	}
	if owner != "me" {
		t.Errorf("owner in the first database is %q, want me", owner)
	}
}

func TestManyDatabasesAtOnce(t *testing.T) {
	t.Parallel()
	for i := range 8 {
		t.Run(fmt.Sprint(i), func(t *testing.T) {
			t.Parallel()
			begun := time.Now()
			url := URL(t)
			t.Logf("cloned in %v", time.Since(begun))
			conn, err := pgx.Connect(t.Context(), url)
			if err != nil {
				t.Fatal(err)
			}
			if err := conn.Close(t.Context()); err != nil {
				t.Error(err)
			}
		})
	}
}

func TestTheDatabaseIsGoneAfterTheTest(t *testing.T) {
	t.Parallel()
	var url string
	t.Run("inner", func(t *testing.T) {
		pool := New(t)
		url = pool.Config().ConnString()
		// A session that the test forgot does not keep it.
		if _, err := pgx.Connect(context.Background(), url); err != nil {
			t.Fatal(err)
		}
	})
	if _, err := pgx.Connect(t.Context(), url); err == nil {
		t.Error("the database is still there")
	}
}

func TestAHaltedClusterComesBackWithItsDataAtItsAddress(t *testing.T) {
	t.Parallel()
	c := Cluster(t)
	Migrate(t, c.URL("postgres"))
	if err := c.Halt(); err != nil {
		t.Fatal(err)
	}
	if conn, err := pgx.Connect(t.Context(), c.URL("postgres")); err == nil {
		_ = conn.Close(t.Context())
		t.Fatal("a halted server takes connections")
	}
	if err := c.Resume(t.Context()); err != nil {
		t.Fatal(err)
	}
	conn, err := pgx.Connect(t.Context(), c.URL("postgres"))
	if err != nil {
		t.Fatal(err)
	}
	if _, err := conn.Exec(t.Context(), `SELECT FROM leadership`); err != nil {
		t.Error(err)
	}
	_ = conn.Close(t.Context())
}
