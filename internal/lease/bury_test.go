package lease

import (
	"context"
	"slices"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"rota/internal/pgtest"
)

// P1: what a process that has died left in the database is ended, its connections before its leases, on
// which one of them was at work; others' leases and connections stay, and an announcement that fails
// keeps nothing.
func TestBurialReleasesEvenWhereItCannotBeAnnounced(t *testing.T) {
	db := pgtest.New(t)
	s := newPostgres(db, time.Minute)
	dead, other := NewOwner("dead"), NewOwner("other")
	must(t, s.register(t.Context(), []string{"a", "b", "c", "theirs"}, *newAbility([]string{"a"})))
	if _, err := s.acquire(t.Context(), dead, time.Hour, []claim{{name: "a"}, {name: "b"}}, false); err != nil {
		t.Fatal(err)
	}
	if _, err := s.acquire(t.Context(), other, time.Hour, []claim{{name: "theirs"}}, false); err != nil {
		t.Fatal(err)
	}
	connect := func(name string) *pgx.Conn {
		cfg := db.Config().ConnConfig.Copy()
		cfg.RuntimeParams["application_name"] = name
		conn, err := pgx.ConnectConfig(t.Context(), cfg)
		must(t, err)
		t.Cleanup(func() { _ = conn.Close(context.Background()) })
		return conn
	}
	// A statement of the dead one's is winning another lease, and holds one of its own.
	inFlight, bystander, grave := connect(AppName(dead)), connect(AppName(other)), connect(WitnessName(dead))
	if _, err := inFlight.Exec(t.Context(), "BEGIN"); err != nil {
		t.Fatal(err)
	}
	if _, err := inFlight.Exec(t.Context(), `UPDATE leadership SET owner = $1, epoch = epoch + 1, expires_at = clock_timestamp() + interval '1 hour'
		WHERE job_name IN ('a', 'c')`, dead); err != nil {
		t.Fatal(err)
	}
	if _, err := db.Exec(t.Context(), `CREATE OR REPLACE FUNCTION rota_channel() RETURNS text LANGUAGE plpgsql AS
		$$ BEGIN RAISE 'no announcements today'; END $$`); err != nil {
		t.Fatal(err)
	}
	released, err := Bury(t.Context(), grave, dead)
	must(t, err)
	if !slices.Equal(released, []string{"a", "b"}) {
		t.Errorf("released: %q", released)
	}
	if n := query[int](t, db, "SELECT count(*) FROM terms WHERE owner = $1 AND end_reason = $2", dead, Crashed); n != 2 {
		t.Errorf("%d terms ended as crashed", n)
	}
	if left := query[string](t, db, "SELECT string_agg(job_name, ' ') FROM leadership WHERE expires_at > clock_timestamp()"); left != "theirs" {
		t.Errorf("still led: %q", left)
	}
	if err := bystander.Ping(t.Context()); err != nil {
		t.Errorf("another's connection was ended: %v", err)
	}
}
