package lease

import (
	"fmt"
	"sync"
	"testing"
	"testing/synctest"
	"time"
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
