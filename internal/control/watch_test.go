package control

import (
	"context"
	"encoding/json"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

// A steered is a watch at work, and what it has shown.
type steered struct {
	*Watch
	o    *office
	stop func()

	mu     sync.Mutex
	states []State
	at     []time.Time
}

func (o *office) watch(owner string, every time.Duration) *steered {
	s := &steered{Watch: NewWatch(o.db, owner, nil), o: o}
	s.every = every
	ctx, cancel := context.WithCancel(context.Background())
	var running sync.WaitGroup
	running.Go(func() { s.Run(ctx, s.steer) })
	s.stop = func() {
		cancel()
		running.Wait()
	}
	o.t.Cleanup(s.stop)
	return s
}

func (s *steered) steer(state State) {
	s.mu.Lock()
	s.states, s.at = append(s.states, state), append(s.at, time.Now())
	s.mu.Unlock()
}

func (s *steered) last() (state State) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if n := len(s.states); n > 0 {
		state = s.states[n-1]
	}
	return state
}

func (s *steered) looks() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return len(s.states)
}

// seesNext waits for a look that was begun after now.
func (s *steered) seesNext() State {
	s.o.t.Helper()
	n := s.looks()
	eventually(s.o.t, "it has looked twice", func() bool {
		s.Wake()
		return s.looks() >= n+2
	})
	return s.last()
}

func TestWatchSeesRequestsAndThePausesInForce(t *testing.T) {
	t.Parallel()
	o := newOffice(t)
	ctx := t.Context()
	o.led("prices", "a/1", 3)
	o.led("plain", "b/1", 4)
	run := o.running("plain")
	asked := must[Asked](t)(o.RunNow(ctx, order("why"), "prices", object(`{"limit": 9}`), ""))
	must[Asked](t)(o.Cancel(ctx, order("x"), run))
	must[Asked](t)(o.StepDown(ctx, order("move"), "prices"))
	must[Asked](t)(o.Drain(ctx, order("update"), "b/1"))
	must[Paused](t)(o.Pause(ctx, order("incident"), "prices", time.Time{}))
	o.exec(`INSERT INTO pauses (job, reason, paused_by, paused_at, until) VALUES ('plain', 'old', 'bob', now() - interval '2 hours', now() - interval '1 hour')`)

	w := o.watch("a/1", Interval)
	state := w.seesNext()
	if len(state.Requests) != 4 {
		t.Fatalf("requests %+v, want 4", state.Requests)
	}
	got := state.Requests[0]
	if string(got.Args) == "" || !json.Valid(got.Args) || got.Made.IsZero() {
		t.Errorf("arguments %s, made %v", got.Args, got.Made)
	}
	got.Made, got.Args = time.Time{}, nil
	want := Request{ID: asked.ID, Kind: Run, Job: "prices", Lease: "prices", Reason: "why", By: "alice"}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
	for i, want := range []Request{
		{Kind: Cancel, Job: "plain", Lease: "plain", Run: run, Reason: "x", By: "alice"},
		{Kind: StepDown, Job: "prices", Lease: "prices", Epoch: 3, Reason: "move", By: "alice"},
		{Kind: Drain, Replica: "b/1", Reason: "update", By: "alice"},
	} {
		got := state.Requests[i+1]
		if got.ID <= state.Requests[i].ID {
			t.Errorf("request %d comes after %d", got.ID, state.Requests[i].ID)
		}
		got.ID, got.Made = 0, time.Time{}
		if diff := cmp.Diff(want, got); diff != "" {
			t.Error(diff)
		}
	}
	if p, ok := state.Paused("prices"); !ok || p.Reason != "incident" || p.By != "alice" || p.At.IsZero() || !p.Until.IsZero() {
		t.Errorf("pause %+v %v", p, ok)
	}
	if p, ok := state.Paused("plain"); ok {
		t.Errorf("a pause whose time is over is shown: %+v", p)
	}
	if d := time.Since(state.AsOf); d < -time.Minute || d > time.Minute {
		t.Errorf("as of %v", state.AsOf)
	}
}

