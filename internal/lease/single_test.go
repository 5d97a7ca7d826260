package lease

import (
	"context"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"

	"rota/internal/pgtest"
)

// singles is a store with two leases, a and b.
func singles(t *testing.T) (*pgxpool.Pool, *postgres) {
	t.Helper()
	db := pgtest.New(t)
	s := newPostgres(db, 10*time.Second)
	must(t, s.register(t.Context(), []string{"a", "b"}, *newAbility([]string{"a", "b"})))
	return db, s
}

func exec(t *testing.T, db *pgxpool.Pool, sql string) {
	t.Helper()
	if _, err := db.Exec(t.Context(), sql); err != nil {
		t.Fatalf("%s: %v", sql, err)
	}
}

// What a handover waits for is four statements in one round trip, and four in another, of which none
// is one of those for many leases.
func TestSingleLeaseIsHandedOverByShortStatements(t *testing.T) {
	t.Parallel()
	db, s := singles(t)
	exec(t, db, "CREATE EXTENSION IF NOT EXISTS pg_stat_statements")
	const ofOurs = `FROM pg_stat_statements WHERE dbid = (SELECT oid FROM pg_database WHERE datname = current_database())
		AND toplevel AND query NOT LIKE '%pg_stat_statements%' AND query NOT LIKE '%rota_channel() IS NOT NULL%'`
	before := query[int64](t, db, "SELECT coalesce(sum(calls), 0)::bigint "+ofOurs)
	mustAcquire(t, s, "r1", claim{name: "a"})
	v, err := s.release(t.Context(), "r1", "test", []holding{{"a", 1}}, []string{">heir"})
	must(t, err)
	mustAcquire(t, s, "r2", claim{name: "a"})
	if v[0] != renewed {
		t.Fatalf("verdict %v", v[0])
	}
	if n := query[int64](t, db, "SELECT coalesce(sum(calls), 0)::bigint "+ofOurs) - before; n != 12 {
		t.Errorf("%d statements in a release and two acquisitions, want four in each", n)
	}
	if n := query[int](t, db, "SELECT count(*) "+ofOurs+" AND query LIKE '%unnest%' AND query LIKE '%clock AS MATERIALIZED%'"); n != 0 {
		t.Errorf("%d of the statements for many leases were used", n)
	}
}

// P1: rows that were answered before a commit that failed are no leases.
func TestAnswerBeforeAFailedCommitIsNotBelieved(t *testing.T) {
	t.Parallel()
	db, s := singles(t)
	mustAcquire(t, s, "r1", claim{name: "b"})
	exec(t, db, `CREATE FUNCTION fail() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN RAISE 'no commits today'; END $$;
		CREATE CONSTRAINT TRIGGER fail AFTER UPDATE ON leadership DEFERRABLE INITIALLY DEFERRED FOR EACH ROW EXECUTE FUNCTION fail()`)
	if g, err := s.acquire(t.Context(), "r1", hour, []claim{{name: "a"}}, false); err == nil {
		t.Errorf("acquired: %+v", g)
	}
	if v, err := s.release(t.Context(), "r1", "test", []holding{{"b", 1}}, []string{""}); err == nil {
		t.Errorf("released: %v", v)
	}
	if held := query[string](t, db, "SELECT string_agg(job_name, ' ') FROM leadership WHERE expires_at > clock_timestamp()"); held != "b" {
		t.Errorf("held are %q", held)
	}
}

