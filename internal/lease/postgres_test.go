package lease

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/prometheus/client_golang/prometheus"

	"rota/internal/pgtest"
)

// A live replica is an elector on a real database, at lease 1.5 s and renewal 0.5 s.
type live struct {
	*Elector
	stop  context.CancelFunc
	done  chan struct{}
	terms chan *Term
}

func startLive(t *testing.T, db *pgxpool.Pool, name string, leases ...Lease) *live {
	t.Helper()
	owner := NewOwner(name)
	pool, err := NewPool(t.Context(), db.Config(), owner)
	if err != nil {
		t.Fatal(err)
	}
	e, err := New(pool, Config{
		Owner: owner, Lease: 1500 * time.Millisecond, Renew: 500 * time.Millisecond, Metrics: prometheus.NewRegistry(),
	})
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	r := &live{Elector: e, stop: cancel, done: make(chan struct{}), terms: make(chan *Term, 100_000)}
	go func() {
		defer close(r.done)
		defer pool.Close()
		if err := e.Run(ctx, leases, func(term *Term) {
			term.Ready()
			r.terms <- term
			select {
			case <-term.Asked():
			case <-term.Yielding():
			case <-term.Context().Done():
			}
		}); err != nil {
			t.Error(err)
		}
	}()
	t.Cleanup(func() { cancel(); <-r.done })
	return r
}

func (r *live) next(t *testing.T) *Term {
	t.Helper()
	select {
	case term := <-r.terms:
		return term
	case <-time.After(20 * time.Second):
		t.Fatal("no term begun within 20 s")
		return nil
	}
}

func query[T any](t *testing.T, db *pgxpool.Pool, sql string, args ...any) (v T) {
	t.Helper()
	if err := db.QueryRow(t.Context(), sql, args...).Scan(&v); err != nil {
		t.Fatalf("%s: %v", sql, err)
	}
	return v
}

// P1, P2: on the real database a drained replica's lease is handed over at once, with the next
// epoch, and the history says why.
func TestHandoverOnPostgres(t *testing.T) {
	t.Parallel()
	db := pgtest.New(t)
	r1 := startLive(t, db, "r1", Lease{Name: "a", Job: "a"})
	first := r1.next(t)
	r2 := startLive(t, db, "r2", Lease{Name: "a", Job: "a"})
	await(t, "r2 is a member and hears announcements", func() bool {
		return query[int](t, db, "SELECT count(*) FROM replicas WHERE hints") == 2
	})
	r1.stop()
	<-r1.done
	second := r2.next(t)
	if second.Token.Epoch != first.Token.Epoch+1 {
		t.Errorf("epoch %d after %d", second.Token.Epoch, first.Token.Epoch)
	}
	gap := query[time.Duration](t, db, `SELECT b.acquired_at - a.ended_at FROM terms a JOIN terms b ON b.epoch = a.epoch + 1
		WHERE a.job_name = 'a' AND a.epoch = $1 AND a.end_reason = 'drain'`, first.Token.Epoch)
	if gap < 0 || gap > time.Second {
		t.Errorf("handover in %v", gap)
	}
	t.Logf("handover in %v", gap)
	if n := query[int](t, db, "SELECT count(*) FROM replicas"); n != 1 {
		t.Errorf("%d members after one has left", n)
	}
}

func await(t *testing.T, what string, ok func() bool) {
	t.Helper()
	for deadline := time.Now().Add(20 * time.Second); !ok(); {
		if time.Now().After(deadline) {
			t.Fatalf("not within 20 s: %s", what)
		}
		time.Sleep(5 * time.Millisecond) // between two looks at something observable
	}
}

// The article's own statements, word for word, by another program: they win a free lease, keep a
// replica from it, and lose it again when they stop.
func TestArticlesStatementsCompeteFairly(t *testing.T) {
	t.Parallel()
	db := pgtest.New(t)
	const upsert = `INSERT INTO leadership (job_name, owner, expires_at, epoch)
VALUES ('bridge_health', 'psql', now() + interval '15 seconds', 1)
ON CONFLICT (job_name) DO UPDATE
   SET owner      = 'psql',
       expires_at = now() + interval '15 seconds',
       epoch      = leadership.epoch
                  + CASE WHEN leadership.owner = 'psql'
                          AND leadership.expires_at >= now() THEN 0 ELSE 1 END
 WHERE leadership.owner = 'psql'
    OR leadership.expires_at < now()
RETURNING epoch`
	const release = `UPDATE leadership
   SET expires_at = now() - interval '1 second'
 WHERE job_name = 'bridge_health' AND owner = 'psql'`

	if e := query[int64](t, db, upsert); e != 1 {
		t.Fatalf("first term at epoch %d", e)
	}
	if e := query[int64](t, db, upsert); e != 1 {
		t.Fatalf("renewed at epoch %d", e)
	}
	r := startLive(t, db, "r1", Lease{Name: "bridge_health", Job: "bridge_health"})
	await(t, "r1 is a member", func() bool { return query[int](t, db, "SELECT count(*) FROM replicas") == 1 })
	if _, err := db.Exec(t.Context(), release); err != nil {
		t.Fatal(err)
	}
	term := r.next(t)
	if term.Token.Epoch != 2 {
		t.Fatalf("r1 took over at epoch %d", term.Token.Epoch)
	}
	var none []int64
	if rows, err := db.Query(t.Context(), upsert); err != nil {
		t.Fatal(err)
	} else {
		for rows.Next() {
			none = append(none, 1)
		}
	}
	if len(none) != 0 {
		t.Fatal("the article's statement took a lease that is held")
	}
	if reason := query[string](t, db, "SELECT end_reason FROM terms WHERE job_name = 'bridge_health' AND epoch = 1"); reason != "released" {
		t.Errorf("end_reason %q", reason)
	}
}

