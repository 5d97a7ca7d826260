package lease

import (
	"fmt"
	"sync"
	"testing"
	"testing/synctest"
	"time"
)

// share is what each of the replicas leads.
func share(replicas []*replica, leases []Lease) (each []int, led int) {
	each = make([]int, len(replicas))
	for i, r := range replicas {
		for _, l := range leases {
			if r.leads(l.Name) != nil {
				each[i]++
				led++
			}
		}
	}
	return each, led
}

func evenly(each []int) bool {
	low, high := each[0], each[0]
	for _, n := range each {
		low, high = min(low, n), max(high, n)
	}
	return high-low <= 1
}

// P9: replicas that join one after another, one that crashes and one that comes back: within three
// heartbeats of each change leadership is even, no more terms have moved than had to and one, and
// fifty heartbeats later not one more.
func TestLeadershipSpreadsAsReplicasComeAndGo(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		var leases []Lease
		for i := range 12 {
			leases = append(leases, Lease{Name: fmt.Sprintf("job-%02d", i), Job: fmt.Sprintf("job-%02d", i)})
		}
		terms := func() (n int64) {
			for _, l := range leases {
				n += w.db.get(l.Name).epoch
			}
			return n
		}
		settles := func(what string, moves int64, replicas ...*replica) {
			t.Helper()
			before := terms()
			pass(3 * testRenew)
			each, led := share(replicas, leases)
			if led != 12 || !evenly(each) {
				t.Errorf("%s: after three heartbeats they lead %v", what, each)
			}
			moved := terms() - before
			if moved > moves+1 {
				t.Errorf("%s: %d terms have changed, where %d had to", what, moved, moves)
			}
			pass(50 * testRenew)
			if more := terms() - before - moved; more != 0 {
				t.Errorf("%s: %d terms more have changed in fifty quiet heartbeats", what, more)
			}
		}
		r1 := w.start("r1/1", nil, leases...)
		settles("one", 12, r1)
		r2 := w.start("r2/2", nil, leases...)
		settles("a second joins", 6, r1, r2)
		r3 := w.start("r3/3", nil, leases...)
		settles("a third joins", 4, r1, r2, r3)
		r4 := w.start("r4/4", nil, leases...)
		settles("a fourth joins", 3, r1, r2, r3, r4)
		r4.stop()
		settles("the fourth leaves", 3, r1, r2, r3)
		r5 := w.start("r5/5", nil, leases...)
		settles("it comes back", 3, r1, r2, r3, r5)
		for _, r := range []*replica{r1, r2, r3, r5, r4} {
			r.end()
		}
	})
}

// A lease that is given up on request stays away from who gave it up, and goes to who leads least.
func TestLeaseThatIsGivenUpIsNotWonBack(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		leases := leasesNamed("a", "b", "c", "d", "e", "f", "g", "h", "i")
		var all []*replica
		for i := range 3 {
			all = append(all, w.start(fmt.Sprintf("r%d/%d", i, i), nil, leases...))
		}
		pass(4 * testRenew)
		for round := range 30 {
			l := leases[round%len(leases)].Name
			was := w.db.get(l)
			for _, r := range all {
				r.GiveUp(l, Reason("step down"))
			}
			pass(testRenew / 5)
			now := w.db.get(l)
			if now.owner == was.owner || now.epoch != was.epoch+1 || !now.expires.After(w.now()) {
				t.Errorf("round %d: %s was %v, and is %v", round, l, was, now)
			}
		}
		for _, r := range all {
			r.end()
		}
	})
}

// One release wakes one of twenty standbys.
func TestReleaseWakesItsHeirAlone(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		var mu sync.Mutex
		calls, counting := map[string]int{}, false
		count := func(call string) fault {
			mu.Lock()
			defer mu.Unlock()
			if counting && call != "beat" {
				calls[call]++
			}
			return fault{}
		}
		leases := leasesNamed("a", "b", "c")
		var all []*replica
		for i := range 21 {
			all = append(all, w.start(fmt.Sprintf("r%d/%d", i, i), count, leases...))
		}
		pass(4 * testRenew)
		was := w.db.get("a")
		mu.Lock()
		counting = true
		mu.Unlock()
		for _, r := range all {
			r.GiveUp("a", Reason("step down"))
		}
		pass(testRenew / 2)
		mu.Lock()
		counting = false
		mu.Unlock()
		if now := w.db.get("a"); now.epoch != was.epoch+1 || now.owner == was.owner {
			t.Errorf("%v was followed by %v", was, now)
		}
		if calls["release"] != 1 || calls["acquire"] != 1 || len(calls) != 2 {
			t.Errorf("beside heartbeats it took %v", calls)
		}
		for _, r := range all {
			r.end()
		}
	})
}

// P9: nothing moves to a member that has not been seen for a whole heartbeat, whenever it joins: during
// a deploy members come and go.
func TestNothingMovesBeforeMembershipIsSteady(t *testing.T) {
	for offset := time.Duration(0); offset < testRenew; offset += testRenew / 5 {
		synctest.Test(t, func(t *testing.T) {
			w := newWorld(t)
			leases := leasesNamed("a", "b", "c", "d")
			r1 := w.start("r1/1", nil, leases...)
			pass(10*testRenew + offset)
			r2 := w.start("r2/2", nil, leases...)
			pass(testRenew * 8 / 10)
			if each, _ := share([]*replica{r1, r2}, leases); each[0] != 4 {
				t.Errorf("joined at %v of a heartbeat: too soon they lead %v", offset, each)
			}
			pass(3 * testRenew)
			if each, _ := share([]*replica{r1, r2}, leases); each[0] != 2 || each[1] != 2 {
				t.Errorf("joined at %v of a heartbeat: in the end they lead %v", offset, each)
			}
			r1.end()
			r2.end()
		})
	}
}
