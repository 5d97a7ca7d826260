package lease

import (
	"context"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"rota/internal/pgtest"
)

// P2: a renewal moves what it names, owner and epoch, and nothing else of its owner's.
func TestRenewalMovesOnlyWhatItNames(t *testing.T) {
	t.Parallel()
	db := pgtest.New(t)
	s := newPostgres(db, time.Second)
	must(t, s.register(t.Context(), []string{"a", "b", "c"}, *newAbility([]string{"a", "b", "c"})))
	mustAcquire(t, s, "r1", claim{name: "a", seen: 0}, claim{name: "b", seen: 0}, claim{name: "c", seen: 0})
	expiries := func() map[string]time.Time {
		at := map[string]time.Time{}
		for _, name := range []string{"a", "b", "c"} {
			at[name] = query[time.Time](t, db, "SELECT expires_at FROM leadership WHERE job_name = $1", name)
		}
		return at
	}
	before := expiries()
	v, err := s.renew(t.Context(), "r1", hour, []holding{{"c", 2}, {"a", 1}, {"a", 2}})
	must(t, err)
	if !slices.Equal(v, []verdict{lost, renewed, lost}) {
		t.Errorf("verdicts %v", v)
	}
	after := expiries()
	for name, moved := range map[string]bool{"a": true, "b": false, "c": false} {
		if after[name].After(before[name]) != moved {
			t.Errorf("%s: from %v to %v", name, before[name], after[name])
		}
	}
}

// led is a store in which r1 leads a with epoch 1.
func led(t *testing.T) (*pgxpool.Pool, *postgres) {
	t.Helper()
	db := pgtest.New(t)
	s := newPostgres(db, time.Second)
	must(t, s.register(t.Context(), []string{"a"}, *newAbility([]string{"a"})))
	mustAcquire(t, s, "r1", claim{name: "a", seen: 0})
	return db, s
}

// renewals are the two ways to renew, by their call: of what was locked, and of all.
var renewals = map[string]func(s *postgres, ctx context.Context, held []holding) ([]verdict, error){
	"renew": func(s *postgres, ctx context.Context, held []holding) ([]verdict, error) {
		return s.renew(ctx, "r1", hour, held)
	},
	"beat": func(s *postgres, ctx context.Context, held []holding) ([]verdict, error) {
		v, _, err := s.beat(ctx, self("r1"), held)
		return v, err
	},
}

// P8: a row that somebody holds costs that lease alone, and at once: the renewal answers while the
// row is still held, and renews the others. A fenced write's lock is no hindrance to its own lease.
func TestRenewalDoesNotWaitForAHeldRow(t *testing.T) {
	t.Parallel()
	for call, renew := range renewals {
		t.Run(call, func(t *testing.T) {
			t.Parallel()
			doesNotWaitForAHeldRow(t, renew)
		})
	}
}

func doesNotWaitForAHeldRow(t *testing.T, renew func(s *postgres, ctx context.Context, held []holding) ([]verdict, error)) {
	db := pgtest.New(t)
	s := newPostgres(db, time.Second)
	must(t, s.register(t.Context(), []string{"a", "b"}, *newAbility([]string{"a", "b"})))
	mustAcquire(t, s, "r1", claim{name: "a", seen: 0}, claim{name: "b", seen: 0})
	for strength, want := range map[string]verdict{
		"UPDATE": locked, "NO KEY UPDATE": locked, "SHARE": locked, "KEY SHARE": renewed,
	} {
		holder, err := db.Begin(t.Context())
		must(t, err)
		_, err = holder.Exec(t.Context(), "SELECT FROM leadership WHERE job_name = 'a' FOR "+strength)
		must(t, err)
		before := query[time.Time](t, db, "SELECT expires_at FROM leadership WHERE job_name = 'b'")
		// One that waited would end in an error by this deadline, for the row is held until it has answered.
		ctx, cancel := context.WithTimeout(t.Context(), 5*time.Second)
		v, err := renew(s, ctx, []holding{{"a", 1}, {"b", 1}})
		cancel()
		if err != nil || !slices.Equal(v, []verdict{want, renewed}) {
			t.Errorf("held FOR %s: verdicts %v, %v; want %v and renewed", strength, v, err, want)
		}
		if !query[time.Time](t, db, "SELECT expires_at FROM leadership WHERE job_name = 'b'").After(before) {
			t.Errorf("held FOR %s: the other lease was not renewed", strength)
		}
		// As long as it is held no heartbeat waits for it again.
		if s.held.Load() != (want == locked) {
			t.Errorf("held FOR %s: the next heartbeat reckons with a held row: %v", strength, s.held.Load())
		}
		must(t, holder.Rollback(t.Context()))
	}
}

// An answer that leaves a lease out, or speaks of one twice, renews nothing.
func TestAnswerThatDoesNotSpeakOfEachLeaseIsAnError(t *testing.T) {
	t.Parallel()
	db := pgtest.New(t)
	for _, answer := range []string{
		"SELECT 2, 1::bigint, NULL::bigint[]",
		"SELECT 2, 3::bigint, NULL::bigint[]",
		"SELECT 0, 2::bigint, '{1,1}'::bigint[]",
	} {
		verdicts := make([]verdict, 2)
		err := run(t.Context(), db, segment{{sql: answer, read: func(rows pgx.Rows) error { return readVerdicts(rows, verdicts) }}})
		if err == nil || slices.Contains(verdicts, renewed) {
			t.Errorf("%s: got %v, %v", answer, verdicts, err)
		}
	}
}

