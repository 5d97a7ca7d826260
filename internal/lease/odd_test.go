package lease

import (
	"fmt"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/jackc/pgx/v5/pgconn"

	"rota/internal/pgtest"
)

// P1, P8: a program may write times that cannot be reckoned with, into leases and memberships. No look
// fails for that, and what has run out by such a time is taken, alone, among others, and as a shard.
func TestTimesThatNobodyCanReckonWithHinderNobody(t *testing.T) {
	t.Parallel()
	for _, never := range []string{"infinity", "294276-01-01"} {
		for _, past := range []string{"-infinity", "4713-01-01 BC", "1900-01-01"} {
			t.Run(never+" "+past, func(t *testing.T) {
				t.Parallel()
				db := pgtest.New(t)
				s := newPostgres(db, 10*time.Second)
				exec := func(sql string, args ...any) {
					t.Helper()
					if _, err := db.Exec(t.Context(), sql, args...); err != nil {
						t.Fatal(err)
					}
				}
				names := append([]string{"alone", "held", "one", "two"}, namesOf("cut", 2)...)
				must(t, s.register(t.Context(), names, *newAbility(names)))
				whole := []claim{{name: "alone"}, {name: "held"}, {name: "one"}, {name: "two"}}
				mustAcquire(t, s, "r1", append(whole, claimsOf(namesOf("cut", 2)...)...)...)
				if _, _, err := s.beat(t.Context(), self("r3"), nil); err != nil {
					t.Fatal(err)
				}
				exec(`UPDATE replicas SET expires_at = $1`, never)
				exec(`UPDATE leadership SET expires_at = $1 WHERE job_name = 'held'`, never)
				exec(`UPDATE leadership SET expires_at = $1 WHERE job_name <> 'held' AND owner <> ''`, past)

				l, err := s.look(t.Context(), "r2")
				if err != nil {
					t.Fatal(err)
				}
				if len(l.owners) != 1 || l.owners[0].leases != 1 || l.owners[0].earliest.After(l.now.Add(25*time.Hour)) || len(l.peers) != 1 {
					t.Errorf("the look says %+v", l)
				}
				for _, claims := range [][]claim{whole[:1], whole[2:], claimsOf(namesOf("cut", 2)...)} {
					grants, err := s.acquire(t.Context(), "r2", hour, claims, false)
					if err != nil {
						t.Fatal(err)
					}
					for i, g := range grants {
						if g.outcome != won || g.idle < time.Hour {
							t.Errorf("%s: %+v", claims[i].name, g)
						}
					}
				}
			})
		}
	}
}

// What only a hand can mend is said once by each replica, asked for no more often than heartbeats come,
// and taken soon after it is mended.
func TestAbsurdEpochsAreSaidOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w, log := newLoggedWorld(t)
		must(t, w.db.register(t.Context(), []string{"spoilt"}, *newAbility([]string{"spoilt"})))
		w.db.set("spoilt", func(r *row) { r.owner, r.epoch, r.expires = "x", absurdEpoch, w.now() })
		var asked atomic.Int64
		count := func(call string) fault {
			if call == "acquire" {
				asked.Add(1)
			}
			return fault{}
		}
		const n = 3
		var all []*replica
		for i := range n {
			all = append(all, w.start(strings.Repeat("r", i+1), count, leasesNamed("a", "b", "c", "spoilt")...))
		}
		pass(4 * testRenew)
		asked.Store(0)
		const beats = 50
		pass(beats * testRenew)
		if got := log.count("epochs near the end"); got < 1 || got > n {
			t.Errorf("it is said %d times by %d replicas", got, n)
		}
		if got := asked.Load(); got < beats/2 || got > n*(beats+2) {
			t.Errorf("it is asked for %d times in %d heartbeats of %d replicas", got, beats, n)
		}
		w.db.set("spoilt", func(r *row) { r.epoch = 4; w.db.terms["spoilt"] = 4 })
		pass(3 * testRenew)
		if r := w.db.get("spoilt"); r.epoch != 5 || !r.expires.After(w.now()) {
			t.Errorf("after it is mended: %+v", r)
		}
		for _, r := range all {
			r.end()
		}
	})
}

// A takeover that fails again and again while heartbeats come through is told, once, and so is its end.
func TestFailingAcquisitionsAreSaidOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w, log := newLoggedWorld(t)
		var failing atomic.Bool
		failing.Store(true)
		r := w.start("r", func(call string) fault { return fault{fail: call == "acquire" && failing.Load()} }, leasesNamed("a", "b")...)
		pass(10 * testRenew)
		said := fmt.Sprint(log.count("acquisition failed"), log.count("acquisition came through again"))
		failing.Store(false)
		pass(testRenew)
		if said += fmt.Sprint(" ", log.count("acquisition failed"), log.count("acquisition came through again")); said != "1 0 1 1" {
			t.Errorf("lines of failures and ends, before and after the end: %s", said)
		}
		expectLeader(t, w, "a", r, 1)
		r.end()
	})
}

// While heartbeats fail each kind of failure is told once, however often they change places.
func TestEachKindOfFailureOfHeartbeatsIsSaidOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w, log := newLoggedWorld(t)
		var failing atomic.Bool
		calls := 0
		readOnly := &pgconn.PgError{Code: "25006", Message: "read-only transaction"}
		r := w.start("r", func(call string) fault {
			if call != "beat" || !failing.Load() {
				return fault{}
			}
			calls++
			return []fault{{fail: true}, {fail: true, how: readOnly}}[calls%2]
		}, leasesNamed("a")...)
		for range 2 {
			pass(2 * testRenew)
			failing.Store(true)
			pass(10 * testRenew)
			failing.Store(false)
		}
		pass(2 * testRenew)
		for text, want := range map[string]int{"heartbeat failed": 4, "read-only transaction": 2, "came through again": 2} {
			if got := log.count(text); got != want {
				t.Errorf("%d lines say %q, want %d:\n%s", got, text, want, log.text.String())
			}
		}
		r.end()
	})
}
