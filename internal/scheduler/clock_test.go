package scheduler

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"rota/internal/control"
	"rota/internal/registry"
)

// sets moves the database's clock, and the elector's idea of it, by so much from the bubble's.
func (b *bench) sets(off time.Duration) {
	b.store.set(func() { b.store.off = off })
	b.elector.off.Store(int64(off))
}

// P7: where the database's clock is set back by an hour, ticks go on by it, and those that were run
// before are not run twice.
func TestClockThatIsSetBackRunsNoTickTwiceAndLeavesNone(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var book notebook[time.Time]
		b := newBench(t, job("job", func(_ context.Context, r *registry.Run) error {
			book.add(r.Tick)
			return nil
		}))
		term := newFakeTerm()
		b.leads(term, "job", 1)
		after(21 * time.Second)
		b.sets(-time.Hour)
		after(time.Hour + 20*time.Second)
		runs := map[time.Time]int{}
		for _, at := range book.read() {
			runs[at]++
		}
		for at := bubble.Add(21*time.Second - time.Hour).Truncate(5 * time.Second).Add(5 * time.Second); at.Before(bubble.Add(41 * time.Second)); at = at.Add(5 * time.Second) {
			if !at.Equal(bubble) && runs[at] != 1 { // from its own instant on a first term counts
				t.Errorf("the tick at %v was run %d times", at, runs[at])
			}
		}
		b.closes(term)
	})
}

// P7: where it is set forward, the newest of the ticks between is run, and the others are missed; set
// back again, those missed are run in time, as their second attempt, and what was run is not.
func TestClockThatIsSetForwardAndBackMakesNoBurstAndNoSilence(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t, job("job", idle))
		term := newFakeTerm()
		b.leads(term, "job", 1)
		after(7 * time.Second)
		b.sets(time.Minute)
		after(2 * time.Second)
		want := "+5s success, " + span(10, 60, missed) + ", +1m5s success"
		if h := b.store.history("job"); h != want {
			t.Errorf("set forward, the history is %s", h)
		}
		b.sets(0)
		after(time.Minute)
		var back []string
		for at := 15; at <= 60; at += 5 { // the one at 10 falls due within the second in which that is noticed
			back = append(back, fmt.Sprintf("+%v success (2)", time.Duration(at)*time.Second))
		}
		want += ", " + strings.Join(back, ", ")
		if h := b.store.history("job"); h != want {
			t.Errorf("set back, the history is %s, want %s", h, want)
		}
		after(2 * time.Second)
		if h := b.store.history("job"); h != want+", +1m10s success" {
			t.Errorf("then the history is %s", h)
		}
		b.closes(term)
	})
}

// P7: a replica whose machine was suspended, or whose idea of the database's clock jumps, runs the
// newest of the ticks that passed, and records the others.
func TestSuspensionMakesOneRunForTheTicksThatPassed(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t, job("job", idle))
		term := newFakeTerm()
		b.leads(term, "job", 1)
		after(7 * time.Second)
		b.elector.off.Store(int64(time.Hour)) // ahead by mistake: nothing is claimed that is not due
		after(7 * time.Second)
		if h := b.store.history("job"); h != "+5s success, +10s success" {
			t.Errorf("with a replica that is ahead the history is %s", h)
		}
		b.elector.off.Store(0)
		after(2 * time.Second)
		if h := b.store.history("job"); h != "+5s success, +10s success, +15s success" {
			t.Errorf("with one that no longer is the history is %s", h)
		}
		b.sets(30 * time.Second) // as all did while it was suspended
		after(2 * time.Second)
		if h := b.store.history("job"); h != "+5s success, +10s success, +15s success, "+span(20, 40, missed)+", +45s success" {
			t.Errorf("after the suspension the history is %s", h)
		}
		b.closes(term)
	})
}

// P7: ticks that wait for the end of a run outlive a clock that is set back meanwhile.
func TestTicksThatWaitForARunOutliveAClockThatIsSetBack(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		overlap registry.Overlap
		missed  registry.Missed
		want    string
	}{
		{registry.Queue, registry.RunLatest, "+5s success, +10s skipped, +15s success, +20s success, +25s open"},
		{registry.Skip, registry.RunAll, "+5s success, +10s success, +15s success, +20s success, +25s open"},
	} {
		t.Run(c.overlap.String(), func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				j := job("job", func(ctx context.Context, r *registry.Run) error {
					switch r.Tick.Sub(bubble) {
					case 5 * time.Second:
						return pause(ctx, 12*time.Second)
					case 25 * time.Second:
						return pause(ctx, time.Minute)
					}
					return nil
				})
				j.Overlap, j.Missed = c.overlap, c.missed
				b := newBench(t, j)
				if c.missed == registry.RunAll {
					b.store.last["job"] = bubble
					time.Sleep(11 * time.Second) // 5 and 10 are missed
				}
				term := newFakeTerm()
				b.leads(term, "job", 1)
				after(17*time.Second - time.Since(bubble))
				b.sets(-3 * time.Second)
				after(12 * time.Second)
				if h := b.store.history("job"); h != c.want {
					t.Errorf("the history is %s, want %s", h, c.want)
				}
				b.closes(term)
			})
		})
	}
}