// stretchSQL makes a statement wait, between its snapshot and its locks, as long as the test holds
// advisory lock 1.
const stretchSQL = `
CREATE SCHEMA stretch;
CREATE FUNCTION stretch.clock_timestamp() RETURNS timestamptz LANGUAGE plpgsql VOLATILE AS $$
BEGIN
    WHILE NOT pg_try_advisory_xact_lock_shared(1) LOOP PERFORM pg_sleep(0.002); END LOOP;
    RETURN pg_catalog.clock_timestamp();
END $$;`

// P1, P2: what commits between a renewal's snapshot and its lock is not undone: a newer renewal is
// not shortened, a release not revived, another's term not touched. The lease is asked about again.
func TestRenewalThatIsOvertakenChangesNothing(t *testing.T) {
	t.Parallel()
	for call, renew := range renewals {
		t.Run(call, func(t *testing.T) {
			t.Parallel()
			overtakenChangesNothing(t, renew)
		})
	}
}

func overtakenChangesNothing(t *testing.T, renew func(s *postgres, ctx context.Context, held []holding) ([]verdict, error)) {
	for name, c := range map[string]struct {
		overtake string
		again    verdict
	}{
		"by a renewal":  {"UPDATE leadership SET expires_at = clock_timestamp() + interval '1 hour'", renewed},
		"by a release":  {"UPDATE leadership SET expires_at = clock_timestamp()", lost},
		"by a takeover": {"UPDATE leadership SET owner = 'r2', epoch = 2, expires_at = clock_timestamp() + interval '2 hours'", lost},
		"by a deletion": {"DELETE FROM leadership", lost},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			db := pgtest.New(t)
			s := newPostgres(db, 20*time.Second)
			must(t, s.register(t.Context(), []string{"a"}, *newAbility([]string{"a"})))
			mustAcquire(t, s, "r1", claim{name: "a", seen: 0})
			_, err := db.Exec(t.Context(), stretchSQL)
			must(t, err)
			cfg := db.Config().Copy()
			cfg.ConnConfig.RuntimeParams["search_path"] = "stretch, pg_catalog, public"
			slow, err := pgxpool.NewWithConfig(t.Context(), cfg)
			must(t, err)
			defer slow.Close()

			gate, err := db.Acquire(t.Context())
			must(t, err)
			defer gate.Release()
			_, err = gate.Exec(t.Context(), "SELECT pg_advisory_lock(1)")
			must(t, err)
			var late []verdict
			var wg sync.WaitGroup
			wg.Go(func() {
				late, err = renew(newPostgres(slow, 20*time.Second), context.Background(), []holding{{"a", 1}})
			})
			await(t, "it is under way", func() bool {
				return query[int](t, db, "SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() AND wait_event = 'PgSleep'") == 1
			})
			_, e := db.Exec(t.Context(), c.overtake)
			must(t, e)
			row := "SELECT coalesce(min(l::text), 'none') FROM leadership l"
			before := query[string](t, db, row)
			until := query[time.Time](t, db, "SELECT coalesce(max(expires_at), now()) FROM leadership")
			_, e = gate.Exec(t.Context(), "SELECT pg_advisory_unlock(1)")
			must(t, e)
			wg.Wait()
			must(t, err)
			switch after := query[string](t, db, row); {
			case !slices.Contains(late, renewed):
				if after != before {
					t.Errorf("the row went from %s to %s", before, after)
				}
			case c.again != renewed:
				t.Error("it says that it renewed")
			case query[bool](t, db, "SELECT expires_at < $1 FROM leadership", until):
				t.Errorf("the row was shortened from %s to %s", before, after)
			}
			v, err := s.renew(t.Context(), "r1", hour, []holding{{"a", 1}})
			must(t, err)
			if v[0] != c.again {
				t.Errorf("asked again: %v, want %v", v[0], c.again)
			}
		})
	}
}

// P5: a renewal counts once it has committed. What the statement said before that, to a heartbeat
// whose COMMIT then failed or was never answered, moves no deadline.
func TestRenewalThatDoesNotCommitIsNone(t *testing.T) {
	t.Parallel()
	for call, renew := range renewals {
		t.Run(call, func(t *testing.T) {
			t.Parallel()
			db, s := led(t)
			_, err := db.Exec(t.Context(), `
				CREATE FUNCTION fail() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN RAISE 'at COMMIT'; END $$;
				CREATE CONSTRAINT TRIGGER fail AFTER UPDATE ON leadership DEFERRABLE INITIALLY DEFERRED
				   FOR EACH ROW EXECUTE FUNCTION fail()`)
			must(t, err)
			if v, err := renew(s, t.Context(), []holding{{"a", 1}}); err == nil || slices.Contains(v, renewed) {
				t.Errorf("verdicts %v, %v", v, err)
			}
		})
	}
}

// P1: a renewal after the database's clock was set back shortens the lease, which would else outlive its
// leader by as much.
func TestRenewalFollowsAClockThatWasSetBack(t *testing.T) {
	t.Parallel()
	for call, renew := range renewals {
		t.Run(call, func(t *testing.T) {
			t.Parallel()
			db, s := led(t)
			_, err := db.Exec(t.Context(), "UPDATE leadership SET expires_at = clock_timestamp() + interval '3 hours'")
			must(t, err)
			if v, err := renew(s, t.Context(), []holding{{"a", 1}}); err != nil || v[0] != renewed {
				t.Fatalf("verdicts %v, %v", v, err)
			}
			if left := query[time.Duration](t, db, "SELECT expires_at - clock_timestamp() FROM leadership"); left > hour {
				t.Errorf("it lasts for %v", left)
			}
		})
	}
}
