//go:build prove

package scheduler

import (
	"context"
	"fmt"
	"log/slog"
	"runtime"
	"testing"
	"time"

	"rota/internal/registry"
)

// A lead that waits for its next tick takes less than 9 KiB, with the stack of its goroutine and with the
// context and the channels of its term, which the lease's own memory has once more.
func TestProveIdleLeadTakesLittleMemory(t *testing.T) {
	const n = 2000
	jobs := make([]registry.Job, n)
	for i := range jobs {
		jobs[i] = registry.Job{
			Name: fmt.Sprintf("job%05d", i), About: "Waits.", Schedule: registry.Every(24 * time.Hour),
			Run: func(context.Context, *registry.Run) error { return nil },
		}
	}
	b := newBenchOf(t, "me", newFakeStore(), slog.DiscardHandler, jobs...)
	terms := make([]*fakeTerm, n)
	ready := make(chan struct{}, n)
	for i := range terms {
		terms[i] = newFakeTerm()
		terms[i].ctx.Done()
		terms[i].ready = func() { ready <- struct{}{} }
	}
	used := func() uint64 {
		runtime.GC()
		runtime.GC() // the second frees what the first has shrunk
		var m runtime.MemStats
		runtime.ReadMemStats(&m)
		return m.HeapAlloc + m.StackInuse
	}
	before := used()
	for i, term := range terms {
		b.leads(term, jobs[i].Name, 1)
	}
	for range terms {
		<-ready
	}
	each := float64(used()-before) / n / 1024
	t.Logf("%.2f KiB", each)
	if each > 9 {
		t.Errorf("%.2f KiB for each lead", each)
	}
	b.closes(terms...)
}
