package scheduler

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"rota/internal/control"
	"rota/internal/fence"
	"rota/internal/lease"
	"rota/internal/registry"
)

// hourly is a job that ticks every hour and is tried four times, a second apart at first.
func hourly(f func(context.Context, *registry.Run) error) registry.Job {
	return registry.Job{
		Name: "job", Schedule: registry.Every(time.Hour), Run: f,
		Retry: registry.Retry{Attempts: 4, Pause: 10 * time.Second, Longest: 25 * time.Second},
	}
}

// leadsDue leads the job in the moment before its first tick.
func (b *bench) leadsDue(epoch int64) *fakeTerm {
	time.Sleep(time.Hour - time.Millisecond - time.Since(bubble))
	term := newFakeTerm()
	b.leads(term, "job", epoch)
	after(2 * time.Millisecond)
	return term
}

// A run that went wrong is tried again under the same term, each time after a longer pause, up to its
// bound; the job sees which attempt it is.
func TestRunThatFailsIsTriedAgainAfterGrowingPauses(t *testing.T) {
	t.Parallel()
	varied := map[time.Duration]bool{}
	for range 5 {
		synctest.Test(t, func(t *testing.T) {
			var starts notebook[time.Time]
			b := newBench(t, hourly(func(_ context.Context, r *registry.Run) error {
				starts.add(time.Now())
				if n := len(starts.read()); r.Attempt != n || !r.Tick.Equal(bubble.Add(time.Hour)) {
					t.Errorf("run %d is attempt %d at %v", n, r.Attempt, r.Tick)
				}
				return errors.New("no route to LP-3")
			}))
			term := b.leadsDue(1)
			after(30 * time.Minute)
			if h := b.store.history("job"); h != "+1h0m0s failed, +1h0m0s failed (2), +1h0m0s failed (3), +1h0m0s failed (4)" {
				t.Errorf("the history is %s", h)
			}
			at := starts.read()
			for n, longest := range []time.Duration{10 * time.Second, 20 * time.Second, 25 * time.Second} {
				rest := at[n+1].Sub(at[n])
				if rest < longest*3/4 || rest > longest+time.Millisecond {
					t.Errorf("pause %d is %v, want up to a quarter below %v", n+1, rest, longest)
				}
				varied[rest] = true
			}
			if n := b.sample("rota_runs_total", "job_name=job", "outcome=failed"); n != 4 {
				t.Errorf("%v failed runs are counted", n)
			}
			b.closes(term)
		})
	}
	if len(varied) < 10 {
		t.Errorf("of 15 pauses %d differ", len(varied))
	}
}

// What panicked or took too long is tried again as what failed is. What an operator or the end of its
// term cut short is not, nor is what was fenced.
func TestWhichOutcomesAreTriedAgain(t *testing.T) {
	t.Parallel()
	stuck := func(ctx context.Context, _ *registry.Run) error { return pause(ctx, time.Hour) }
	for name, c := range map[string]struct {
		run  func(context.Context, *registry.Run) error
		want string
		then func(b *bench, term *fakeTerm)
	}{
		"success":   {idle, "success", nil},
		"panicked":  {func(context.Context, *registry.Run) error { panic("no") }, "panicked, success", nil},
		"timed out": {stuck, "timed_out, success", nil},
		"fenced":    {stuck, "fenced", func(_ *bench, term *fakeTerm) { term.End(fence.ErrFenced) }},
		"refused to the writer of another term": {func(context.Context, *registry.Run) error {
			return fmt.Errorf("write: %w", fence.ErrFenced)
		}, "failed, success", nil},
		"cancelled": {stuck, "cancelled", func(b *bench, _ *fakeTerm) {
			b.Steer(control.State{Requests: []control.Request{{ID: 1, Kind: control.Cancel, Lease: "job", Run: 1, By: "ann"}}})
		}},
		"lost":    {stuck, "lost", func(_ *bench, term *fakeTerm) { term.End(lease.ErrLost) }},
		"drained": {stuck, "cancelled", func(_ *bench, term *fakeTerm) { close(term.asked) }},
		"failed as its term was asked for": {func(_ context.Context, r *registry.Run) error {
			<-r.Draining
			return errors.New("no")
		}, "failed", func(_ *bench, term *fakeTerm) { close(term.asked) }},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				j := hourly(func(ctx context.Context, r *registry.Run) error {
					if r.Attempt > 1 {
						return nil
					}
					return c.run(ctx, r)
				})
				j.Timeout = time.Minute
				b := newBench(t, j)
				term := b.leadsDue(1)
				if c.then != nil {
					c.then(b, term)
				}
				after(30 * time.Minute)
				want := "+1h0m0s " + strings.Replace(c.want, ", success", ", +1h0m0s success (2)", 1)
				if h := b.store.history("job"); h != want {
					t.Errorf("the history is %s, want %s", h, want)
				}
				term.End(lease.ErrLost)
				b.closes()
			})
		})
	}
}

