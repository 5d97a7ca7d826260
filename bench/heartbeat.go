package main

import (
	"context"
	"fmt"
	"sync/atomic"
	"time"

	dto "github.com/prometheus/client_model/go"

	"rota/internal/lease"
)

// A round is one renewal of all leases by their holder, with two more copies that look on.
type round struct {
	cpu        time.Duration // the server's
	took       time.Duration // the holder's renewal, on average
	slowest    float64       // seconds: no renewal took longer
	statements float64
	hot        float64 // percent of the updates of leadership
}

// heartbeats compares the heartbeat that renews all leases with the article's loop, which runs one
// statement for each lease in each copy.
func heartbeats(ctx context.Context, w *world) (rows []row, err error) {
	for _, n := range []int{1, w.some(1000), w.some(10_000)} {
		ours, err := w.ourRound(ctx, n)
		if err != nil {
			return rows, fmt.Errorf("%d leases: %w", n, err)
		}
		theirs, err := w.articleRound(ctx, n)
		if err != nil {
			return rows, fmt.Errorf("the article's loop over %d leases: %w", n, err)
		}
		rows = append(rows, compare(n, ours, theirs)...)
	}
	return rows, nil
}

func compare(n int, ours, theirs round) []row {
	ofCore := func(cpu time.Duration) float64 { return 100 * cpu.Seconds() / usual.renew.Seconds() }
	took := row{
		Work: fmt.Sprintf("renewal of leases: %d, mean", n), Figure: ms(ours.took),
		Against: "article's loop " + ms(theirs.took), Ratio: over(ours.took, theirs.took),
	}
	core := row{
		Work: "  Postgres, 3 copies, every 5 s", Figure: fmt.Sprintf("%.2f %% of a core", ofCore(ours.cpu)),
		Against: fmt.Sprintf("%.2f %%", ofCore(theirs.cpu)), Ratio: over(ours.cpu, theirs.cpu),
	}
	statements := row{
		Work: "  statements of 3 copies, each time", Figure: fmt.Sprintf("%.1f", ours.statements),
		Against: fmt.Sprintf("%.0f", theirs.statements), Ratio: ours.statements / theirs.statements,
	}.barred("at most 15", ours.statements < 15.5)
	hot := row{
		Work: "  of its updates HOT", Figure: fmt.Sprintf("%.1f %%", ours.hot), Against: fmt.Sprintf("%.1f %%", theirs.hot),
	}.barred("over 95 %", ours.hot > 95)
	if n >= 10_000 {
		took = took.barred("slowest under 100 ms", ours.slowest <= .1)
		core = core.barred("under 3 %", ofCore(ours.cpu) < 3)
	}
	took.Figure += fmt.Sprintf(", slowest <= %g ms", 1000*ours.slowest)
	if n == 1 {
		return []row{took, core, statements}
	}
	return []row{took, core, statements, hot}
}

// ourRound has one replica lead n leases from an empty, never analysed table, and two stand by. It
// beats every second and not every five: what it costs is counted for each beat.
func (w *world) ourRound(ctx context.Context, n int) (result round, err error) {
	if _, err := w.db.Exec(ctx, "TRUNCATE leadership, terms, replicas"); err != nil {
		return result, err
	}
	var replicas []*replica
	defer func() { endAll(replicas) }()
	var led atomic.Int64
	for i := range 3 {
		r, err := w.replica(ctx, fmt.Sprint("replica", i), pace{3 * time.Second, time.Second}, named(n), func(t *lease.Term) {
			led.Add(1)
			stay(t)
		})
		if err != nil {
			return result, err
		}
		replicas = append(replicas, r)
		// The first leads all of them before there is a second.
		if err := until(ctx, func() bool { return led.Load() >= int64(n) }); err != nil {
			return result, fmt.Errorf("%d of them are led: %w", led.Load(), err)
		}
	}
	time.Sleep(3 * time.Second) // the others have come in
	holder := replicas[0]
	before, err := w.measured(ctx, holder)
	if err != nil {
		return result, err
	}
	time.Sleep(time.Duration(max(3, w.some(30))) * time.Second)
	after, err := w.measured(ctx, holder)
	if err != nil {
		return result, err
	}
	if led.Load() != int64(n) {
		return result, fmt.Errorf("%d terms began where %d should", led.Load(), n)
	}
	return after.since(before)
}

// A sample is what has been counted up to a moment.
type sample struct {
	cpu          time.Duration
	beats        *dto.Histogram
	statements   int64
	updates, hot int64
}

func (w *world) measured(ctx context.Context, r *replica) (s sample, err error) {
	if s, err = w.counted(ctx); err != nil {
		return s, err
	}
	s.beats, err = r.beats()
	return s, err
}

// counted is a sample of the server alone.
func (w *world) counted(ctx context.Context) (s sample, err error) {
	if s.cpu, err = w.cpu(); err != nil {
		return s, err
	}
	if s.statements, err = w.statements(ctx); err != nil {
		return s, err
	}
	s.updates, s.hot, err = w.updates(ctx)
	return s, err
}

// since is one of the rounds between two samples.
func (s sample) since(b sample) (r round, err error) {
	beats := s.beats.GetSampleCount() - b.beats.GetSampleCount()
	if beats == 0 || s.updates == b.updates {
		return r, fmt.Errorf("no heartbeat was counted")
	}
	seconds := (s.beats.GetSampleSum() - b.beats.GetSampleSum()) / float64(beats)
	r = round{
		cpu:        (s.cpu - b.cpu) / time.Duration(beats),
		took:       time.Duration(seconds * float64(time.Second)),
		statements: float64(s.statements-b.statements) / float64(beats),
		hot:        100 * float64(s.hot-b.hot) / float64(s.updates-b.updates),
	}
	for i, bucket := range s.beats.GetBucket() {
		if bucket.GetCumulativeCount()-b.beats.GetBucket()[i].GetCumulativeCount() == beats {
			r.slowest = bucket.GetUpperBound()
			return r, nil
		}
	}
	return r, fmt.Errorf("a heartbeat took longer than the histogram counts")
}
