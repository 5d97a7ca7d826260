package scheduler

import (
	"log/slog"
	"testing"
	"time"

	"rota/internal/fence"
	"rota/internal/registry"
)

// P8: a gap of a year is walked while other ticks are claimed, not before; then it is claimed whole.
func TestLongGapHoldsUpNoOtherTick(t *testing.T) {
	t.Parallel()
	now := bubble.AddDate(1, 0, 0)
	k := newTicker(nil, func() time.Time { return now }, newRecorder(nil, nil), func(int64, string) {}, slog.New(slog.DiscardHandler))
	for name, last := range map[string]time.Time{"year": bubble, "second": now.Add(-time.Second)} {
		e := newEntry(fence.Token{Lease: name}, &registry.Job{Name: name, Schedule: registry.Cron("* * * * * *")}, nil, nil)
		k.plan(e, opened{last: last, now: now})
	}
	_, asked, _ := k.take()
	if len(asked) != 1 || asked[0].job != "second" || len(asked[0].passed) != 0 {
		t.Fatalf("at once %d are claimed: %+v", len(asked), asked)
	}
	k.walking.Wait()
	_, asked, _ = k.take()
	if len(asked) != 1 || asked[0].job != "year" || !asked[0].until.Equal(now) || len(asked[0].passed) != listedNewest || asked[0].passed[0].ticks != countedTicks {
		t.Fatalf("then %d are claimed: %+v", len(asked), asked)
	}
}

// P7: a gap that was walked before the clock was set back is walked anew, or it would be claimed too
// early, over and over.
func TestWalkedGapIsUsedOnce(t *testing.T) {
	t.Parallel()
	now := bubble.Add(time.Hour)
	e := newEntry(fence.Token{Lease: "job"}, &registry.Job{Name: "job", Schedule: registry.Every(time.Second)}, nil, nil)
	e.since, e.tick = now, bubble
	if e.walked = e.long(now); e.walked == nil {
		t.Fatal("an hour is no long gap")
	}
	e.walked.backlog = due(e.job.Schedule, e.tick, now)
	if c := e.compose(now); !c.until.Equal(now) {
		t.Errorf("first up to %v", c.until)
	}
	if c := e.compose(now.Add(-time.Minute)); !c.until.Equal(now.Add(-time.Minute)) {
		t.Errorf("then up to %v", c.until)
	}
}
