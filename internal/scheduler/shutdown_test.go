package scheduler

import (
	"context"
	"errors"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"rota/internal/lease"
	"rota/internal/registry"
)

// P6: a run that is under way when its term is asked for is let finish; the lead returns after it,
// and takes no tick in between.
func TestAskedTermLetsItsRunFinishAndTakesNoTick(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		drained := false
		b := newBench(t, job("job", func(ctx context.Context, r *registry.Run) error {
			<-r.Draining
			drained = ctx.Err() == nil
			time.Sleep(7 * time.Second) // past a tick
			return nil
		}))
		term := newFakeTerm()
		returned := b.leads(term, "job", 1)
		after(6 * time.Second)
		close(term.asked)
		after(6 * time.Second)
		if closed(returned) || !drained {
			t.Errorf("returned %v before its run, which was told to drain: %v", closed(returned), drained)
		}
		after(time.Second)
		if !closed(returned) || term.cause() != nil {
			t.Errorf("returned %v, the term ended by %v", closed(returned), term.cause())
		}
		// The tick at +10s is the successor's.
		if h := b.store.history("job"); h != "+5s success" {
			t.Errorf("the history is %s", h)
		}
		b.closes()
	})
}

func TestRunIsCancelledAfterTheDrain(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t, job("job", takes(time.Hour)))
		term := newFakeTerm()
		returned := b.leads(term, "job", 1)
		after(6 * time.Second)
		close(term.asked)
		<-returned
		if got := time.Since(bubble); got != 6*time.Second+testDrain {
			t.Errorf("it returned after %v", got)
		}
		if h := b.store.history("job"); h != "+5s cancelled" {
			t.Errorf("the history is %s", h)
		}
		if term.cause() != nil {
			t.Errorf("the term ended by %v, so that it is not released", term.cause())
		}
		b.closes()
	})
}

// P6: a run that ignores its ended context is abandoned: its term is not renewed any more, the lead
// returns only after it, and everything else goes on.
func TestRunThatDoesNotReturnIsAbandoned(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		let := make(chan struct{})
		stuck := job("stuck", func(context.Context, *registry.Run) error {
			<-let
			return nil
		})
		stuck.Timeout = 2 * time.Second
		b := newBench(t, stuck, job("other", idle))
		term, other := newFakeTerm(), newFakeTerm()
		returned := b.leads(term, "stuck", 1)
		b.leads(other, "other", 1)
		after(7*time.Second + testGrace - time.Millisecond)
		if term.cause() != nil || b.sample("rota_runs_abandoned", "job_name=stuck") != 0 {
			t.Errorf("within the grace the term ended by %v", term.cause())
		}
		after(time.Millisecond)
		if !errors.Is(term.cause(), ErrAbandoned) || b.sample("rota_runs_abandoned", "job_name=stuck") != 1 {
			t.Errorf("after the grace the term ended by %v", term.cause())
		}
		after(time.Minute)
		if closed(returned) || b.sample("rota_runs_running", "job_name=stuck") != 1 {
			t.Error("the lead returned before the job's function")
		}
		if got := strings.Count(b.store.history("other"), "success"); got != 14 {
			t.Errorf("the other job ran %d times", got)
		}
		close(let)
		<-returned
		synctest.Wait()
		if h := b.store.history("stuck"); !strings.HasPrefix(h, "+5s timed_out") {
			t.Errorf("the history is %s", h)
		}
		if b.sample("rota_runs_abandoned", "job_name=stuck") != 0 || b.sample("rota_runs_running", "job_name=stuck") != 0 {
			t.Error("the run is still counted")
		}
		b.closes(other)
	})
}

// P7: a claim that is under way when its term is asked for may come through: then its run is ours.
func TestClaimUnderWayAtShutdownIsRun(t *testing.T) {
	t.Parallel()
	for name, lostAnswer := range map[string]bool{"answered": false, "answer lost at first": true} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				b := newBench(t, job("job", idle))
				b.store.set(func() {
					b.store.answers["claim"] = lostAnswer
					b.store.fault = func(call string) error {
						if call == "claim" {
							time.Sleep(3 * time.Second)
						}
						return nil
					}
				})
				term := newFakeTerm()
				returned := b.leads(term, "job", 1)
				after(6 * time.Second)
				close(term.asked)
				after(2500 * time.Millisecond)
				b.store.set(func() { b.store.answers["claim"] = false })
				<-returned
				if h := b.store.history("job"); h != "+5s success" {
					t.Errorf("the history is %s", h)
				}
				b.closes()
			})
		})
	}
}

// A claim that comes through after its term is over is not begun, and closed as lost.
func TestClaimThatComesThroughTooLateIsLost(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t, job("job", func(context.Context, *registry.Run) error {
			t.Error("it ran")
			return nil
		}))
		b.store.set(func() {
			b.store.fault = func(call string) error {
				if call == "claim" {
					time.Sleep(3 * time.Second)
				}
				return nil
			}
		})
		term := newFakeTerm()
		returned := b.leads(term, "job", 1)
		after(6 * time.Second)
		term.End(lease.ErrDeadline)
		<-returned
		after(5 * time.Second)
		if h := b.store.history("job"); h != "+5s lost" {
			t.Errorf("the history is %s", h)
		}
		b.closes()
	})
}