// P8: times of requests and pauses that nobody can reckon with, which another program may have written,
// keep no replica from what else is asked for.
func TestTimesThatNobodyCanReckonWithHideNothing(t *testing.T) {
	t.Parallel()
	o := newOffice(t)
	for _, odd := range []string{"infinity", "-infinity", "294276-01-01", "4713-01-01 BC"} {
		run := must[Asked](t)(o.RunNow(t.Context(), order("x"), "prices", nil, ""))
		o.exec(`UPDATE requests SET made_at = $1 WHERE id = $2`, odd, run.ID)
	}
	must[Paused](t)(o.Pause(t.Context(), order("x"), "prices", time.Time{}))
	must[Paused](t)(o.Pause(t.Context(), order("x"), AllJobs, time.Time{}))
	o.exec(`UPDATE pauses SET paused_at = '-infinity', until = 'infinity' WHERE job = 'prices'`)
	o.exec(`UPDATE pauses SET paused_at = '4713-01-01 BC', until = '294276-01-01' WHERE job = '*'`)
	state := o.watch("a/1", time.Minute).seesNext()
	if len(state.Requests) != 4 || len(state.Pauses) != 2 {
		t.Fatalf("%d requests and %d pauses are seen", len(state.Requests), len(state.Pauses))
	}
	for _, r := range state.Requests {
		if r.Made.Sub(state.AsOf).Abs() > time.Minute {
			t.Errorf("request %d was made at %v", r.ID, r.Made)
		}
	}
	for _, p := range state.Pauses {
		if p.At.Sub(state.AsOf).Abs() > time.Minute || !p.Until.IsZero() {
			t.Errorf("%s: paused at %v until %v", p.Job, p.At, p.Until)
		}
		must[Resumed](t)(o.Resume(t.Context(), order("x"), p.Job))
	}
}

func TestPauseOfItsOwnComesBeforeTheOneOfAll(t *testing.T) {
	t.Parallel()
	s := State{Pauses: []Pause{{Job: "a", Reason: "own"}, {Job: AllJobs, Reason: "all"}}}
	for _, c := range []struct {
		job, reason string
		pauses      []Pause
	}{
		{"a", "own", s.Pauses}, {"b", "all", s.Pauses}, {"b", "", s.Pauses[:1]}, {"a", "all", s.Pauses[1:]},
	} {
		if p, ok := (State{Pauses: c.pauses}).Paused(c.job); p.Reason != c.reason || ok != (c.reason != "") {
			t.Errorf("%s: %q %v, want %q", c.job, p.Reason, ok, c.reason)
		}
	}
}

