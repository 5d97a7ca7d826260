//go:build prove

package lease

import (
	"context"
	"fmt"
	"runtime"
	"sync"
	"testing"
	"time"
)

// A term that is led takes less than 7 KiB with its lease, of which about a half is its goroutine, beside
// what its lead needs.
func TestProveLedLeaseTakesLittleMemory(t *testing.T) {
	const n = 10_000
	leases, names := make([]Lease, n), make([]string, n)
	for i := range leases {
		names[i] = fmt.Sprintf("job%06d", i)
		leases[i] = Lease{Name: names[i], Job: names[i]}
	}
	e, err := newElector(newMemory(time.Now), Config{Owner: "r1", Lease: hour, Renew: testRenew})
	must(t, err)
	must(t, e.store.register(t.Context(), names, *newAbility(names)))
	used := func() uint64 {
		runtime.GC()
		runtime.GC() // the second frees what the first has shrunk
		var m runtime.MemStats
		runtime.ReadMemStats(&m)
		return m.HeapAlloc + m.StackInuse
	}
	before := used()
	var begun, ended sync.WaitGroup
	begun.Add(n)
	ctx, stop := context.WithCancel(t.Context())
	ended.Go(func() {
		_ = e.Run(ctx, leases, func(term *Term) {
			begun.Done()
			select {
			case <-term.Asked():
			case <-term.Yielding():
			case <-term.Context().Done():
			}
		})
	})
	begun.Wait()
	each := float64(used()-before) / n / 1024
	t.Logf("%.2f KiB", each)
	if each > 7 {
		t.Errorf("%.2f KiB for each term", each)
	}
	stop()
	ended.Wait()
}