// A newer tick ends the tries at an older one, whether it is run or not; so does the end of the term.
func TestNewerTickAndTheTermsEndEndTheTries(t *testing.T) {
	t.Parallel()
	fails := func(context.Context, *registry.Run) error { return errors.New("no") }
	t.Run("tick", func(t *testing.T) {
		t.Parallel()
		synctest.Test(t, func(t *testing.T) {
			j := job("job", func(_ context.Context, r *registry.Run) error {
				if r.Tick.Sub(bubble) == 5*time.Second {
					return errors.New("no")
				}
				return nil
			})
			j.Retry = registry.Retry{Attempts: 9, Pause: 4 * time.Second, Longest: 4 * time.Second}
			b := newBench(t, j)
			term := newFakeTerm()
			b.leads(term, "job", 1)
			after(14 * time.Second) // past the third attempt, had the tick at +10s not ended the tries
			if h := b.store.history("job"); h != "+5s failed, +5s failed (2), +10s success" {
				t.Errorf("the history is %s", h)
			}
			b.closes(term)
		})
	})
	t.Run("term", func(t *testing.T) {
		t.Parallel()
		synctest.Test(t, func(t *testing.T) {
			b := newBench(t, hourly(fails))
			term := b.leadsDue(1)
			close(term.asked)
			after(time.Minute)
			next := newFakeTerm()
			b.leads(next, "job", 2)
			after(time.Minute)
			if h := b.store.history("job"); h != "+1h0m0s failed" {
				t.Errorf("the history is %s", h)
			}
			b.closes(next)
		})
	})
}

// P7: a further attempt whose claim's answer was lost, or that met a lock, is run once.
func TestFurtherAttemptIsRunOnceWhateverItsClaimMeets(t *testing.T) {
	t.Parallel()
	for _, meets := range []string{"lost answer", "lock", "error"} {
		t.Run(meets, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				runs := 0
				b := newBench(t, hourly(func(_ context.Context, r *registry.Run) error {
					if runs++; r.Attempt == 1 {
						return errors.New("no")
					}
					return nil
				}))
				set := func(on bool) {
					b.store.set(func() {
						b.store.answers["claim"] = on && meets == "lost answer"
						b.store.locked["job"] = on && meets == "lock"
						b.store.fault = func(string) error { return nil }
						if on && meets == "error" {
							b.store.fault = func(call string) error { return errors.New(call + ": down") }
						}
					})
				}
				term := b.leadsDue(1)
				set(true)
				after(12 * time.Second)
				set(false)
				after(time.Second)
				if h := b.store.history("job"); runs != 2 || h != "+1h0m0s failed, +1h0m0s success (2)" {
					t.Errorf("%d runs, the history is %s", runs, h)
				}
				b.closes(term)
			})
		})
	}
}

// A request that fails while a tick waits to be tried again takes nothing of that: both are tried again,
// each at its time.
func TestRetryOfARequestLeavesThatOfATick(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t, hourly(func(_ context.Context, r *registry.Run) error {
			if r.Attempt < 3 {
				return errors.New("no")
			}
			return nil
		}))
		term := b.leadsDue(1)
		after(time.Second)
		b.asks(7, "")
		after(10 * time.Minute)
		got := strings.Split(b.store.history("job"), ", ")
		slices.Sort(got)
		want := []string{"+1h0m0s failed", "+1h0m0s failed (2)", "+1h0m0s success (3)", "+1ms failed", "+1ms failed (2)", "+1ms success (3)"}
		if !slices.Equal(got, want) {
			t.Errorf("the history is %q, want %q", got, want)
		}
		b.closes(term)
	})
}

// The delay of a tick is that of its first run: further attempts, and runs that were asked for, are no
// ticks that waited.
func TestDelayIsCountedOfTheFirstRunOfATick(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t, hourly(func(context.Context, *registry.Run) error { return errors.New("no") }))
		term := b.leadsDue(1)
		b.asks(7, "")
		after(time.Hour)
		if n := b.sample("rota_tick_delay_seconds"); n != 2 {
			t.Errorf("%v delays of two ticks are counted: %s", n, b.store.history("job"))
		}
		b.closes(term)
	})
}
