package scheduler

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"rota/internal/control"
	"rota/internal/registry"
)

// asked is a request for a run of the job, made so many milliseconds after the bubble began.
func asked(id int64, args string) control.Request {
	r := control.Request{ID: id, Kind: control.Run, Job: "job", Lease: "job", By: "ann", Made: bubble.Add(time.Millisecond)}
	if id > 7 {
		r.Made = bubble.Add(time.Duration(id) * time.Millisecond)
	}
	if args != "" {
		r.Args = json.RawMessage(args)
	}
	return r
}

// asks has the scheduler see one request.
func (b *bench) asks(id int64, args string) {
	b.Steer(control.State{Requests: []control.Request{asked(id, args)}})
	synctest.Wait()
}

// bounded is a job with arguments that never ticks.
func bounded(f func(context.Context, *registry.Run) error) registry.Job {
	return registry.Job{
		Name: "job", Schedule: registry.OnDemand, Run: f,
		Args: struct {
			Limit int
			Where string
		}{7, "LP-3"},
	}
}

// P7: a request is run at once where the job is idle, with its arguments over the job's own, and
// settled; it is run once, however often and however long it is seen.
func TestRequestIsRunOnceHoweverOftenItIsSeen(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var runs notebook[string]
		b := newBench(t, bounded(func(ctx context.Context, r *registry.Run) error {
			runs.add(fmt.Sprint(r.Args, " ", r.Tick.Sub(bubble), " ", r.Attempt))
			return pause(ctx, 3*time.Second)
		}))
		b.store.set(func() {
			b.store.fault = func(call string) error { // its end is not on record for long
				if call == "record" && time.Since(bubble) < time.Minute {
					return fmt.Errorf("%s: down", call)
				}
				return nil
			}
		})
		term := newFakeTerm()
		b.leads(term, "job", 1)
		synctest.Wait()
		for range 10 {
			b.asks(1, `{"limit": 12}`)
		}
		for range 100 {
			after(time.Second)
			b.asks(1, `{"limit": 12}`)
		}
		if got := runs.read(); len(got) != 1 || got[0] != "{12 LP-3} 1ms 1" {
			t.Errorf("the runs are %q", got)
		}
		if said := b.settled.said(); said != "1: run 1 has begun" {
			t.Errorf("settled: %s", said)
		}
		if h := b.store.history("job"); h != "+1ms success" || b.store.first().request != 1 {
			t.Errorf("the history is %s, for request %d", h, b.store.first().request)
		}
		b.closes(term)
	})
}

// P7: a request whose claim's answer was lost is run once, and settled once it is known.
func TestRequestIsRunOnceWhereItsAnswerIsLost(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		runs := 0
		b := newBench(t, bounded(func(context.Context, *registry.Run) error {
			runs++
			return nil
		}))
		term := newFakeTerm()
		b.leads(term, "job", 1)
		b.store.set(func() { b.store.answers["claim"] = true })
		synctest.Wait()
		for range 10 {
			b.asks(1, "")
			after(time.Second)
		}
		if runs != 0 || b.settled.said() != "" {
			t.Errorf("before the answer: %d runs, settled: %s", runs, b.settled.said())
		}
		b.store.set(func() { b.store.answers["claim"] = false })
		after(time.Second)
		if h := b.store.history("job"); runs != 1 || h != "+1ms success" || b.settled.said() != "1: run 1 has begun" {
			t.Errorf("%d runs, the history is %s, settled: %s", runs, h, b.settled.said())
		}
		b.closes(term)
	})
}

// P7: a request that another term has run, or another replica, is settled and not run.
func TestRequestThatWasRunBeforeIsNotRunAgain(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t, bounded(func(context.Context, *registry.Run) error {
			t.Error("it ran")
			return nil
		}))
		b.store.add(fakeRun{end: end{owner: "other", outcome: success}, lease: "job", tick: bubble, attempt: 1, request: 1, ticks: 1})
		term := newFakeTerm()
		b.leads(term, "job", 2)
		synctest.Wait()
		b.asks(1, "")
		after(time.Second)
		if said := b.settled.said(); said != "1: it has been run" {
			t.Errorf("settled: %s", said)
		}
		b.closes(term)
	})
}