// What nobody will ever carry out, or somebody has, is settled by whoever sees it.
func TestLookSettlesWhatIsOver(t *testing.T) {
	t.Parallel()
	ctx := context.Background()
	for name, c := range map[string]struct {
		ask   func(*office) (Asked, error)
		after func(*office) // nil: it stays open
		want  string
	}{
		"a run that is under way": {ask: func(o *office) (Asked, error) { return o.Cancel(ctx, order("x"), o.running("prices")) }},
		"a run that has ended": {
			ask:   func(o *office) (Asked, error) { return o.Cancel(ctx, order("x"), o.running("prices")) },
			after: func(o *office) { o.exec(`UPDATE runs SET ended_at = now(), outcome = 'cancelled'`) },
			want:  "the run has ended: cancelled",
		},
		"a run that was pruned": {
			ask:   func(o *office) (Asked, error) { return o.Cancel(ctx, order("x"), o.running("prices")) },
			after: func(o *office) { o.exec(`DELETE FROM runs`) },
			want:  "not on record",
		},
		"a term that lasts": {ask: func(o *office) (Asked, error) { return o.StepDown(ctx, order("x"), "prices") }},
		"a term that has run out": {
			ask:   func(o *office) (Asked, error) { return o.StepDown(ctx, order("x"), "prices") },
			after: func(o *office) { o.exec(`UPDATE leadership SET expires_at = now() - interval '1 s'`) },
			want:  "the term has ended: released",
		},
		"a term that another has followed": {
			ask:   func(o *office) (Asked, error) { return o.StepDown(ctx, order("x"), "prices") },
			after: func(o *office) { o.exec(`UPDATE leadership SET owner = 'b/1', epoch = epoch + 1`) },
			want:  "the term has ended: replaced",
		},
		"a replica that leads":               {ask: func(o *office) (Asked, error) { return o.Drain(ctx, order("x"), "a/1") }},
		"a replica that leads and drains":    {ask: drainAsked},
		"a replica that has drained":         {ask: drainAsked, after: func(o *office) { o.exec(`UPDATE leadership SET expires_at = now()`) }, want: "leads nothing"},
		"a replica that has left":            {ask: drainAsked, after: func(o *office) { o.exec(`DELETE FROM replicas`) }, want: "has gone"},
		"a replica that was silent for long": {ask: drainAsked, after: func(o *office) { o.exec(`UPDATE replicas SET expires_at = now() - interval '1 min'`) }, want: "has gone"},
		"a request to run":                   {ask: func(o *office) (Asked, error) { return o.RunNow(ctx, order(""), "prices", nil, "") }},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			o := newOffice(t)
			o.led("prices", "a/1", 3)
			asked := must[Asked](t)(c.ask(o))
			w := o.watch("b/1", Interval)
			if state := w.seesNext(); len(state.Requests) != 1 {
				t.Fatalf("requests before: %+v", state.Requests)
			}
			if c.after != nil {
				c.after(o)
			}
			left := len(w.seesNext().Requests)
			result := one[string](o, `SELECT coalesce(result, '') FROM requests`)
			if left != 1 && c.after == nil || left != 0 && c.after != nil || !strings.Contains(result, c.want) || (result == "") != (c.want == "") {
				t.Fatalf("%d requests are open, result %q, want %q", left, result, c.want)
			}
			if c.after == nil {
				return
			}
			lines := o.audit()
			if len(lines) != 2 || lines[1].Actor != "b/1" || lines[1].Via != "replica" || lines[1].Request != asked.ID ||
				lines[1].Action != lines[0].Action || lines[1].Detail["result"] != result {
				t.Errorf("audit: %+v", lines)
			}
		})
	}
}

func drainAsked(o *office) (Asked, error) {
	a, err := o.Drain(context.Background(), order("x"), "a/1")
	o.exec(`UPDATE replicas SET draining = true`)
	return a, err
}

func TestDoneIsWrittenOnceAndTheFirstWins(t *testing.T) {
	t.Parallel()
	o := newOffice(t)
	asked := must[Asked](t)(o.RunNow(t.Context(), order(""), "prices", nil, ""))
	first, second := o.watch("a/1", Interval), o.watch("b/1", Interval)
	first.seesNext()
	second.seesNext()
	first.Done(asked.ID, "success")
	first.Done(asked.ID, "said again")
	eventually(t, "it is written", func() bool { return one[bool](o, `SELECT done_at IS NOT NULL FROM requests`) })
	second.Done(asked.ID, "too late")
	eventually(t, "the second has nothing left to write", func() bool { ids, _ := second.pending(); return len(ids) == 0 })
	if got := one[string](o, `SELECT result FROM requests`); got != "success" {
		t.Errorf("result %q", got)
	}
	if lines := o.audit(); len(lines) != 2 || lines[1].Actor != "a/1" {
		t.Errorf("audit: %+v", lines)
	}
}

func TestManyReplicasSettleOneRequestOnce(t *testing.T) {
	t.Parallel()
	o := newOffice(t)
	var all []*steered
	for _, owner := range []string{"a/1", "b/1", "c/1", "d/1"} {
		all = append(all, o.watch(owner, Interval))
	}
	for range 20 {
		asked := must[Asked](t)(o.RunNow(t.Context(), order(""), "plain", nil, ""))
		for _, w := range all {
			w.Done(asked.ID, "success")
		}
	}
	for _, w := range all {
		eventually(t, "all is written", func() bool { ids, _ := w.pending(); return len(ids) == 0 })
	}
	if n := one[int](o, `SELECT count(*) FROM audit WHERE via = 'replica'`); n != 20 {
		t.Errorf("%d lines for 20 requests", n)
	}
}

