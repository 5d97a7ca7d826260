package scheduler

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"rota/internal/control"
	"rota/internal/fence"
	"rota/internal/lease"
	"rota/internal/registry"
)

// Only what was cut short by what became of its replica is marked for the next term to run again: not
// what an operator ended, nor what ended by itself, and not more often than its bound.
func TestEndSaysWhetherTheNextTermRunsTheTickAgain(t *testing.T) {
	t.Parallel()
	stuck := func(ctx context.Context, _ *registry.Run) error { return pause(ctx, time.Hour) }
	ends := func(why error) func(*bench, *fakeTerm) {
		return func(_ *bench, term *fakeTerm) { term.End(why) }
	}
	cancel := func(b *bench, _ *fakeTerm) {
		b.Steer(control.State{Requests: []control.Request{{ID: 1, Kind: control.Cancel, Lease: "job", Run: 1, By: "ann"}}})
	}
	for name, c := range map[string]struct {
		run   func(context.Context, *registry.Run) error
		then  func(b *bench, term *fakeTerm)
		job   func(*registry.Job)
		want  outcome
		again bool
	}{
		"lost":     {stuck, ends(lease.ErrLost), nil, lost, true},
		"deadline": {stuck, ends(lease.ErrDeadline), nil, lost, true},
		"fenced":   {stuck, ends(fence.ErrFenced), nil, refused, true},
		"refused to the writer of another term": {func(context.Context, *registry.Run) error {
			return fmt.Errorf("write: %w", fence.ErrFenced)
		}, nil, nil, failed, false},
		"drained":       {stuck, func(_ *bench, term *fakeTerm) { close(term.asked) }, nil, cancelled, true},
		"cancelled":     {stuck, cancel, nil, cancelled, false},
		"failed":        {func(context.Context, *registry.Run) error { return errors.New("no") }, nil, nil, failed, false},
		"timed out":     {stuck, nil, nil, timedOut, false},
		"left":          {stuck, ends(lease.ErrLost), func(j *registry.Job) { j.IfLost = registry.LeaveIt }, lost, false},
		"left, drained": {stuck, func(_ *bench, term *fakeTerm) { close(term.asked) }, func(j *registry.Job) { j.IfLost = registry.LeaveIt }, cancelled, false},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				j := job("job", c.run)
				j.Timeout = time.Minute
				if c.job != nil {
					c.job(&j)
				}
				b := newBench(t, j)
				term := newFakeTerm()
				b.leads(term, "job", 1)
				after(6 * time.Second)
				if c.then != nil {
					c.then(b, term)
				}
				after(2 * time.Minute)
				if row := b.store.first(); row.outcome != c.want || row.again != c.again {
					t.Errorf("it is %s, again %v; want %s, %v", row.outcome, row.again, c.want, c.again)
				}
				term.End(lease.ErrLost)
				b.closes()
			})
		})
	}
}

// A tick whose runs are lost one after the other gets as many attempts as its bound allows, the first
// thing in each term, and is then left.
func TestLostTickIsRunAgainByTheNextTermUpToItsBound(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		retry, want int
		ifLost      registry.IfLost
	}{
		{0, registry.LostBound, registry.RunAgain}, {5, 5, registry.RunAgain}, {2, registry.LostBound, registry.RunAgain}, {5, 1, registry.LeaveIt},
	} {
		synctest.Test(t, func(t *testing.T) {
			var numbers notebook[int]
			j := hourly(func(ctx context.Context, r *registry.Run) error {
				numbers.add(r.Attempt)
				return pause(ctx, time.Hour)
			})
			j.Retry, j.IfLost = registry.Retry{Attempts: c.retry}, c.ifLost
			b := newBench(t, j)
			term := b.leadsDue(1)
			for epoch := int64(2); epoch < 9; epoch++ {
				term.End(lease.ErrLost)
				synctest.Wait()
				term = newFakeTerm()
				b.leads(term, "job", epoch)
				synctest.Wait()
			}
			var want []int
			for n := range c.want {
				want = append(want, n+1)
			}
			if got := numbers.read(); fmt.Sprint(got) != fmt.Sprint(want) {
				t.Errorf("%+v: attempts %v, want %v", c, got, want)
			}
			b.closes(term)
		})
	}
}

// Several lost ticks, and a request, are each run again before anything that is due.
func TestAllThatWasLostIsRunAgainTheOldestFirst(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var order notebook[string]
		b := newBench(t, job("job", func(_ context.Context, r *registry.Run) error {
			order.add(fmt.Sprint(r.Tick.Sub(bubble), " ", r.Attempt))
			return nil
		}))
		for n, at := range []time.Duration{-20, -13, -10} {
			b.store.add(fakeRun{end: end{owner: "other"}, lease: "job", tick: bubble.Add(at * time.Second), attempt: 1, ticks: 1, request: int64(n % 2)})
		}
		b.store.last["job"] = bubble.Add(-10 * time.Second)
		term := newFakeTerm()
		b.leads(term, "job", 2)
		after(time.Second)
		if got := fmt.Sprint(order.read()); got != "[-20s 2 -13s 2 -10s 2 0s 1]" {
			t.Errorf("the order is %s", got)
		}
		if h := b.store.history("job"); h != "+-20s lost, +-13s lost, +-10s lost, +-20s success (2), +-13s success (2), +-10s success (2), +-5s missed, +0s success" {
			t.Errorf("the history is %s", h)
		}
		b.closes(term)
	})
}
