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

// P7: of the ticks that fall due during a run of a job that queues, the newest is run after it, and
// the others are on record with the reason. A job never overlaps itself.
func TestQueuedTickIsTheNewestAndTheOthersAreSkipped(t *testing.T) {
	t.Parallel()
	for _, m := range []registry.Missed{registry.RunLatest, registry.RunAll, registry.RunNone} {
		t.Run(m.String(), func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				running := 0
				j := job("job", func(ctx context.Context, r *registry.Run) error {
					if running++; running > 1 {
						t.Error("it overlaps itself")
					}
					defer func() { running-- }()
					if r.Tick.Sub(bubble) == 5*time.Second {
						return pause(ctx, 18*time.Second)
					}
					return nil
				})
				j.Overlap, j.Missed = registry.Queue, m
				b := newBench(t, j)
				term := newFakeTerm()
				b.leads(term, "job", 1)
				after(22 * time.Second)
				if h := b.store.history("job"); h != "+5s open" {
					t.Errorf("during the run the history is %s", h)
				}
				after(4 * time.Second)
				if h := b.store.history("job"); h != "+5s success, +10s skipped, +15s skipped, +20s success, +25s success" {
					t.Errorf("the history is %s", h)
				}
				for _, r := range b.store.rows {
					if r.outcome == skipped && r.why != whyOverlap {
						t.Errorf("a tick was skipped since %q", r.why)
					}
				}
				b.closes(term)
			})
		})
	}
}

// P7: a tick that is queued when the term is asked for is the successor's.
func TestQueuedTickIsLeftToTheSuccessor(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		j := job("job", takes(8*time.Second))
		j.Overlap = registry.Queue
		b := newBench(t, j)
		term := newFakeTerm()
		returned := b.leads(term, "job", 1)
		after(11 * time.Second)
		close(term.asked)
		<-returned
		if h := b.store.history("job"); h != "+5s success" {
			t.Errorf("the history is %s", h)
		}
		next := newFakeTerm()
		b.leads(next, "job", 2)
		synctest.Wait()
		if h := b.store.history("job"); h != "+5s success, +10s open" {
			t.Errorf("under the next term the history is %s", h)
		}
		b.closes(next)
	})
}

// P7: ticks that fell due during a run, and could not be written off in time since the database was
// away, are skipped as such; a tick that fell due after it is run.
func TestTicksOfAnOutageAreJudgedByWhatTheJobDid(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		j := job("job", func(ctx context.Context, r *registry.Run) error {
			if r.Tick.Sub(bubble) == 5*time.Second {
				return pause(ctx, 12*time.Second)
			}
			return nil
		})
		b := newBench(t, j)
		term := newFakeTerm()
		b.leads(term, "job", 1)
		after(6 * time.Second)
		b.store.set(func() { b.store.locked["job"] = true })
		after(25 * time.Second) // +10 and +15 during the run, +20 to +30 after it
		b.store.set(func() { b.store.locked["job"] = false })
		after(time.Second)
		if h := b.store.history("job"); h != "+5s success, +10s skipped, +15s skipped, +20s missed, +25s missed, +30s success" {
			t.Errorf("the history is %s", h)
		}
		var whys []string
		for _, r := range b.store.rows {
			if r.why != "" {
				whys = append(whys, r.why)
			}
		}
		if want := []string{whyOverlap, whyOverlap, whyLate, whyLate}; fmt.Sprint(whys) != fmt.Sprint(want) {
			t.Errorf("the reasons are %s", strings.Join(whys, "; "))
		}
		b.closes(term)
	})
}

// P7: ticks that fall due while the claim of an earlier one is under way did not fall due during a run:
// the newest of them is run after it, and the others are missed.
func TestTicksThatAreDueBeforeAClaimIsAnsweredAreNotSkipped(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t, job("job", takes(700*time.Millisecond)))
		slow := true
		b.store.set(func() {
			b.store.fault = func(call string) error {
				if call == "claim" && slow {
					slow = false
					time.Sleep(13 * time.Second)
				}
				return nil
			}
		})
		term := newFakeTerm()
		b.leads(term, "job", 1)
		after(21 * time.Second)
		if h := b.store.history("job"); h != "+5s success, +10s missed, +15s success, +20s success" {
			t.Errorf("the history is %s", h)
		}
		b.closes(term)
	})
}
