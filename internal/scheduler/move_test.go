package scheduler

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"rota/internal/registry"
)

// P9: no run is interrupted by a move, however long it takes; the lease is given back after it.
func TestMoveWaitsForTheRun(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t, job("job", takes(2*testDrain)))
		term := newFakeTerm()
		returned := b.leads(term, "job", 1)
		after(6 * time.Second)
		if !term.tied.Load() {
			t.Error("a term whose run is under way is not said to be tied")
		}
		close(term.yield)
		after(2*testDrain - 2*time.Second)
		if closed(returned) {
			t.Fatal("the term was given back during the run")
		}
		after(2 * time.Second)
		if !closed(returned) || term.tied.Load() {
			t.Error("the term was not given back after the run")
		}
		if o := b.store.first().outcome; o != success {
			t.Errorf("the run ended as %s", o)
		}
		b.closes()
	})
}

// A move between runs gives the term back at once, and one between an attempt and the next waits
// until the tick is through.
func TestMoveBetweenRunsLosesNoRetry(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		j := job("job", func(_ context.Context, r *registry.Run) error {
			if r.Attempt < 3 {
				return errors.New("not yet")
			}
			return nil
		})
		j.Schedule = registry.Every(time.Minute)
		j.Retry = registry.Retry{Attempts: 3, Pause: 4 * time.Second}
		b := newBench(t, j, job("idle", idle))
		term, other := newFakeTerm(), newFakeTerm()
		returned, gone := b.leads(term, "job", 1), b.leads(other, "idle", 1)
		after(61 * time.Second)
		close(term.yield)
		close(other.yield)
		synctest.Wait()
		if closed(returned) || !closed(gone) {
			t.Error("the one with a retry to come was given back, or the idle one was not")
		}
		<-returned
		if h := b.store.history("job"); h != "+1m0s failed, +1m0s failed (2), +1m0s success (3)" {
			t.Errorf("the history is %s", h)
		}
		b.closes()
	})
}
