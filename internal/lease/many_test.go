package lease

import (
	"context"
	"fmt"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"rota/internal/pgtest"
)

// P9: leases by the thousand are acquired and released some at a time, one after the other without a
// pause, so that no statement outlasts its caller; and a standby that hears of a release while it is
// acquiring what an earlier one has left does not wait for its next heartbeat.
func TestManyLeasesAreHandedOverSomeAtATime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		const n = mostAtOnce + 500
		var leases []Lease
		for i := range n {
			leases = append(leases, Lease{Name: fmt.Sprintf("job-%05d", i), Job: fmt.Sprintf("job-%05d", i)})
		}
		var mu sync.Mutex
		calls := map[string]int{}
		slow := func(call string) fault {
			mu.Lock()
			defer mu.Unlock()
			calls[call]++
			if call == "acquire" || call == "release" {
				return fault{delay: 100 * time.Millisecond}
			}
			return fault{delay: time.Millisecond}
		}
		first := w.start("r1", slow, leases...)
		pass(2 * testRenew)
		if led := len(first.leading()); led != n || calls["acquire"] != 2 {
			t.Fatalf("%d of %d leases are led after %d acquisitions", led, n, calls["acquire"])
		}
		second := w.start("r2", slow, leases...)
		pass(testRenew / 10)
		first.stop()
		pass(testRenew / 2)
		if led := len(second.leading()); led != n || calls["release"] > 3 {
			t.Errorf("%d of %d leases are led after %d releases", led, n, calls["release"])
		}
		second.end()
		first.end()
	})
}

// P9: what the server could not do in the time that a call has is asked of it in smaller parts, and
// in larger ones again once it is quick.
func TestWhatTookTooLongIsDoneInSmallerParts(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		var leases []Lease
		for i := range mostAtOnce {
			leases = append(leases, Lease{Name: fmt.Sprintf("job-%05d", i), Job: fmt.Sprintf("job-%05d", i)})
		}
		var mu sync.Mutex
		acquired := 0
		busy := func(call string) fault {
			mu.Lock()
			defer mu.Unlock()
			if call != "acquire" {
				return fault{delay: time.Millisecond}
			}
			if acquired++; acquired <= 2 {
				return fault{delay: time.Hour}
			}
			return fault{delay: testRenew / 20}
		}
		r := w.start("r1", busy, leases...)
		pass(5 * testRenew)
		// 2000 and 1000 in vain, then 500, 1000, and the last 500.
		if led := len(r.leading()); led != mostAtOnce || acquired != 5 {
			t.Errorf("%d of %d leases are led after %d acquisitions", led, mostAtOnce, acquired)
		}
		r.end()
	})
}

// P9: where very many leases stay free for longer than a heartbeat, since acquiring them takes that
// long, no member takes what the others are at work on.
func TestSlowAcquisitionOfManySpreadsThem(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		const n = 4 * mostAtOnce
		var leases []Lease
		for i := range n {
			leases = append(leases, Lease{Name: fmt.Sprintf("job-%05d", i), Job: fmt.Sprintf("job-%05d", i)})
		}
		paced := func(acquisition time.Duration) func(string) fault {
			return func(call string) fault {
				if call == "acquire" {
					return fault{delay: acquisition}
				}
				return fault{delay: time.Millisecond}
			}
		}
		quick := w.start("r1", paced(testRenew/10), leases...)
		slow := w.start("r2", paced(testRenew*7/10), leases...)
		pass(5 * testRenew)
		a, b := len(quick.leading()), len(slow.leading())
		if a+b != n || a > n*6/10 {
			t.Errorf("the quick one leads %d and the slow one %d of %d", a, b, n)
		}
		quick.end()
		slow.end()
	})
}

// A registration that is cut off stays as far as it has come, and the next one goes on: with 100,000
// leases none might ever come to its end.
func TestRegistrationOfManyGoesOnWhereItWasCutOff(t *testing.T) {
	t.Parallel()
	db := pgtest.New(t)
	s := newPostgres(db, time.Minute)
	names, _, _ := many(2*mostAtOnce + 1)
	tx, err := db.Begin(t.Context())
	must(t, err)
	_, err = tx.Exec(t.Context(), registerSQL, names[mostAtOnce:mostAtOnce+1])
	must(t, err)
	// Which parts come first is left to chance: some tries come upon the row that is held at once.
	registered := 0
	for range 100 {
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		err := s.register(ctx, names, *newAbility(names))
		cancel()
		if err == nil {
			t.Fatal("it did not wait for another's row")
		}
		n := query[int](t, db, "SELECT count(*) FROM leadership")
		if n < registered {
			t.Fatalf("%d leases are registered, and %d were", n, registered)
		}
		if registered = n; n == mostAtOnce+1 {
			break
		}
	}
	if registered != mostAtOnce+1 {
		t.Errorf("%d leases are registered, want all but those of the part that waits", registered)
	}
	must(t, tx.Rollback(t.Context()))
	must(t, s.register(t.Context(), names, *newAbility(names)))
	if n := query[int](t, db, "SELECT count(*) FROM leadership"); n != len(names) {
		t.Errorf("%d leases are registered, want %d", n, len(names))
	}
}
