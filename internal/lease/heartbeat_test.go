package lease

import (
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"
)

// Replicas that were started together, or have waited together for the end of an outage, renew at moments
// of their own: at no time do more than half of them do so within a tenth of the interval.
func TestReplicasStartedTogetherDoNotBeatTogether(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const n = 10
		w := newWorld(t)
		begun := time.Now()
		var out atomic.Bool
		var last [n]atomic.Int64 // when each began to beat, as nanoseconds since then
		var replicas []*replica
		for i := range n {
			replicas = append(replicas, w.start(strings.Repeat("r", i+1), func(call string) fault {
				if call == "beat" {
					last[i].Store(int64(time.Since(begun)))
				}
				return fault{fail: out.Load()}
			}, leasesNamed("a", "b", "c")...))
		}
		apart := func(when string) {
			t.Helper()
			for i := range last {
				near := 0
				for j := range last {
					apart := time.Duration(last[j].Load()-last[i].Load()) % testRenew
					if (apart+testRenew)%testRenew < testRenew/10 {
						near++
					}
				}
				if near > n/2 {
					t.Errorf("%s %d of %d beat within a tenth of the interval", when, near, n)
					return
				}
			}
		}
		pass(4 * testRenew)
		apart("after the start")
		out.Store(true)
		pass(3 * testLease)
		out.Store(false)
		pass(4 * testRenew)
		apart("after an outage")
		for _, r := range replicas {
			r.end()
		}
	})
}
