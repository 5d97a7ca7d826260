package scheduler

import (
	"context"
	"errors"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"rota/internal/control"
	"rota/internal/fence"
	"rota/internal/lease"
	"rota/internal/registry"
)

func cancelOf(id, run int64, why string) control.Request {
	return control.Request{ID: id, Kind: control.Cancel, Job: "job", Lease: "job", Run: run, By: "ann", Reason: why}
}

// A cancelled run's context ends with a cause that says who and why; the request is settled once,
// when the run has ended, however often it is seen.
func TestCancelEndsTheRunAndIsSettledOnceItHasEnded(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var causes notebook[error]
		b := newBench(t, job("job", func(ctx context.Context, _ *registry.Run) error {
			<-ctx.Done()
			causes.add(context.Cause(ctx))
			time.Sleep(2 * time.Second) // it takes its time
			return nil
		}))
		term := newFakeTerm()
		b.leads(term, "job", 1)
		after(6 * time.Second)
		wanted := control.State{Requests: []control.Request{cancelOf(1, 1, "wrong data"), cancelOf(2, 1, ""), cancelOf(3, 77, "")}}
		for range 5 {
			b.Steer(wanted)
		}
		synctest.Wait()
		if said := b.settled.said(); said != "" {
			t.Errorf("before the run has ended: %s", said)
		}
		after(2 * time.Second)
		for range 5 {
			b.Steer(wanted)
		}
		synctest.Wait()
		if got := causes.read(); len(got) != 1 || !errors.Is(got[0], ErrCancelled) || got[0].Error() != "cancelled by ann: wrong data" {
			t.Errorf("the causes are %v", got)
		}
		if said := b.settled.said(); said != "1: run 1 ended: cancelled, 2: run 1 ended: cancelled" {
			t.Errorf("settled: %s", said)
		}
		if row := b.store.first(); row.outcome != cancelled || row.fault != "cancelled by ann: wrong data" {
			t.Errorf("the run is %s: %q", row.outcome, row.fault)
		}
		after(3 * time.Second) // the next tick runs
		if h := b.store.history("job"); h != "+5s cancelled, +10s open" {
			t.Errorf("the history is %s", h)
		}
		term.End(lease.ErrLost)
		b.closes()
	})
}

// A cancel may be seen before its run has begun here: the claim's row is there for all to see.
func TestCancelThatIsSeenBeforeItsRunBeginsEndsIt(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t, job("job", takes(time.Minute)))
		b.Steer(control.State{Requests: []control.Request{cancelOf(1, 1, "wrong data")}})
		term := newFakeTerm()
		b.leads(term, "job", 1)
		after(6 * time.Second)
		if h, said := b.store.history("job"), b.settled.said(); h != "+5s cancelled" || said != "1: run 1 ended: cancelled" {
			t.Errorf("the history is %s, settled: %s", h, said)
		}
		b.closes(term)
	})
}

// A cancel ends the run that it names, and no other of this replica.
func TestCancelOfAnotherRunIsIgnored(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t, job("job", takes(3*time.Second)), job("other", takes(3*time.Second)))
		term, other := newFakeTerm(), newFakeTerm()
		b.leads(term, "job", 1)
		b.leads(other, "other", 1)
		after(6 * time.Second)
		elsewhere := cancelOf(1, 3, "")
		elsewhere.Lease = "led-elsewhere"
		b.Steer(control.State{Requests: []control.Request{elsewhere, cancelOf(2, 99, "")}})
		after(3 * time.Second)
		if h := b.store.history("job") + ", " + b.store.history("other"); h != "+5s success, +5s success" || b.settled.said() != "" {
			t.Errorf("the histories are %s, settled: %s", h, b.settled.said())
		}
		b.closes(term, other)
	})
}

func stepDown(id, epoch int64) control.State {
	return control.State{Requests: []control.Request{{ID: id, Kind: control.StepDown, Job: "job", Lease: "job", Epoch: epoch, By: "ann"}}}
}

// A term is given up by the request that names it, which is settled once the lead has returned; a
// later term is not.
func TestStepDownGivesUpTheTermThatItNames(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t, job("job", takes(3*time.Second)))
		term := newFakeTerm()
		returned := b.leads(term, "job", 4)
		after(6 * time.Second)
		b.Steer(stepDown(1, 5)) // of a term to come
		if gave := b.elector.gave(); gave != "" || b.settled.said() != "" {
			t.Errorf("given up: %s, settled: %s", gave, b.settled.said())
		}
		b.Steer(stepDown(2, 3)) // of one that is over
		if gave := b.elector.gave(); gave != "" || b.settled.said() != "2: the term of epoch 3 is over" {
			t.Errorf("given up: %s, settled: %s", gave, b.settled.said())
		}
		b.Steer(stepDown(3, 4))
		if gave := b.elector.gave(); gave != "job: step down" || strings.Contains(b.settled.said(), "3: ") {
			t.Errorf("given up: %s, settled: %s", gave, b.settled.said())
		}
		close(term.asked)
		<-returned
		if said := b.settled.said(); said != "2: the term of epoch 3 is over, 3: the term of epoch 4 is over" {
			t.Errorf("settled: %s", said)
		}
		b.Steer(control.State{})
		next := newFakeTerm()
		b.leads(next, "job", 5)
		synctest.Wait()
		if gave := b.elector.gave(); gave != "job: step down" {
			t.Errorf("the next term was given up too: %s", gave)
		}
		b.closes(next)
	})
}

// A term that waits for a held row, so that it cannot begin, can be given up all the same.
func TestTermThatIsStillBeingPreparedStepsDown(t *testing.T) {
	t.Parallel()
	for name, seen := range map[string]string{"asked for meanwhile": "later", "asked for before": "first"} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				j := job("job", idle)
				j.Protects = []fence.Table{{Name: "rows", Key: []string{"id"}}}
				b := newBench(t, j)
				b.Scheduler.store = &heldRows{b.store}
				if seen == "first" {
					b.Steer(stepDown(1, 4))
				}
				term := newFakeTerm()
				returned := b.leads(term, "job", 4)
				after(time.Minute)
				if seen == "later" {
					b.Steer(stepDown(1, 4))
				}
				if gave := b.elector.gave(); gave != "job: step down" {
					t.Errorf("given up: %s", gave)
				}
				close(term.asked)
				<-returned
				if said := b.settled.said(); said != "1: the term of epoch 4 is over" {
					t.Errorf("settled: %s", said)
				}
				b.closes()
			})
		})
	}
}

// A drain is for the replica that it names; where that leads nothing it is settled at once.
func TestDrainIsForTheReplicaThatItNames(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		drain := func(id int64, who string) control.State {
			return control.State{Requests: []control.Request{{ID: id, Kind: control.Drain, Replica: who, By: "ann"}}}
		}
		b := newBench(t, job("job", takes(3*time.Second)))
		term := newFakeTerm()
		returned := b.leads(term, "job", 4)
		synctest.Wait()
		b.Steer(drain(1, "other"))
		if b.elector.drained || b.settled.said() != "" {
			t.Errorf("another's drain: drained %v, settled: %s", b.elector.drained, b.settled.said())
		}
		b.Steer(drain(2, "me"))
		if !b.elector.drained || b.settled.said() != "" {
			t.Errorf("drained %v, settled: %s", b.elector.drained, b.settled.said())
		}
		close(term.asked)
		<-returned
		b.Steer(drain(2, "me"))
		if said := b.settled.said(); said != "2: it leads nothing any more" {
			t.Errorf("settled: %s", said)
		}
		b.closes()
	})
}
