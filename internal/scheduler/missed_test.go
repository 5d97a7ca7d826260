package scheduler

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"rota/internal/registry"
)

// span is the history of ticks, five seconds apart, that all came out alike; from and to are
// seconds since the bubble began.
func span(from, to int, o outcome) string {
	var all []string
	for at := from; at <= to; at += 5 {
		all = append(all, fmt.Sprintf("+%v %s", time.Duration(at)*time.Second, o))
	}
	return strings.Join(all, ", ")
}

// P7: whatever the policy, each tick that fell due while nobody led is on record, as many as it says
// are run at once, oldest first, and the next ones are on time.
func TestMissedTicksAreHandledByTheJobsPolicy(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		missed  registry.Missed
		ticks   int // the newest at the bubble's begin
		want    string
		skipped int64 // counted as missed
	}{
		{registry.RunAll, 3, span(-10, 0, success), 0},
		{registry.RunAll, 100, span(-495, 0, success), 0},
		{registry.RunAll, 101, span(-500, -500, missed) + ", " + span(-495, 0, success), 1},
		{registry.RunAll, 1000, span(-4995, -500, missed) + ", " + span(-495, 0, success), 900},
		{registry.RunAll, 5000, "+-8m20s missed x4900, " + span(-495, 0, success), 4900},
		{registry.RunLatest, 101, span(-500, -5, missed) + ", +0s success", 100},
		{registry.RunLatest, 1000, span(-4995, -5, missed) + ", +0s success", 999},
		{registry.RunNone, 1, span(0, 0, missed), 1},
		{registry.RunNone, 101, span(-500, 0, missed), 101},
		{registry.RunNone, 1000, span(-4995, 0, missed), 1000},
		{registry.RunNone, 5000, "+-8m20s missed x4900, " + span(-495, 0, missed), 5000},
	} {
		t.Run(fmt.Sprint(c.missed, " of ", c.ticks), func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				var runs notebook[time.Time]
				j := job("job", func(_ context.Context, r *registry.Run) error {
					runs.add(r.Tick)
					return nil
				})
				j.Missed = c.missed
				b := newBench(t, j)
				b.store.last["job"] = bubble.Add(-time.Duration(c.ticks) * 5 * time.Second)
				time.Sleep(2 * time.Second)
				term := newFakeTerm()
				b.leads(term, "job", 1)
				after(time.Second)
				if h := b.store.history("job"); h != c.want {
					t.Errorf("the history is %s, want %s", h, c.want)
				}
				after(10 * time.Second)
				if h := b.store.history("job"); h != c.want+", "+span(5, 10, success) {
					t.Errorf("in the end the history is %s", h)
				}
				if n := b.sample("rota_runs_total", "job_name=job", "outcome=missed"); int64(n) != c.skipped {
					t.Errorf("%v missed ticks are counted, want %d", n, c.skipped)
				}
				for n, at := range runs.read() {
					if n > 0 && !at.After(runs.read()[n-1]) {
						t.Errorf("run %d is for %v, after %v", n, at, runs.read()[n-1])
					}
				}
				b.closes(term)
			})
		})
	}
}

// P7: while RunAll catches up, a tick that falls due is one more to catch up with; after that, one
// that falls due during a run is skipped again.
func TestTickThatIsDueWhileCatchingUpIsRun(t *testing.T) {
	t.Parallel()
	for _, overlap := range []registry.Overlap{registry.Skip, registry.Queue} {
		synctest.Test(t, func(t *testing.T) {
			j := job("job", func(ctx context.Context, r *registry.Run) error {
				if r.Tick.Sub(bubble) >= 25*time.Second {
					return pause(ctx, 7*time.Second)
				}
				return pause(ctx, 2*time.Second)
			})
			j.Missed, j.Overlap = registry.RunAll, overlap
			b := newBench(t, j)
			b.store.last["job"] = bubble.Add(-50 * time.Second)
			time.Sleep(time.Second)
			term := newFakeTerm()
			b.leads(term, "job", 1)
			after(40 * time.Second)
			want := span(-45, 25, success) + ", +30s skipped, +35s skipped, +40s open"
			if overlap == registry.Queue {
				want = span(-45, 25, success) + ", +30s skipped, +35s open"
			}
			if h := b.store.history("job"); h != want {
				t.Errorf("%v: the history is %s, want %s", overlap, h, want)
			}
			b.closes(term)
		})
	}
}

// P7: of a catch-up that falls behind by more than it may make up for, the oldest are written off.
func TestCatchUpThatFallsBehindWritesTheOldestOff(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		j := job("job", func(ctx context.Context, r *registry.Run) error {
			if r.Tick.Equal(bubble.Add(-5 * time.Second)) {
				return pause(ctx, 600*time.Second) // 120 periods
			}
			return nil
		})
		j.Missed = registry.RunAll
		b := newBench(t, j)
		b.store.last["job"] = bubble.Add(-10 * time.Second)
		term := newFakeTerm()
		b.leads(term, "job", 1)
		after(601 * time.Second)
		want := span(-5, -5, success) + ", " + span(0, 0, missed) + ", " + span(5, 100, skipped) + ", " + span(105, 600, success)
		if h := b.store.history("job"); h != want {
			t.Errorf("the history is %s, want %s", h, want)
		}
		b.closes(term)
	})
}

// P7: what an earlier term left unfinished goes first, and the ticks that fell due while nobody led are
// handled by the policy after it: they did not fall due during that run.
func TestTicksMissedBeforeALostRunAreNotSkippedByIt(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		missed  registry.Missed
		overlap registry.Overlap
		want    string
	}{
		{registry.RunLatest, registry.Skip, span(-15, -5, missed) + ", +5s skipped, +0s success, +10s success"},
		{registry.RunLatest, registry.Queue, span(-15, 0, missed) + ", +5s success, +10s success"},
		{registry.RunNone, registry.Skip, span(-15, 0, missed) + ", +5s skipped, +10s success"},
		{registry.RunNone, registry.Queue, span(-15, 0, missed) + ", +5s success, +10s success"},
		{registry.RunAll, registry.Skip, span(-15, 10, success)},
		{registry.RunAll, registry.Queue, span(-15, 10, success)},
	} {
		t.Run(fmt.Sprint(c.missed, ", ", c.overlap), func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				j := job("job", func(ctx context.Context, r *registry.Run) error {
					if r.Attempt > 1 {
						return pause(ctx, 4*time.Second)
					}
					return nil
				})
				j.Missed, j.Overlap = c.missed, c.overlap
				b := newBench(t, j)
				b.store.add(fakeRun{end: end{owner: "other"}, lease: "job", tick: bubble.Add(-20 * time.Second), attempt: 1, ticks: 1})
				b.store.last["job"] = bubble.Add(-20 * time.Second)
				time.Sleep(2 * time.Second)
				term := newFakeTerm()
				b.leads(term, "job", 2)
				after(9 * time.Second)
				if h := b.store.history("job"); h != "+-20s lost, +-20s success (2), "+c.want {
					t.Errorf("the history is %s, want %s", h, c.want)
				}
				b.closes(term)
			})
		})
	}
}