// P6: the lease is given back only once the run's end is on record.
func TestLeadReturnsOnceItsRunIsRecorded(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t, job("job", takes(3*time.Second)))
		down := func(call string) error {
			if call == "record" {
				return errors.New("the database is away")
			}
			return nil
		}
		b.store.set(func() { b.store.fault = down })
		term := newFakeTerm()
		returned := b.leads(term, "job", 1)
		after(6 * time.Second)
		close(term.asked)
		after(4 * time.Second)
		if closed(returned) {
			t.Error("the lead returned before its run was on record")
		}
		b.store.set(func() { b.store.fault = func(string) error { return nil } })
		after(500 * time.Millisecond)
		if !closed(returned) || b.store.history("job") != "+5s success" {
			t.Errorf("returned %v, the history is %s", closed(returned), b.store.history("job"))
		}
		b.closes()
	})
}

// P8: a row of runs that somebody holds delays the record of that run alone.
func TestHeldRunDelaysNoOtherRecord(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t, job("held", idle), job("other", takes(10*time.Millisecond)))
		store := &heldRun{fakeStore: b.store, lease: "held"}
		b.recorder.store = store
		held, other := newFakeTerm(), newFakeTerm()
		b.leads(held, "held", 1)
		returned := b.leads(other, "other", 1)
		after(5 * time.Second) // one has ended, and its end is not taken
		close(other.asked)
		after(10 * time.Millisecond)
		if !closed(returned) || b.store.history("other") != "+5s success" || b.store.history("held") != "+5s open" {
			t.Errorf("returned %v, the history is %s, that of the held one %s",
				closed(returned), b.store.history("other"), b.store.history("held"))
		}
		b.stop()
		held.End(lease.ErrLost)
		after(time.Second)
		store.free.Store(true)
		<-b.ended
		if h := b.store.history("held"); h != "+5s success" {
			t.Errorf("once nobody holds it the history is %s", h)
		}
	})
}

// heldRun is where somebody holds the runs of a lease.
type heldRun struct {
	*fakeStore
	lease string
	free  atomic.Bool
}

func (s *heldRun) record(ctx context.Context, ends []end) (map[int64]bool, error) {
	if !s.free.Load() {
		ends = slices.DeleteFunc(slices.Clone(ends), func(e end) bool { return s.rows[e.run-1].lease == s.lease })
	}
	return s.fakeStore.record(ctx, ends)
}

// Ends of runs outlive an outage, and the wait for them at shutdown is bounded.
func TestEndsOfRunsAreRecordedAfterAnOutage(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var jobs []registry.Job
		for n := range 20 {
			jobs = append(jobs, job("job-"+string(rune('a'+n)), takes(time.Second)))
		}
		b := newBench(t, jobs...)
		var terms []*fakeTerm
		for _, j := range jobs {
			terms = append(terms, newFakeTerm())
			b.leads(terms[len(terms)-1], j.Name, 1)
		}
		after(5500 * time.Millisecond)
		b.store.set(func() { b.store.fault = func(string) error { return errors.New("the database is away") } })
		after(10 * time.Second)
		for _, term := range terms {
			term.End(lease.ErrDeadline)
		}
		b.stop()
		after(testGrace - time.Second)
		if closed(b.ended) {
			t.Error("it stopped with runs that are not on record")
		}
		b.store.set(func() { b.store.fault = func(string) error { return nil } })
		<-b.ended
		for _, j := range jobs {
			if h := b.store.history(j.Name); h != "+5s success" {
				t.Errorf("the history of %s is %s", j.Name, h)
			}
		}
	})
}

func TestShutdownDoesNotWaitForADatabaseThatIsGone(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t, job("job", takes(time.Second)))
		term := newFakeTerm()
		b.leads(term, "job", 1)
		after(5500 * time.Millisecond)
		b.store.set(func() { b.store.fault = func(string) error { return errors.New("the database is away") } })
		after(time.Second)
		stopped := time.Now()
		term.End(lease.ErrDeadline)
		b.closes()
		if took := time.Since(stopped); took > testGrace+time.Second {
			t.Errorf("it took %v to stop", took)
		}
	})
}

// A standby that shuts down starts nothing.
func TestTermThatIsAskedForBeforeItBeginsDoesNothing(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t, job("job", func(context.Context, *registry.Run) error {
			t.Error("it ran")
			return nil
		}))
		b.store.last["job"] = bubble.Add(-time.Hour) // a tick is due
		term := newFakeTerm()
		term.ready = func() { t.Error("it was ready") }
		close(term.asked)
		<-b.leads(term, "job", 1)
		b.stop()
		<-b.ended
		<-b.leads(newFakeTerm(), "job", 2) // won too late
		if len(b.store.rows) != 0 {
			t.Errorf("the history is %s", b.store.history("job"))
		}
	})
}