// P7: the database's clock is set back, and the replica learns of it only later: meanwhile it asks too
// early, which costs no tick after that.
func TestClockThatIsSetBackUnnoticedLeavesNoSilence(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t, job("job", idle))
		term := newFakeTerm()
		b.leads(term, "job", 1)
		after(7 * time.Second)
		b.store.set(func() { b.store.off = -time.Hour })
		calls := b.store.count("claim")
		after(30 * time.Second)
		if n := b.store.count("claim") - calls; n > 10 {
			t.Errorf("it took %d claims to learn nothing", n)
		}
		b.sets(-time.Hour)
		after(15 * time.Second)
		if h := b.store.history("job"); h != "+5s success, "+span(40-3600, 50-3600, success) {
			t.Errorf("the history is %s", h)
		}
		b.closes(term)
	})
}

// What waits for a time on the old clock does not wait until the new one has caught up: a further
// attempt, a start of a Continuous job that was paused, and what met a lock.
func TestWaitsDoNotOutgrowAClockThatIsSetBack(t *testing.T) {
	t.Parallel()
	t.Run("further attempt", func(t *testing.T) {
		t.Parallel()
		synctest.Test(t, func(t *testing.T) {
			b := newBench(t, hourly(func(_ context.Context, r *registry.Run) error {
				if r.Attempt == 1 {
					return errors.New("no")
				}
				return nil
			}))
			term := b.leadsDue(1)
			after(time.Second)
			b.sets(-30 * time.Minute)
			after(15 * time.Second)
			if h := b.store.history("job"); h != "+1h0m0s failed, +1h0m0s success (2)" {
				t.Errorf("the history is %s", h)
			}
			b.closes(term)
		})
	})
	t.Run("resume", func(t *testing.T) {
		t.Parallel()
		synctest.Test(t, func(t *testing.T) {
			b := newBench(t, registry.Job{Name: "job", Schedule: registry.Continuous, Run: takes(time.Hour)})
			b.pauses(true)
			term := newFakeTerm()
			b.leads(term, "job", 1)
			after(3 * time.Second)
			b.sets(-time.Hour)
			b.pauses(false)
			after(3 * time.Second)
			if h := b.store.history("job"); !strings.HasSuffix(h, " open") {
				t.Errorf("the history is %s", h)
			}
			b.closes(term)
		})
	})
	t.Run("lock", func(t *testing.T) {
		t.Parallel()
		synctest.Test(t, func(t *testing.T) {
			b := newBench(t, bounded(idle))
			term := newFakeTerm()
			b.leads(term, "job", 1)
			synctest.Wait()
			b.store.set(func() { b.store.locked["job"] = true })
			b.Steer(control.State{Requests: []control.Request{asked(1, "")}})
			after(100 * time.Millisecond)
			b.sets(-time.Hour)
			b.store.set(func() { b.store.locked["job"] = false })
			after(3 * time.Second)
			if h := b.store.history("job"); h != "+1ms success" {
				t.Errorf("the history is %s", h)
			}
			b.closes(term)
		})
	})
}

// P7: what falls due after a clock that was set back is not said to have fallen due while nobody led.
func TestTicksAfterAClockThatIsSetBackAreNotMissed(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		j := job("job", idle)
		j.Missed = registry.RunNone
		b := newBench(t, j)
		term := newFakeTerm()
		time.Sleep(time.Second)
		b.leads(term, "job", 1)
		synctest.Wait()
		b.sets(-21 * time.Second)
		after(17 * time.Second)
		if h := b.store.history("job"); h != span(-15, -5, success) {
			t.Errorf("the history is %s", h)
		}
		b.closes(term)
	})
}

// P7: a tick that falls due again, since the clock was set back, is not run again while the end of its
// run is not on record: the database cannot tell it from one whose answer was lost.
func TestTickThatFallsDueAgainIsNotRunAgain(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var runs notebook[time.Duration]
		b := newBench(t, job("job", func(_ context.Context, r *registry.Run) error {
			runs.add(r.Tick.Sub(bubble))
			return nil
		}))
		term := newFakeTerm()
		b.leads(term, "job", 1)
		b.store.set(func() {
			b.store.fault = func(call string) error {
				if call == "record" {
					return errors.New("down")
				}
				return nil
			}
		})
		after(16 * time.Second)
		b.sets(-15 * time.Second)
		after(30 * time.Second)
		b.store.set(func() { b.store.fault = func(string) error { return nil } })
		after(2 * time.Second)
		if h := b.store.history("job"); h != span(5, 30, success) || fmt.Sprint(runs.read()) != "[5s 10s 15s 20s 25s 30s]" {
			t.Errorf("the runs are %v, the history is %s", runs.read(), h)
		}
		after(3 * time.Second) // a run begins
		b.ticker.mu.Lock()
		defer b.closes(term)
		defer b.ticker.mu.Unlock()
		for e := range b.ticker.entries {
			if n := len(e.begun); n != 1 {
				t.Errorf("%d runs are remembered", n)
			}
		}
	})
}
