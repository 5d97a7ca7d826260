package lease

import (
	"context"
	"errors"
	"log/slog"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"
)

// P6, P9: a drained replica gives up what it leads as it would at its end, the others take it at
// once, and it stays a member that leads nothing and that nobody counts with.
func TestDrainedReplicaLeadsNothingAndStays(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		ls := leasesNamed("a", "b", "c", "d", "e", "f")
		r1, r2, r3 := w.start("r1", nil, ls...), w.start("r22", nil, ls...), w.start("r333", nil, ls...)
		pass(2 * testRenew)
		led := len(r1.leading())
		if led != 2 {
			t.Fatalf("r1 leads %d, want 2", led)
		}
		var terms []holding
		for _, term := range r1.leading() {
			terms = append(terms, holding{term.Token.Lease, term.Token.Epoch})
		}
		r1.linger = 2 * time.Second
		r1.Drain()
		r1.Drain()
		synctest.Wait()
		for _, h := range terms {
			if r := w.db.get(h.name); r.owner != "r1" || r.epoch != h.epoch || !r.expires.After(w.now()) {
				t.Errorf("%s was released before its lead had returned: %v", h.name, r)
			}
		}
		pass(r1.linger + 100*time.Millisecond)
		if n := len(r2.leading()) + len(r3.leading()); n != len(ls) {
			t.Fatalf("the others lead %d of %d, just after the leads have returned", n, len(ls))
		}
		if m := w.db.memberOf("r1"); !m.draining {
			t.Errorf("r1 is %+v", m)
		}

		// A further share is a third of the leases as long as r1 counts, and half of them without it.
		r2.GiveUp(r2.leading()[0].Token.Lease, Reason("step down"))
		pass(10 * testLease)
		if n := len(r1.leading()); n != 0 {
			t.Errorf("r1 leads %d", n)
		}
		if m := w.db.memberOf("r1"); !m.draining || !m.expires.After(w.now()) {
			t.Errorf("r1 is a member no more: %+v", m)
		}
		if beat := r1.Beat(); time.Since(beat) > testRenew {
			t.Errorf("its loop last turned %v ago", time.Since(beat))
		}
		r2.end()
		pass(testRenew)
		if n := len(r3.leading()); n != len(ls) {
			t.Errorf("r3 leads %d of %d", n, len(ls))
		}
		r3.end()
		pass(10 * testLease)
		if n := len(r1.leading()); n != 0 {
			t.Errorf("r1, the last one left, leads %d", n)
		}
		r1.end()
		if m := w.db.memberOf("r1"); m.draining {
			t.Errorf("r1 has not left: %+v", m)
		}
	})
}

// P9: who starts beside a drained replica counts without it, and takes all that is free at once.
func TestDrainedReplicaHasNoShare(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		ls := leasesNamed("a", "b", "c", "d")
		r1 := w.start("r1", nil, ls...)
		pass(testRenew)
		r1.Drain()
		pass(testRenew)
		before := time.Now()
		r2 := w.start("r22", nil, ls...)
		for len(r2.leading()) < len(ls) && time.Since(before) < testLease {
			pass(100 * time.Millisecond)
		}
		// Those that a member had no share of would be left for a heartbeat more.
		if took := time.Since(before); took >= testRenew {
			t.Errorf("r22 leads %d after %v", len(r2.leading()), took)
		}
		r2.end()
		r1.end()
	})
}

func TestReplicaThatIsDrainedBeforeItRunsLeadsNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		e, err := newElector(w.db, Config{Owner: "r1", Lease: testLease, Renew: testRenew})
		if err != nil {
			t.Fatal(err)
		}
		var all sync.WaitGroup
		for range 10 {
			all.Go(e.Drain)
		}
		all.Wait()
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan error, 1)
		go func() { done <- e.Run(ctx, leasesNamed("a"), func(*Term) { t.Error("it leads") }) }()
		pass(5 * testLease)
		if m := w.db.memberOf("r1"); !m.draining {
			t.Errorf("r1 is %+v", m)
		}
		cancel()
		if err := <-done; err != nil {
			t.Error(err)
		}
	})
}

// P6: what was acquired while the order came in is given back, and not begun.
func TestNoTermBeginsAfterDrain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		net := &script{}
		net.set("acquire", fault{slow: time.Second}, -1)
		r1 := w.start("r1", net.next, leasesNamed("a")...)
		for w.db.get("a").epoch == 0 {
			pass(10 * time.Millisecond)
		}
		r1.Drain()
		pass(testRenew)
		if r := w.db.get("a"); r.expires.After(w.now()) || len(r1.terms) != 0 {
			t.Errorf("the row is %v, and %d terms have begun", r, len(r1.terms))
		}
		r1.end()
	})
}

// P6: an acquisition whose answer was lost is found and given back by a drained replica too.
func TestDrainedReplicaGivesBackWhatItDoesNotKnowOf(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		net := &script{}
		net.set("acquire", fault{mute: true}, -1)
		r1 := w.start("r1", net.next, leasesNamed("a")...)
		for w.db.get("a").epoch == 0 {
			pass(10 * time.Millisecond)
		}
		r1.Drain()
		before := w.now()
		for w.db.get("a").expires.After(w.now()) {
			pass(100 * time.Millisecond)
		}
		if took := w.now().Sub(before); took > 2*testRenew {
			t.Errorf("the lease was free after %v", took)
		}
		r1.end()
	})
}