// A heartbeat is as many statements for 10,000 leases as for 10, in a constant number of
// transactions, and nothing announces a renewal.
func TestStatementsDoNotGrowWithLeases(t *testing.T) {
	t.Parallel()
	counts := map[int]int64{}
	for _, n := range []int{10, 10_000} {
		db := pgtest.New(t)
		if _, err := db.Exec(t.Context(), "CREATE EXTENSION IF NOT EXISTS pg_stat_statements"); err != nil {
			t.Fatalf("pg_stat_statements: %v", err)
		}
		s := newPostgres(db, time.Minute)
		names, claims, held := many(n)
		must(t, s.register(t.Context(), names, *newAbility(names)))
		if _, err := s.acquire(t.Context(), "r1", hour, claims, false); err != nil {
			t.Fatal(err)
		}
		calls := func() int64 {
			return query[int64](t, db, `SELECT coalesce(sum(calls), 0)::bigint FROM pg_stat_statements
				WHERE dbid = (SELECT oid FROM pg_database WHERE datname = current_database()) AND query NOT LIKE '%pg_stat_statements%'`)
		}
		before := calls()
		if v, _, err := s.beat(t.Context(), self("r1"), held); err != nil || slices.Contains(v, lost) || slices.Contains(v, locked) {
			t.Fatalf("%d leases: %v, %v", n, v, err)
		}
		counts[n] = calls() - before
	}
	t.Logf("statements in a heartbeat, by the number of leases: %v", counts)
	if counts[10] != counts[10_000] || counts[10] > 5 {
		t.Errorf("statements in a heartbeat: %v, want the same and at most 5", counts)
	}
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func many(n int) (names []string, claims []claim, held []holding) {
	for i := range n {
		name := fmt.Sprintf("job%05d", i)
		names, claims, held = append(names, name), append(claims, claim{name: name, seen: 0}), append(held, holding{name, 1})
	}
	return names, claims, held
}

// One part's failure does not undo the other: the renewals stay when the look fails, and the
// verdicts say so.
func TestRenewalsOutliveAFailedLook(t *testing.T) {
	t.Parallel()
	db := pgtest.New(t)
	s := newPostgres(db, time.Second)
	must(t, s.register(t.Context(), []string{"a"}, *newAbility([]string{"a"})))
	mustAcquire(t, s, "r1", claim{name: "a", seen: 0})
	if _, err := db.Exec(t.Context(), "DROP TABLE replicas"); err != nil {
		t.Fatal(err)
	}
	before := query[time.Time](t, db, "SELECT expires_at FROM leadership")
	v, _, err := s.beat(t.Context(), self("r1"), []holding{{"a", 1}})
	if err == nil {
		t.Fatal("no error without the table of members")
	}
	if len(v) != 1 || v[0] != renewed {
		t.Fatalf("verdicts %v", v)
	}
	if after := query[time.Time](t, db, "SELECT expires_at FROM leadership"); !after.After(before) {
		t.Error("the renewal was undone")
	}
}

// A notification that cannot be sent is no reason to keep a lease. 10,000 names are too many for a
// payload.
func TestReleaseCommitsWithoutItsAnnouncement(t *testing.T) {
	t.Parallel()
	db := pgtest.New(t)
	s := newPostgres(db, time.Second)
	names, claims, held := many(3000)
	must(t, s.register(t.Context(), names, *newAbility(names)))
	if _, err := s.acquire(t.Context(), "r1", hour, claims, false); err != nil {
		t.Fatal(err)
	}
	v, err := s.release(t.Context(), "r1", "drain", held[3:], make([]string, len(held[3:])))
	must(t, err)
	if slices.Contains(v, locked) || slices.Contains(v, lost) {
		t.Fatal("not all were released")
	}
	// A pg_notify that stands before the server's own in the search path.
	if _, err := db.Exec(t.Context(), `CREATE FUNCTION pg_notify(text, text) RETURNS void LANGUAGE plpgsql AS
		$$ BEGIN RAISE 'no announcements today'; END $$`); err != nil {
		t.Fatal(err)
	}
	cfg := db.Config()
	cfg.ConnConfig.RuntimeParams["search_path"] = "public, pg_catalog"
	cannot, err := pgxpool.NewWithConfig(t.Context(), cfg)
	must(t, err)
	defer cannot.Close()
	s = newPostgres(cannot, time.Second)
	if _, err := cannot.Exec(t.Context(), "SELECT pg_notify('a', 'b')"); err == nil {
		t.Fatal("announcements do not fail")
	}
	for _, some := range [][]holding{held[:1], held[1:3]} {
		v, err = s.release(t.Context(), "r1", "drain", some, make([]string, len(some)))
		must(t, err)
		if slices.Contains(v, locked) || slices.Contains(v, lost) {
			t.Fatalf("verdicts %v", v)
		}
	}
	if n := query[int](t, db, "SELECT count(*) FROM terms WHERE end_reason = 'drain'"); n != 3000 {
		t.Errorf("%d terms ended by drain in the history", n)
	}
}

// P3, P8: a fenced write in flight holds up the acquisition of its own lease and of no other.
func TestAcquisitionSkipsALeaseThatAFencedWriteHolds(t *testing.T) {
	t.Parallel()
	db := pgtest.New(t)
	s := newPostgres(db, 10*time.Second)
	must(t, s.register(t.Context(), []string{"a", "b"}, *newAbility([]string{"a", "b"})))
	mustAcquire(t, s, "r0", claim{name: "a"}, claim{name: "b"})
	tx, err := db.Begin(t.Context())
	must(t, err)
	_, err = tx.Exec(t.Context(), "SELECT rota_guard('a', 'r0', 1)")
	must(t, err)
	_, err = db.Exec(t.Context(), "UPDATE leadership SET expires_at = clock_timestamp()")
	must(t, err)
	if g := mustAcquire(t, s, "r1", claim{name: "a"}, claim{name: "b"}); g[0].outcome != busy || g[1].outcome != won {
		t.Errorf("got %+v, want busy and won", g)
	}
	var wg sync.WaitGroup
	var g []grant
	wg.Go(func() { g, err = s.acquire(context.Background(), "r1", hour, []claim{{name: "a"}}, true) })
	await(t, "it waits", func() bool {
		return query[int](t, db, "SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() AND wait_event_type = 'Lock'") == 1
	})
	must(t, tx.Commit(t.Context()))
	wg.Wait()
	must(t, err)
	if g[0].outcome != won {
		t.Errorf("after the write: got %+v, want won", g[0])
	}
}

// A blocking acquire waits for the row, and still looks at what is there after the wait.
func TestBlockingAcquireLooksAfterItsWait(t *testing.T) {
	t.Parallel()
	db := pgtest.New(t)
	s := newPostgres(db, 10*time.Second)
	must(t, s.register(t.Context(), []string{"a", "b"}, *newAbility([]string{"a", "b"})))
	for name, between := range map[string]string{
		"a": "UPDATE leadership SET owner = 'other', epoch = 9, expires_at = clock_timestamp() + interval '1 hour' WHERE job_name = 'a'",
		"b": "SELECT 1",
	} {
		tx, err := db.Begin(t.Context())
		must(t, err)
		_, err = tx.Exec(t.Context(), "SELECT 1 FROM leadership WHERE job_name = $1 FOR UPDATE", name)
		must(t, err)
		var wg sync.WaitGroup
		var g []grant
		wg.Go(func() {
			ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
			defer cancel()
			g, err = s.acquire(ctx, "r1", hour, []claim{{name: name}}, true)
		})
		await(t, "it waits", func() bool {
			return query[int](t, db, "SELECT count(*) FROM pg_locks WHERE NOT granted AND pid IN (SELECT pid FROM pg_stat_activity WHERE datname = current_database())") == 1
		})
		_, e := tx.Exec(t.Context(), between)
		must(t, e)
		must(t, tx.Commit(t.Context()))
		wg.Wait()
		must(t, err)
		// What was free when it began to wait may be called busy, which is then looked at again.
		if got, want := g[0].outcome == won, name == "b"; got != want {
			t.Errorf("%s: won %v, want %v", name, got, want)
		}
	}
}

// What was sent does not execute long after its caller has given up: the server has the same bound.
func TestServerGivesUpWithItsCaller(t *testing.T) {
	t.Parallel()
	db := pgtest.New(t)
	s := newPostgres(db, time.Second)
	must(t, s.register(t.Context(), []string{"a"}, *newAbility([]string{"a"})))
	letGo := holdRow(t, db, "a")
	ctx, cancel := context.WithTimeout(t.Context(), 300*time.Millisecond)
	defer cancel()
	if _, err := s.acquire(ctx, "r1", hour, []claim{{name: "a"}}, true); err == nil {
		t.Fatal("acquired a locked row")
	}
	await(t, "nobody waits for the row", func() bool {
		return query[int](t, db, "SELECT count(*) FROM pg_locks WHERE NOT granted AND pid IN (SELECT pid FROM pg_stat_activity WHERE datname = current_database())") == 0
	})
	letGo()
	if r := query[int64](t, db, "SELECT epoch FROM leadership WHERE job_name = 'a'"); r != 0 {
		t.Errorf("acquired after all, epoch %d", r)
	}
	if n := query[int](t, db, "SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() AND state LIKE 'idle in transaction%'"); n != 0 {
		t.Errorf("%d sessions left in a transaction", n)
	}
}
