package lease

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus/testutil"

	"rota/internal/fence"
)

// P1, P9: replicas started together share the leases, and a released lease is taken at once.
func TestReplicasShareAndHandOver(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		ls := leasesNamed("a", "b", "c", "d")
		r1, r2 := w.start("r1", nil, ls...), w.start("r22", nil, ls...)
		pass(testRenew)
		if n, m := len(r1.leading()), len(r2.leading()); n != 2 || m != 2 {
			t.Fatalf("r1 leads %d and r2 %d, want 2 each", n, m)
		}
		before := time.Now()
		r1.end()
		synctest.Wait()
		if n := len(r2.leading()); n != 4 {
			t.Fatalf("r2 leads %d after r1 has drained, want 4", n)
		}
		if took := time.Since(before); took > 100*time.Millisecond {
			t.Errorf("the handover took %v", took)
		}
		r2.end()
	})
}

// P1: a dead replica's lease is taken just after its expiry, and never before.
// P5: whatever happens to the renewals, the context ends by the local deadline, which lies before
// the expiry, and a replica that lost its leadership competes again.
func TestTermEndsByItsDeadline(t *testing.T) {
	faults := map[string]fault{
		"errors":         {fail: true},
		"hangs":          {delay: time.Minute},
		"lost answers":   {mute: true},
		"late execution": {delay: 6 * time.Second},
	}
	for name, broken := range faults {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				w := newWorld(t)
				net := &script{}
				r1 := w.start("r1", net.next, leasesNamed("a")...)
				pass(2 * testRenew)
				term := expectLeader(t, w, "a", r1, 1)
				net.set("", broken, -1)
				pass(testRenew + testLease - testLease/15)
				if cause := context.Cause(term.Context()); !errors.Is(cause, ErrDeadline) && !errors.Is(cause, ErrLost) {
					t.Fatalf("the term did not end in time: cause %v", cause)
				}
				net.clear()
				pass(5 * testLease)
				if next := r1.leads("a"); next == nil || next.Token.Epoch < 2 {
					t.Fatalf("r1 does not lead again: %v, row %v", next, w.db.get("a"))
				}
				r1.end()
			})
		})
	}
}

// P5: the monotonic clock, and with it every timer, stands still while a machine is suspended.
func TestSuspendedReplicaEndsItsTermWhenItWakes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		r1 := w.start("r1", nil, leasesNamed("a")...)
		pass(testRenew + testRenew/2)
		term := expectLeader(t, w, "a", r1, 1)
		w.suspend(time.Minute)
		pass(testLease / 15 / 4)
		if cause := context.Cause(term.Context()); !errors.Is(cause, ErrDeadline) {
			t.Fatalf("a quarter of the margin after waking the cause is %v", cause)
		}
		pass(testLease)
		expectLeader(t, w, "a", r1, 2)
		r1.end()
	})
}

// A slow answer must not stretch a term: the deadline counts from the sending.
func TestDeadlineCountsFromSending(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		net := &script{}
		r1 := w.start("r1", net.next, leasesNamed("a")...)
		pass(2 * testRenew)
		term := expectLeader(t, w, "a", r1, 1)
		net.set("beat", fault{slow: 3 * time.Second}, -1)
		sent, began := r1.sinceBoot(), w.now()
		pass(testRenew + 3*time.Second) // a heartbeat is sent in here, and answered 3 s later
		due, _ := term.due()
		if row := w.db.get("a"); due-sent >= row.expires.Sub(began) {
			t.Errorf("due %v from now, and the lease runs out %v from now", due-sent, row.expires.Sub(began))
		}
		r1.end()
	})
}

// One slow call in between costs nothing: two retries fit into a lease.
func TestOneStalledHeartbeatLosesNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		net := &script{}
		r1 := w.start("r1", net.next, leasesNamed("a")...)
		pass(2 * testRenew)
		net.set("beat", fault{delay: 6 * time.Second}, 1)
		pass(4 * testRenew)
		expectLeader(t, w, "a", r1, 1)
		r1.end()
	})
}

// P2: an acquisition whose answer was lost is given back, and the work begins under a new epoch.
// P1, P2: a row stolen by another program is noticed within a heartbeat, left untouched, and won
// again when it runs out.
// P8: a locked row costs its own lease alone, and not before its deadline.
func TestLockedRowCostsOneLease(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		r1 := w.start("r1", nil, leasesNamed("a", "b")...)
		pass(testRenew)
		term, other := expectLeader(t, w, "a", r1, 1), expectLeader(t, w, "b", r1, 1)
		w.db.set("a", func(r *row) { r.held = true })
		pass(8 * time.Second)
		if term.Context().Err() != nil {
			t.Fatal("the term ended before its deadline")
		}
		w.db.set("a", func(r *row) { r.held = false })
		pass(time.Second)
		w.db.set("a", func(r *row) { r.held = true })
		pass(time.Minute)
		if cause := context.Cause(term.Context()); !errors.Is(cause, ErrDeadline) {
			t.Fatalf("cause %v", cause)
		}
		if other.Context().Err() != nil {
			t.Error("the other lease's term ended too")
		}
		w.db.set("a", func(r *row) { r.held = false })
		pass(10 * time.Second)
		if r1.leads("a") == nil {
			t.Error("a is not led again after the row was let go")
		}
		r1.end()
	})
}