// P6: a drained replica whose lead does not return keeps renewing its lease, and can still be stopped.
func TestDrainedReplicaRenewsUntilItsLeadHasReturned(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		r1 := w.start("r1", nil, leasesNamed("a")...)
		r1.mu.Lock()
		r1.stuck = true
		r1.mu.Unlock()
		pass(testRenew)
		r1.Drain()
		pass(10 * testLease)
		if r := w.db.get("a"); r.owner != "r1" || r.epoch != 1 || !r.expires.After(w.now()) {
			t.Errorf("the lease was not renewed: %v", r)
		}
		r1.stop()
		pass(10 * testLease)
		if r := w.db.get("a"); r.owner != "r1" || !r.expires.After(w.now()) {
			t.Errorf("the lease was not renewed at the end: %v", r)
		}
		close(r1.unstick)
		<-r1.done
		if r := w.db.get("a"); r.expires.After(w.now()) {
			t.Errorf("the lease was not released: %v", r)
		}
	})
}

func TestSteeringIsAnnouncedToWhoWantsToKnow(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		told := make(chan struct{}, 10)
		e, err := newElector(w.db, Config{Owner: "r1", Lease: testLease, Renew: testRenew, Steer: func() { told <- struct{}{} }})
		if err != nil {
			t.Fatal(err)
		}
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan error, 1)
		go func() {
			done <- e.Run(ctx, leasesNamed("steer"), func(term *Term) {
				term.Ready()
				<-term.Asked()
			})
		}()
		pass(2 * testRenew)
		w.db.announce("steer")
		w.db.announce("steered")
		w.db.announce("steer", "a")
		w.db.announce()
		synctest.Wait()
		if n := len(told); n != 1 {
			t.Errorf("told %d times, want once", n)
		}
		cancel()
		if err := <-done; err != nil {
			t.Error(err)
		}
	})
}

// P5: a term that an operator has ended is over as soon as that is announced, and its replica goes on.
func TestRevokedTermEndsWhenItIsAnnounced(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		r1 := w.start("r1", nil, leasesNamed("a", "b")...)
		pass(testRenew + testRenew/2)
		term, other := expectLeader(t, w, "a", r1, 1), expectLeader(t, w, "b", r1, 1)
		w.db.set("a", func(r *row) { r.owner, r.epoch, r.expires = "revoked by alice", 2, w.now() })
		w.db.announce("a")
		pass(100 * time.Millisecond)
		if cause := context.Cause(term.Context()); !errors.Is(cause, ErrLost) {
			t.Errorf("the cause is %v", cause)
		}
		pass(testLease)
		expectLeader(t, w, "a", r1, 3)
		if other.Context().Err() != nil {
			t.Error("the other lease's term ended too")
		}
		r1.end()
	})
}

// What announces a release on the memory's channel, as another program would.
func (m *memory) announce(names ...string) {
	m.mu.Lock()
	defer m.mu.Unlock()
	for _, c := range m.ears {
		c <- slices.Clone(names)
	}
}

func (m *memory) memberOf(owner string) memberRow {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.members[owner]
}

// A noteStore notes the reasons of releases.
type noteStore struct {
	store
	mu      sync.Mutex
	reasons map[string]int
}

func (s *noteStore) release(ctx context.Context, owner, reason string, held []holding, to []string) ([]verdict, error) {
	s.mu.Lock()
	s.reasons[reason] += len(held)
	s.mu.Unlock()
	return s.store.release(ctx, owner, reason, held, to)
}

// A callHandler calls a function for each line that is logged.
type callHandler struct {
	slog.Handler
	call func(line string)
}

func (h callHandler) Enabled(context.Context, slog.Level) bool { return true }

func (h callHandler) Handle(_ context.Context, r slog.Record) error {
	h.call(r.Message)
	return nil
}

// A term whose lead returns because its replica is told to stop ends by the drain, whichever of the two
// the elector hears of first.
func TestTermsThatEndWithTheirReplicaAreDrained(t *testing.T) {
	for range 10 {
		synctest.Test(t, func(t *testing.T) {
			ctx, stop := context.WithCancel(t.Context())
			s := &noteStore{store: newMemory(time.Now), reasons: map[string]int{}}
			log := slog.New(callHandler{slog.DiscardHandler, func(line string) {
				if line == "lease acquired" {
					stop()
					time.Sleep(time.Millisecond) // the leads return
				}
			}})
			e, err := newElector(s, Config{Owner: "r1", Lease: testLease, Renew: testRenew, Log: log})
			if err != nil {
				t.Fatal(err)
			}
			leases := leasesNamed("a", "b", "c", "d")
			if err := e.Run(ctx, leases, func(*Term) { <-ctx.Done() }); err != nil {
				t.Fatal(err)
			}
			if len(s.reasons) != 1 || s.reasons[Drain.Error()] != len(leases) {
				t.Errorf("they ended by %v", s.reasons)
			}
		})
	}
}
