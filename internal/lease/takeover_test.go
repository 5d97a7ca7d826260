package lease

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus/testutil"
)

func TestTakeoverJustAfterExpiry(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		net := &script{}
		r1 := w.start("r1", net.next, leasesNamed("a")...)
		pass(testRenew)
		r2 := w.start("r22", nil, leasesNamed("a")...)
		pass(testRenew)
		expectLeader(t, w, "a", r1, 1)
		net.set("", fault{fail: true}, -1)
		expiry := w.db.get("a").expires
		pass(expiry.Sub(w.now()) - time.Millisecond)
		if r := w.db.get("a"); r.owner != "r1" {
			t.Fatalf("taken before expiry: %v", r)
		}
		pass(20 * time.Millisecond)
		expectLeader(t, w, "a", r2, 2)
		r2.end()
		r1.end()
	})
}

func TestLostAcquisitionIsNotAdopted(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		net := &script{}
		net.set("acquire", fault{mute: true}, 1)
		r1 := w.start("r1", net.next, leasesNamed("a")...)
		pass(testRenew)
		if r := w.db.get("a"); r.epoch != 1 || len(r1.leading()) != 0 {
			t.Fatalf("row %v, leading %v", r, r1.leading())
		}
		pass(2 * testRenew)
		expectLeader(t, w, "a", r1, 2)
		r1.end()
	})
}

func TestStolenLeaseIsLostAndWonAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		r1 := w.start("r1", nil, leasesNamed("a", "b")...)
		pass(testRenew)
		term, other := expectLeader(t, w, "a", r1, 1), expectLeader(t, w, "b", r1, 1)
		w.db.set("a", func(r *row) { r.owner, r.epoch, r.expires = "stranger", 2, w.now().Add(testLease) })
		stolen := w.db.get("a")
		pass(testRenew)
		if cause := context.Cause(term.Context()); !errors.Is(cause, ErrLost) {
			t.Fatalf("cause %v", cause)
		}
		if now := w.db.get("a"); now != stolen {
			t.Fatalf("the stranger's row was touched: %v, was %v", now, stolen)
		}
		pass(testLease)
		expectLeader(t, w, "a", r1, 3)
		if other.Context().Err() != nil {
			t.Error("the other lease's term ended too")
		}
		r1.end()
	})
}

func TestSeenEpochIsOvertaken(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		r1 := w.start("r1", nil, leasesNamed("a")...)
		pass(testRenew)
		term := expectLeader(t, w, "a", r1, 1)
		r1.Seen("a", 70)
		term.End(errors.New("the protected rows know a higher epoch"))
		pass(2 * testRenew)
		expectLeader(t, w, "a", r1, 71)
		if n := testutil.ToFloat64(r1.metrics.resets); n != 1 {
			t.Errorf("%v resets counted, want 1", n)
		}
		r1.GiveUp("a", Reason("step down"))
		pass(2 * testRenew)
		expectLeader(t, w, "a", r1, 72)
		r1.end()
	})
}

func TestBusyLeaseIsRetriedAfterAnotherAcquisition(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		e, err := newElector(newMemory(time.Now), Config{Owner: "r1", Lease: testLease, Renew: testRenew})
		if err != nil {
			t.Fatal(err)
		}
		a := &seat{lease: Lease{Name: "a", Job: "a"}}
		el := newElection(e, map[string]*seat{"a": a}, func(*Term) {})
		el.setBusy(a, 1)
		el.retryTimer = stopped()
		el.claiming = true
		el.retry()
		select {
		case <-el.retryTimer.C:
		case <-time.After(time.Second):
			t.Error("nothing will try it again")
		}
	})
}

func TestBusyShardIsForgottenWhileAnotherCountIsInForce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		e, err := newElector(newMemory(time.Now), Config{Owner: "r1", Lease: testLease, Renew: testRenew})
		if err != nil {
			t.Fatal(err)
		}
		seats := map[string]*seat{}
		for _, l := range Leases("s", 2, false) {
			seats[l.Name] = &seat{lease: l}
		}
		el := newElection(e, seats, func(*Term) {})
		el.retryTimer = stopped()
		for _, s := range seats {
			el.setBusy(s, 8)
		}
		el.crews["s"].inForce = 3
		el.retry()
		el.crews["s"].inForce = 2
		for name, s := range seats {
			if el.give(s); !s.given {
				t.Errorf("%s will not be claimed: busy %d", name, s.busy)
			}
		}
	})
}

func TestFailedTakeoverIsTriedAgainAtOnce(t *testing.T) {
	for i := range 16 { // replicas whose heartbeats have different moments
		what := []string{"look", "acquire"}[i%2]
		t.Run(fmt.Sprint(what, i/2), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				w := newWorld(t)
				var dead, failing atomic.Bool
				r1 := w.start("r1", func(string) fault { return fault{fail: dead.Load()} }, leasesNamed("a")...)
				pass(testRenew)
				r2 := w.start(strings.Repeat("r", i+3), func(call string) fault { return fault{fail: call == what && failing.Swap(false)} }, leasesNamed("a")...)
				pass(3 * testRenew)
				dead.Store(true)
				pass(testLease / 2) // what was under way has come through
				failing.Store(true)
				pass(w.db.get("a").expires.Sub(w.now()) + r2.cfg.pause()*5/4 + 10*time.Millisecond)
				expectLeader(t, w, "a", r2, 2)
				if failing.Load() {
					t.Errorf("no %s failed", what)
				}
				r1.end()
				r2.end()
			})
		})
	}
}

func TestWhatIsLeftToAnotherIsTakenSoon(t *testing.T) {
	for i := range 8 { // replicas whose heartbeats have different moments
		synctest.Test(t, func(t *testing.T) {
			w := newWorld(t)
			var dead atomic.Bool
			r1 := w.start("r1", func(string) fault { return fault{fail: dead.Load()} }, leasesNamed("a")...)
			pass(2 * testRenew)
			unable := w.start("r22", func(call string) fault { return fault{fail: call == "acquire"} }, leasesNamed("a")...)
			able := w.start(strings.Repeat("r", i+4), nil, leasesNamed("a")...)
			pass(3 * testRenew)
			dead.Store(true)
			pass(testLease / 2) // what was under way has come through
			pass(w.db.get("a").expires.Sub(w.now()) + testRenew + able.cfg.pause()*5/4 + 10*time.Millisecond)
			expectLeader(t, w, "a", able, 2)
			for _, r := range []*replica{r1, unable, able} {
				r.end()
			}
		})
	}
}

func TestWithoutAnnouncementsPollingIsEnough(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		w.db.deaf = true
		r1 := w.start("r1", nil, leasesNamed("a")...)
		pass(testRenew)
		r2 := w.start("r22", nil, leasesNamed("a")...)
		pass(testRenew)
		r1.end()
		pass(2*testRenew + testRenew/2)
		expectLeader(t, w, "a", r2, 2)
		r2.end()
	})
}