// Requests wait for the run under way, and are then run in the order in which they were made, before
// the ticks that fell due meanwhile. A tick that was due before one is not skipped by it.
func TestRequestsAreRunInOrderAfterTheRunUnderWay(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var order notebook[string]
		j := job("job", func(ctx context.Context, r *registry.Run) error {
			order.add(fmt.Sprint(time.Since(bubble), " for ", r.Tick.Sub(bubble)))
			return pause(ctx, 1500*time.Millisecond)
		})
		j.Overlap = registry.Queue
		b := newBench(t, j)
		term := newFakeTerm()
		b.leads(term, "job", 1)
		after(6 * time.Second)
		b.Steer(control.State{Requests: []control.Request{asked(11, ""), asked(12, ""), asked(13, "")}})
		after(8 * time.Second)
		want := "5s for 5s, 6.5s for 11ms, 8s for 12ms, 9.5s for 13ms, 11s for 10s"
		if got := strings.Join(order.read(), ", "); got != want {
			t.Errorf("the order is %s, want %s", got, want)
		}
		b.closes(term)
	})
}

// What cannot be run is refused with the reason.
func TestRequestThatCannotBeRunIsRefused(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		job  registry.Job
		args string
		want string
	}{
		"no such field": {bounded(idle), `{"limits": 3}`, `1: refused: there is no field "limits"`},
		"wrong type":    {bounded(idle), `{"limit": "many"}`, "1: refused: Limit"},
		"no arguments":  {registry.Job{Name: "job", Schedule: registry.OnDemand, Run: idle}, `{"limit": 3}`, "1: refused: the job takes none"},
		"continuous":    {registry.Job{Name: "job", Schedule: registry.Continuous, Run: takes(time.Hour)}, "", "1: refused: a Continuous job"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				b := newBench(t, c.job)
				term := newFakeTerm()
				b.leads(term, "job", 1)
				synctest.Wait()
				b.asks(1, c.args)
				after(time.Second)
				if said := b.settled.said(); !strings.HasPrefix(said, c.want) || strings.Contains(b.store.history("job"), "+1ms") {
					t.Errorf("settled: %s; the history is %s", said, b.store.history("job"))
				}
				b.closes(term)
			})
		})
	}
}

// P6, P7: a request that is seen once the term is asked for is the successor's, as is one that waits.
func TestRequestIsLeftToTheSuccessorOnceTheTermIsAskedFor(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t, bounded(takes(5*time.Second)))
		term := newFakeTerm()
		returned := b.leads(term, "job", 1)
		synctest.Wait()
		b.asks(11, "")
		b.asks(12, "") // waits
		close(term.asked)
		synctest.Wait()
		b.asks(13, "")
		<-returned
		if h := b.store.history("job"); h != "+11ms success" || b.settled.said() != "11: run 1 has begun" {
			t.Errorf("the history is %s, settled: %s", h, b.settled.said())
		}
		next := newFakeTerm()
		b.Steer(control.State{Requests: []control.Request{asked(12, ""), asked(13, "")}})
		b.leads(next, "job", 2) // told of what is wanted although it is asked for before
		after(11 * time.Second)
		if h := b.store.history("job"); h != "+11ms success, +12ms success, +13ms success" {
			t.Errorf("under the next term the history is %s", h)
		}
		b.closes(next)
	})
}

// P4: a request does not run before its term is ready.
func TestRequestWaitsUntilTheTermIsReady(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t, bounded(idle))
		b.store.set(func() { b.store.locked["job"] = true })
		term := newFakeTerm()
		b.leads(term, "job", 1)
		synctest.Wait()
		b.asks(1, "")
		after(10 * time.Second)
		if n := b.store.count("claim"); n != 0 {
			t.Errorf("there are %d claims", n)
		}
		b.store.set(func() { b.store.locked["job"] = false })
		after(time.Second)
		if h := b.store.history("job"); h != "+1ms success" {
			t.Errorf("the history is %s", h)
		}
		b.closes(term)
	})
}