// P6: renewed until the lead has returned, and only then released.
func TestReleasedOnlyAfterTheLeadReturned(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		r1 := w.start("r1", nil, leasesNamed("a")...)
		r1.linger = 40 * time.Second
		pass(testRenew)
		term := expectLeader(t, w, "a", r1, 1)
		r2 := w.start("r22", nil, leasesNamed("a")...)
		pass(testRenew)
		r1.stop()
		pass(39 * time.Second)
		expectLeader(t, w, "a", r1, 1)
		if term.Context().Err() != nil {
			t.Fatal("the term ended while its lead was returning")
		}
		<-r1.done
		pass(100 * time.Millisecond)
		expectLeader(t, w, "a", r2, 2)
		r2.end()
	})
}

// P6: a lead that never returns keeps its lease from being released; ended, it runs out, and the
// replica does not compete for it again.
func TestStuckLeadIsLeftToExpire(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		r1 := w.start("r1", nil, leasesNamed("a", "b")...)
		r1.mu.Lock()
		r1.stuck = true
		r1.mu.Unlock()
		pass(testRenew)
		term := expectLeader(t, w, "a", r1, 1)
		term.End(errors.New("abandoned"))
		expiry := w.db.get("a").expires
		pass(expiry.Sub(w.now()) - time.Millisecond)
		if r := w.db.get("a"); !r.expires.Equal(expiry) {
			t.Fatalf("renewed or released: %v, want expiry %v", r, expiry)
		}
		pass(3 * testLease)
		if r := w.db.get("a"); r.epoch != 1 {
			t.Fatalf("it was acquired again: %v", r)
		}
		if r1.leads("b") == nil {
			t.Error("the other lease was lost")
		}
		close(r1.unstick)
		r1.end()
	})
}

// P10: the gauge is 1 exactly while the term's context lives.
func TestGaugeFollowsTheContext(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		r1 := w.start("r1", nil, leasesNamed("a")...)
		expect := func(gauge int, when string) {
			t.Helper()
			if err := testutil.CollectAndCompare(r1.metrics, strings.NewReader(fmt.Sprintf(`
# HELP rota_is_leader 1 exactly while this replica believes that it leads the lease. Summed over all replicas it must be 1.
# TYPE rota_is_leader gauge
rota_is_leader{job_name="a",shard=""} %d
`, gauge)), "rota_is_leader"); err != nil {
				t.Fatal(when, err)
			}
		}
		synctest.Wait()
		expect(0, "before the first term")
		pass(testRenew)
		term := expectLeader(t, w, "a", r1, 1)
		expect(1, "during a term")
		term.End(fence.ErrFenced)
		expect(0, "after the term's end")
		r1.end()
	})
}

// Lost leadership is normal: the replica competes again, with a higher epoch each time. A restored
// row is overtaken by the epoch that was seen on protected rows.
// A row that somebody deletes is registered again, and its epochs go on above those of its history.
func TestDeletedRowIsRegisteredAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		r1 := w.start("r1", nil, leasesNamed("a", "b")...)
		pass(testRenew)
		term := expectLeader(t, w, "a", r1, 1)
		w.db.mu.Lock()
		delete(w.db.rows, "a")
		w.db.mu.Unlock()
		pass(testRenew)
		if cause := context.Cause(term.Context()); !errors.Is(cause, ErrLost) {
			t.Fatalf("cause %v", cause)
		}
		pass(2 * testRenew)
		expectLeader(t, w, "a", r1, 2)
		r1.end()
	})
}

// A busy lease whose retry falls into another acquisition is tried again all the same.
// P9: a shard that was busy when another count came into force is free to be claimed when its own is
// back. Else its replica would never lead it again, and the others would give theirs up for it for ever.
// What failed in a takeover, the look at the expiry or the acquisition, is tried again in a moment: the
// lease does not wait for the next heartbeat.
// P9: a lease that one leaves to another, here to one that cannot take it, is anybody's once it has been
// free for a heartbeat, and is looked for then, whenever the next heartbeat would come.
// Without announcements a release is found by polling, within a heartbeat.
func TestWrongTimingIsRefused(t *testing.T) {
	for _, c := range []struct{ lease, renew time.Duration }{
		{0, 0},
		{-time.Second, time.Second},
		{15 * time.Second, 0},
		{15 * time.Second, -time.Second},
		{15 * time.Second, 20 * time.Second},
		{14 * time.Second, 5 * time.Second},
		{time.Millisecond, time.Second},
	} {
		if err := (Config{Owner: "x", Lease: c.lease, Renew: c.renew}).Validate(); err == nil {
			t.Errorf("lease %v, renewal %v: accepted", c.lease, c.renew)
		}
	}
}