// A settlement that cannot be written yet is not shown as open, and delays nothing else.
func TestLookWaitsForNobodysLocks(t *testing.T) {
	t.Parallel()
	o := newOffice(t)
	o.led("prices", "a/1", 3)
	held := must[Asked](t)(o.RunNow(t.Context(), order(""), "prices", nil, ""))
	over := must[Asked](t)(o.StepDown(t.Context(), order("x"), "prices"))
	other := must[Asked](t)(o.RunNow(t.Context(), order(""), "plain", nil, ""))
	o.exec(`UPDATE leadership SET expires_at = now()`)
	letGo := o.hold(`SELECT 1 FROM requests WHERE id IN ($1, $2) FOR UPDATE`, held.ID, over.ID)
	defer letGo()
	w := o.watch("a/1", Interval)
	w.Done(held.ID, "success")
	w.Done(other.ID, "success")
	eventually(t, "the other one is written", func() bool {
		return one[bool](o, `SELECT done_at IS NOT NULL FROM requests WHERE id = $1`, other.ID)
	})
	for _, r := range w.seesNext().Requests {
		t.Errorf("request %+v is shown as open", r)
	}
	if n := one[int](o, `SELECT count(*) FROM requests WHERE done_at IS NULL`); n != 2 {
		t.Errorf("%d requests are open, want the 2 whose rows are held", n)
	}
	letGo()
	eventually(t, "all are settled", func() bool { return one[int](o, `SELECT count(*) FROM requests WHERE done_at IS NULL`) == 0 })
}

func TestWhatDoneWasToldIsWrittenAtTheEnd(t *testing.T) {
	t.Parallel()
	o := newOffice(t)
	w := o.watch("a/1", Interval)
	w.seesNext()
	asked := must[Asked](t)(o.RunNow(t.Context(), order(""), "prices", nil, ""))
	letGo := o.hold(`LOCK TABLE audit IN ACCESS EXCLUSIVE MODE`) // so that it does not come through before the end
	w.Done(asked.ID, "zero \x00 and \xff and "+strings.Repeat("long", 5000))
	ended := make(chan struct{})
	go func() { w.stop(); close(ended) }()
	letGo()
	<-ended
	if got := one[string](o, `SELECT result FROM requests`); !strings.HasPrefix(got, "zero  and \uFFFD and long") || len(got) > longestText+3 {
		t.Errorf("result %.40q of %d bytes", got, len(got))
	}
}

func TestWatchPolls(t *testing.T) {
	t.Parallel()
	o := newOffice(t)
	w := o.watch("a/1", Interval)
	eventually(t, "it has polled", func() bool { return w.looks() >= 4 })
	w.mu.Lock()
	defer w.mu.Unlock()
	if gap := w.at[3].Sub(w.at[2]); gap < Interval/2 {
		t.Errorf("two looks are %v apart", gap)
	}
}

func TestHintsAreSeenAndHowManyDoesNotMatter(t *testing.T) {
	t.Parallel()
	o := newOffice(t)
	w := o.watch("a/1", time.Hour)
	eventually(t, "it has looked at the start", func() bool { return w.looks() == 1 })
	for range 1000 {
		w.Wake()
	}
	eventually(t, "it has looked again", func() bool { return w.looks() > 1 })
	asked := must[Asked](t)(o.RunNow(t.Context(), order(""), "prices", nil, ""))
	w.Done(asked.ID, "success")
	eventually(t, "what it was told is written", func() bool { return one[bool](o, `SELECT done_at IS NOT NULL FROM requests`) })
	w.stop()
	if n := w.looks(); n > 20 {
		t.Errorf("%d looks for hints that came all at once", n)
	}
}
