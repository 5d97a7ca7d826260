package lease

import (
	"context"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"rota/internal/pgtest"
)

// P1, P2: what is rehearsed on a connection comes through to its end, and leaves no lease, no term, no
// epoch and no membership, and wakes nobody.
func TestRehearsalLeavesNothing(t *testing.T) {
	db := pgtest.New(t)
	ear, err := pgx.ConnectConfig(t.Context(), db.Config().ConnConfig.Copy())
	must(t, err)
	defer func() { _ = ear.Close(context.Background()) }()
	channel := query[string](t, db, "SELECT rota_channel()")
	if _, err := ear.Exec(t.Context(), "LISTEN "+pgx.Identifier{channel}.Sanitize()); err != nil {
		t.Fatal(err)
	}
	conn, err := pgx.ConnectConfig(t.Context(), db.Config().ConnConfig.Copy())
	must(t, err)
	defer func() { _ = conn.Close(context.Background()) }()
	must(t, takeoverRehearsed(t.Context(), conn))
	must(t, Rehearse(t.Context(), conn))
	if status := conn.PgConn().TxStatus(); status != 'I' {
		t.Errorf("the connection is left in a transaction: %c", status)
	}
	for _, table := range []string{"leadership", "terms", "lease_epochs", "job_shards", "replicas"} {
		if n := query[int](t, db, "SELECT count(*) FROM "+table); n != 0 {
			t.Errorf("%d rows of %s are left", n, table)
		}
	}
	must(t, run(t.Context(), db, segment{{sql: "SELECT pg_notify(rota_channel(), 'last')"}}))
	heard, err := waitFor(t.Context(), ear, 10*time.Second)
	must(t, err)
	if heard == nil || heard.Payload != "last" {
		t.Errorf("announced: %+v", heard)
	}
}

// A connection that cannot rehearse, for the schema is not there yet, is as good as any other.
func TestConnectionWithoutRehearsalServes(t *testing.T) {
	db := pgtest.New(t)
	if _, err := db.Exec(t.Context(), "DROP TABLE terms CASCADE"); err != nil {
		t.Fatal(err)
	}
	conn, err := pgx.ConnectConfig(t.Context(), db.Config().ConnConfig.Copy())
	must(t, err)
	defer func() { _ = conn.Close(context.Background()) }()
	if err := takeoverRehearsed(t.Context(), conn); err == nil {
		t.Fatal("it could be rehearsed")
	}
	must(t, rehearseTakeover(t.Context(), conn))
	if err := Rehearse(t.Context(), conn); err == nil {
		t.Fatal("a burial could be rehearsed")
	}
	if _, err := conn.Exec(t.Context(), "INSERT INTO replicas (id, host, pid, version, started_at, seen_at, expires_at) VALUES ('r', 'r', 1, '', now(), now(), now())"); err != nil {
		t.Errorf("the connection serves no more: %v", err)
	}
}