// A lease transaction needs nothing of its session and fears nothing of it: its settings hold where
// it commits, and while its triggers run, whatever the database's defaults are.
func TestLeaseTransactionsBringTheirSettings(t *testing.T) {
	t.Parallel()
	db, _ := singles(t)
	exec(t, db, `CREATE TABLE met (what text);
		CREATE FUNCTION look() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN
			INSERT INTO met SELECT concat_ws(' ', current_setting('synchronous_commit'), current_setting('transaction_isolation'),
				current_setting('lock_timeout') <> '0', current_setting('statement_timeout') <> '0'); RETURN NULL; END $$;
		CREATE CONSTRAINT TRIGGER look AFTER UPDATE ON leadership DEFERRABLE INITIALLY DEFERRED FOR EACH ROW EXECUTE FUNCTION look();
		DO $do$ BEGIN
			EXECUTE format('ALTER DATABASE %I SET synchronous_commit = off', current_database());
			EXECUTE format('ALTER DATABASE %I SET default_transaction_isolation = serializable', current_database());
		END $do$`)
	fresh, err := pgxpool.New(t.Context(), db.Config().ConnString())
	must(t, err)
	defer fresh.Close()
	if off := query[string](t, fresh, "SELECT current_setting('synchronous_commit')"); off != "off" {
		t.Fatalf("synchronous_commit is %s by default", off)
	}
	s := newPostgres(fresh, 10*time.Second)
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
	defer cancel()
	for _, names := range [][]string{{"a"}, {"a", "b"}} {
		var claims []claim
		for _, n := range names {
			claims = append(claims, claim{name: n})
		}
		grants, err := s.acquire(ctx, "r1", hour, claims, false)
		must(t, err)
		var held []holding
		for i, g := range grants {
			held = append(held, holding{names[i], g.epoch})
		}
		_, err = s.renew(ctx, "r1", hour, held)
		must(t, err)
		_, err = s.release(ctx, "r1", "test", held, make([]string, len(held)))
		must(t, err)
	}
	if n := query[int](t, db, "SELECT count(*) FROM met"); n != 9 {
		t.Errorf("%d changes of a lease, want 9", n)
	}
	if met := query[string](t, db, "SELECT string_agg(DISTINCT what, ', ') FROM met"); met != "on read committed t t" {
		t.Errorf("at the commit: %s", met)
	}
}

// What waits for the table, behind a migration for one, does not execute after its caller has given up.
func TestSingleAcquisitionGivesUpWithItsCaller(t *testing.T) {
	t.Parallel()
	db, s := singles(t)
	tx, err := db.Begin(t.Context())
	must(t, err)
	_, err = tx.Exec(t.Context(), "LOCK TABLE leadership IN ACCESS EXCLUSIVE MODE")
	must(t, err)
	ctx, cancel := context.WithTimeout(t.Context(), 300*time.Millisecond)
	defer cancel()
	if _, err := s.acquire(ctx, "r1", hour, []claim{{name: "a"}}, false); err == nil {
		t.Fatal("acquired in a locked table")
	}
	await(t, "nobody waits for the table", func() bool {
		return query[int](t, db, "SELECT count(*) FROM pg_locks WHERE NOT granted AND pid IN (SELECT pid FROM pg_stat_activity WHERE datname = current_database())") == 0
	})
	must(t, tx.Rollback(t.Context()))
	if e := query[int64](t, db, "SELECT epoch FROM leadership WHERE job_name = 'a'"); e != 0 {
		t.Errorf("acquired after all, epoch %d", e)
	}
}

// P2: what another program does between the snapshot and the lock is not overlooked. While it holds
// the row nothing is taken, and once it has let go, only what it has left.
func TestSingleStatementsSeeWhatAnotherHasDone(t *testing.T) {
	t.Parallel()
	db, s := singles(t)
	letGo := holdRow(t, db, "a")
	if g := mustAcquire(t, s, "r1", claim{name: "a"}); g[0].outcome != busy {
		t.Errorf("a held free lease: %+v", g[0])
	}
	letGo()
	mustAcquire(t, s, "r1", claim{name: "a"})
	exec(t, db, "UPDATE leadership SET owner = 'other', epoch = 7 WHERE job_name = 'a'")
	if v, err := s.release(t.Context(), "r1", "test", []holding{{"a", 1}}, []string{""}); err != nil || v[0] != lost {
		t.Errorf("release of a lost term: %v, %v", v, err)
	}
	exec(t, db, "UPDATE leadership SET epoch = 2, expires_at = clock_timestamp() WHERE job_name = 'a'")
	if g := mustAcquire(t, s, "r1", claim{name: "a"}); g[0].epoch != 8 {
		t.Errorf("epoch %d after one of 7 in the history", g[0].epoch)
	}
}
