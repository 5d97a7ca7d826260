package main

import (
	"context"
	"fmt"
	"runtime"
	"sync/atomic"
	"time"

	"rota/internal/lease"
)

// crowds spreads 100,000 leases over ten replicas, and measures what it costs that nothing happens.
func crowds(ctx context.Context, w *world) (rows []row, err error) {
	const copies = 10
	leases := named(w.some(100_000))
	before := memory()
	var replicas []*replica
	defer func() { endAll(replicas) }()
	var led, terms atomic.Int64
	began := time.Now()
	for i := range copies {
		r, err := w.replica(ctx, fmt.Sprint("replica", i), usual, leases, func(t *lease.Term) {
			led.Add(1)
			terms.Add(1)
			untilOver(t)
			led.Add(-1)
		})
		if err != nil {
			return nil, err
		}
		replicas = append(replicas, r)
	}
	// Some are always on the move as long as they spread.
	if err := until(ctx, func() bool { return led.Load() >= int64(len(leases)*99/100) }); err != nil {
		return nil, fmt.Errorf("%d of %d are led: %w", led.Load(), len(leases), err)
	}
	started := time.Since(began)
	// Until nothing has moved for two heartbeats, they are still spreading.
	for quiet := int64(-1); quiet != terms.Load() || led.Load() < int64(len(leases)); {
		quiet = terms.Load()
		select {
		case <-time.After(2 * usual.renew):
		case <-ctx.Done():
			return nil, fmt.Errorf("%d of %d are led: %w", led.Load(), len(leases), ctx.Err())
		}
	}
	spread := time.Since(began) - 2*usual.renew
	used := memory() - before
	cost, err := w.idleCost(ctx, replicas, terms.Load)
	if err != nil {
		return nil, err
	}
	each := float64(used) / float64(len(leases)) / 1024
	what := fmt.Sprintf("%d leases over %d replicas", len(leases), copies)
	return []row{
		row{Work: what + ", heartbeat, mean", Figure: ms(cost.beat) + fmt.Sprintf(", slowest <= %g ms", 1000*cost.slowest)}.
			barred("at most 300 ms", cost.beat <= 300*time.Millisecond),
		row{Work: "  Postgres", Figure: fmt.Sprintf("%.1f %% of a core", 100*cost.core)}.barred("under half a core", cost.core < .5),
		{Work: "  cost per replica and heartbeat", Figure: ms(time.Duration(cost.core * float64(usual.renew) / copies))},
		row{Work: "  memory of all replicas, per lease", Figure: fmt.Sprintf("%.1f KiB", each)}.barred("at most 12 KiB", each <= 12),
		{Work: "  99 % of them led, after the start of all at once", Figure: fmt.Sprintf("%.1f s", started.Seconds())},
		{Work: "  spread evenly", Figure: fmt.Sprintf("%.1f s, %d terms", spread.Seconds(), terms.Load())},
	}, nil
}

// memory is what this process uses for what lives, goroutines' stacks included.
func memory() int64 {
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return int64(m.HeapAlloc + m.StackInuse)
}

// until waits for something, however long a loaded machine takes for it.
func until(ctx context.Context, ok func() bool) error {
	for !ok() {
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-time.After(20 * time.Millisecond):
		}
	}
	return nil
}

// An idleness is what it costs that replicas hold what they have.
type idleness struct {
	beat    time.Duration // a heartbeat's round trip, on average
	slowest float64       // seconds: none took longer
	core    float64       // of the server's: the share of one that it used
}

func (w *world) idleCost(ctx context.Context, replicas []*replica, terms func() int64) (c idleness, err error) {
	began, moved := time.Now(), terms()
	all := make([]sample, len(replicas))
	for i, r := range replicas {
		if all[i], err = w.measured(ctx, r); err != nil {
			return c, err
		}
	}
	select {
	case <-time.After(max(15*time.Second, time.Duration(w.some(30))*time.Second)):
	case <-ctx.Done():
		return c, ctx.Err()
	}
	var sum float64
	var beats uint64
	for i, r := range replicas {
		s, err := w.measured(ctx, r)
		if err != nil {
			return c, err
		}
		if i == 0 {
			c.core = (s.cpu - all[0].cpu).Seconds() / time.Since(began).Seconds()
		}
		n := s.beats.GetSampleCount() - all[i].beats.GetSampleCount()
		beats += n
		sum += s.beats.GetSampleSum() - all[i].beats.GetSampleSum()
		for j, bucket := range s.beats.GetBucket() {
			if bucket.GetCumulativeCount()-all[i].beats.GetBucket()[j].GetCumulativeCount() == n {
				c.slowest = max(c.slowest, bucket.GetUpperBound())
				break
			}
		}
	}
	if moved != terms() {
		return c, fmt.Errorf("%d terms began where nothing should happen", terms()-moved)
	}
	c.beat = time.Duration(sum / float64(max(1, beats)) * float64(time.Second))
	return c, nil
}
