package scheduler

import (
	"context"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"rota/internal/registry"
)

// A jitter moves the start of a lease's runs by a part of it that is the lease's own.
func TestJitterIsALeasesOwnAndBelowItsBound(t *testing.T) {
	t.Parallel()
	seen := map[time.Duration]bool{}
	for n := range 1000 {
		name := fmt.Sprint("job-", n)
		off := offset(name, time.Minute)
		if off < 0 || off >= time.Minute || off != offset(name, time.Minute) {
			t.Errorf("the offset of %s is %v", name, off)
		}
		seen[off.Truncate(10*time.Second)] = true
	}
	if len(seen) != 6 {
		t.Errorf("a thousand jobs fall into %d of 6 parts", len(seen))
	}
	if offset("job", 0) != 0 {
		t.Error("without a jitter there is an offset")
	}
	// It is the same for ever: another value would move the runs of all jobs in an upgrade.
	if got, was := offset("job", time.Hour), 2970718*time.Millisecond; got != was {
		t.Errorf("the offset of job in an hour is %v, and was %v", got, was)
	}
}

// P7: the tick stays where it is; what is missed, and what is skipped, is so from the tick's own start on.
func TestTicksCountFromTheirJitter(t *testing.T) {
	t.Parallel()
	off := offset("job", 4*time.Second)
	if off < time.Second || off > 3*time.Second {
		t.Fatalf("the offset is %v, which makes a poor test", off)
	}
	synctest.Test(t, func(t *testing.T) {
		var late notebook[time.Duration]
		j := job("job", func(ctx context.Context, r *registry.Run) error {
			late.add(time.Since(r.Tick))
			if r.Tick.Equal(bubble.Add(10 * time.Second)) {
				return pause(ctx, 5*time.Second+time.Millisecond) // into the start of the next
			}
			return nil
		})
		j.Jitter, j.Missed = 4*time.Second, registry.RunNone
		b := newBench(t, j)
		b.store.last["job"] = bubble.Add(-10 * time.Second)
		time.Sleep(off - 10*time.Millisecond) // the tick at 0 is past, its start is to come
		term := newFakeTerm()
		b.leads(term, "job", 1)
		synctest.Wait()
		if h := b.store.history("job"); h != "+-5s missed" {
			t.Errorf("before the start of a tick the history is %s", h)
		}
		after(16 * time.Second)
		if h := b.store.history("job"); h != "+-5s missed, +0s success, +5s success, +10s success, +15s skipped" {
			t.Errorf("the history is %s", h)
		}
		for _, d := range late.read() {
			if d < off || d > off+time.Millisecond {
				t.Errorf("a run began %v after its tick, want %v", d, off)
			}
		}
		b.closes(term)
	})
}
