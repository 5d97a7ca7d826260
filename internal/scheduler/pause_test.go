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

// pauses pauses the job, or resumes it, and has the scheduler see it.
func (b *bench) pauses(on bool) {
	b.store.set(func() { b.store.paused["job"] = on })
	var wanted control.State
	if on {
		wanted.Pauses = []control.Pause{{Job: "job", Reason: "the bridge is closed", By: "ann"}}
	}
	b.Steer(wanted)
	synctest.Wait()
}

// P7: the ticks of a paused job are on record as skipped, and not caught up with; it is led meanwhile,
// and a run under way comes to its end by itself.
func TestPausedJobSkipsItsTicks(t *testing.T) {
	t.Parallel()
	for _, m := range []registry.Missed{registry.RunLatest, registry.RunAll, registry.RunNone} {
		synctest.Test(t, func(t *testing.T) {
			j := job("job", takes(time.Second))
			j.Missed = m
			b := newBench(t, j)
			term := newFakeTerm()
			returned := b.leads(term, "job", 1)
			after(5500 * time.Millisecond)
			b.pauses(true)
			after(15 * time.Second)
			b.pauses(false)
			after(6 * time.Second)
			if h := b.store.history("job"); closed(returned) || h != "+5s success, +10s skipped, +15s skipped, +20s skipped, +25s success" {
				t.Errorf("%v: returned %v, the history is %s", m, closed(returned), h)
			}
			if n := b.sample("rota_runs_total", "job_name=job", "outcome=skipped"); n != 3 {
				t.Errorf("%v skipped ticks are counted", n)
			}
			b.closes(term)
		})
	}
}

// P7: what was missed before a paused tick is on record, and counted, as such.
func TestTicksMissedBeforeAPausedOneAreRecordedAndCounted(t *testing.T) {
	t.Parallel()
	for m, want := range map[registry.Missed]string{
		registry.RunLatest: "+-10s missed, +-5s missed, +0s skipped",
		registry.RunAll:    "+-10s skipped, +-5s skipped, +0s skipped",
		registry.RunNone:   "+-10s missed, +-5s missed, +0s missed",
	} {
		synctest.Test(t, func(t *testing.T) {
			j := job("job", idle)
			j.Missed = m
			b := newBench(t, j)
			b.store.last["job"] = bubble.Add(-15 * time.Second)
			b.store.paused["job"] = true
			term := newFakeTerm()
			b.leads(term, "job", 1)
			after(time.Second)
			if h := b.store.history("job"); h != want {
				t.Errorf("%v: the history is %s, want %s", m, h, want)
			}
			for _, o := range []outcome{missed, skipped} {
				if n := b.sample("rota_runs_total", "job_name=job", "outcome="+string(o)); int(n) != strings.Count(want, string(o)) {
					t.Errorf("%v: %v %s ticks are counted", m, n, o)
				}
			}
			b.closes(term)
		})
	}
}

// A Continuous run of a paused job is cancelled, with a cause that says who paused it and why, and
// started again soon after the resume; it costs few claims meanwhile.
func TestContinuousJobIsCancelledByAPauseAndStartedAfterIt(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var causes, starts notebook[string]
		j := registry.Job{Name: "job", Schedule: registry.Continuous, Run: func(ctx context.Context, _ *registry.Run) error {
			starts.add(fmt.Sprint(time.Since(bubble).Round(time.Second)))
			<-ctx.Done()
			causes.add(context.Cause(ctx).Error())
			return context.Cause(ctx)
		}}
		b := newBench(t, j)
		term := newFakeTerm()
		returned := b.leads(term, "job", 1)
		after(10 * time.Minute)
		b.pauses(true)
		b.pauses(true)
		if got := causes.read(); len(got) != 1 || got[0] != "the job was paused by ann: the bridge is closed" {
			t.Errorf("the causes are %q", got)
		}
		if row := b.store.first(); row.outcome != cancelled || row.again {
			t.Errorf("the run is %s, again %v", row.outcome, row.again)
		}
		calls := b.store.count("claim")
		after(10 * time.Minute)
		if n := b.store.count("claim") - calls; n > 25 || len(starts.read()) != 1 || closed(returned) {
			t.Errorf("while it is paused there are %d claims, %d starts, returned %v", n, len(starts.read()), closed(returned))
		}
		b.pauses(false)
		after(time.Second)
		if got := strings.Join(starts.read(), " "); got != "0s 20m0s" && got != "0s 20m1s" {
			t.Errorf("it was started at %s", got)
		}
		b.closes(term)
	})
}

// A Continuous job that was paused before its term began is not started, and is once it is resumed.
func TestContinuousJobThatIsPausedIsNotStarted(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		started := false
		b := newBench(t, registry.Job{Name: "job", Schedule: registry.Continuous, Run: func(ctx context.Context, _ *registry.Run) error {
			started = true
			return pause(ctx, time.Hour)
		}})
		b.pauses(true)
		term := newFakeTerm()
		b.leads(term, "job", 1)
		after(time.Minute)
		if h := b.store.history("job"); started || h != "" {
			t.Errorf("started %v, the history is %s", started, h)
		}
		b.pauses(false)
		after(time.Second)
		if !started {
			t.Error("it is not started after the resume")
		}
		b.closes(term)
	})
}

// A further attempt of a job that was paused meanwhile is dropped, on record; so is what was lost.
func TestFurtherAttemptOfAPausedJobIsDroppedOnRecord(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t, hourly(func(context.Context, *registry.Run) error { return errors.New("no") }))
		term := b.leadsDue(1)
		b.pauses(true)
		after(time.Minute)
		b.pauses(false)
		after(10 * time.Minute)
		if h := b.store.history("job"); h != "+1h0m0s failed, +1h0m0s skipped (2)" {
			t.Errorf("the history is %s", h)
		}
		b.closes(term)
	})
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t, hourly(idle))
		b.store.add(fakeRun{end: end{owner: "other"}, lease: "job", tick: bubble, attempt: 1, ticks: 1})
		b.pauses(true)
		term := newFakeTerm()
		b.leads(term, "job", 2)
		after(time.Minute)
		b.pauses(false)
		after(time.Minute)
		if h := b.store.history("job"); h != "+0s lost, +0s skipped (2)" {
			t.Errorf("the history of a lost run is %s", h)
		}
		b.closes(term)
	})
}

// A request is exempt from a pause, and so are its further attempts.
func TestRequestIsRunAlthoughItsJobIsPaused(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t, hourly(func(_ context.Context, r *registry.Run) error {
			if r.Attempt == 1 {
				return errors.New("no")
			}
			return nil
		}))
		term := newFakeTerm()
		b.leads(term, "job", 1)
		b.store.set(func() { b.store.paused["job"] = true })
		synctest.Wait()
		b.asks(7, "")
		after(time.Minute)
		if h := b.store.history("job"); h != "+1ms failed, +1ms success (2)" {
			t.Errorf("the history is %s", h)
		}
		b.closes(term)
	})
}
