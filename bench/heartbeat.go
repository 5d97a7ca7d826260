package main

import (
	"context"
	"fmt"
	"sync/atomic"
	"time"

	"rota/internal/lease"
)

// heartbeats compares the heartbeat that renews all leases with the article's loop, which runs one
// statement for each.
func heartbeats(ctx context.Context, w *world) (rows []row, err error) {
	for _, n := range []int{w.some(1000), w.some(10_000)} {
		ours, roundTrip, hot, err := ourRound(ctx, w, n)
		if err != nil {
			return nil, err
		}
		theirs, took, err := articleRound(ctx, w, n)
		if err != nil {
			return nil, err
		}
		share := func(cpu time.Duration) float64 { return 100 * cpu.Seconds() / 5 }
		rows = append(rows,
			row{
				fmt.Sprintf("renewal of %d leases", n), fmt.Sprintf("%s in one round trip", ms(roundTrip)),
				fmt.Sprintf("%s in %d statements", ms(took), n), fmt.Sprintf("%.0fx faster", float64(took)/float64(roundTrip)), "10,000 under 100 ms",
			},
			row{
				"  Postgres, of a core at one renewal in 5 s", fmt.Sprintf("%.2f %%", share(ours)),
				fmt.Sprintf("%.1f %%", share(theirs)), fmt.Sprintf("%.0fx less", float64(theirs)/float64(max(ours, time.Microsecond))), "10,000 under 3 %",
			},
			row{"  renewals that stay on their page (HOT)", fmt.Sprintf("%.1f %%", hot), "", "", "over 95 %"})
	}
	return rows, nil
}

// ourRound is the server's time for one heartbeat of a replica that leads n leases, its round trip,
// and how much of the updates was HOT.
func ourRound(ctx context.Context, w *world, n int) (cpu, roundTrip time.Duration, hot float64, err error) {
	if _, err := w.db.Exec(ctx, "TRUNCATE leadership, terms, replicas"); err != nil {
		return 0, 0, 0, err
	}
	var led atomic.Int64
	const renew = time.Second
	r, err := w.replica(ctx, "one", 3*renew, renew, named(n), func(*lease.Term) { led.Add(1) })
	if err != nil {
		return 0, 0, 0, err
	}
	defer r.end()
	for began := time.Now(); led.Load() < int64(n); time.Sleep(50 * time.Millisecond) {
		if time.Since(began) > time.Minute {
			return 0, 0, 0, fmt.Errorf("%d of %d leases are led after a minute", led.Load(), n)
		}
	}
	before, err := w.cpu()
	if err != nil {
		return 0, 0, 0, err
	}
	sum0, count0, err := r.histogram("rota_heartbeat_seconds")
	if err != nil {
		return 0, 0, 0, err
	}
	all0, hot0 := w.updates(ctx)
	time.Sleep(time.Duration(w.some(20)) * renew)
	after, err := w.cpu()
	if err != nil {
		return 0, 0, 0, err
	}
	sum, count, err := r.histogram("rota_heartbeat_seconds")
	if err != nil || count == count0 {
		return 0, 0, 0, fmt.Errorf("no heartbeat was counted: %w", err)
	}
	time.Sleep(2 * time.Second) // sessions report their statistics once in a second
	all, hotNow := w.updates(ctx)
	beats := time.Duration(count - count0)
	return (after - before) / beats, time.Duration((sum - sum0) / float64(count-count0) * float64(time.Second)),
		100 * float64(hotNow-hot0) / float64(max(1, all-all0)), nil
}

func (w *world) updates(ctx context.Context) (all, hot int64) {
	_ = w.db.QueryRow(ctx, "SELECT n_tup_upd, n_tup_hot_upd FROM pg_stat_user_tables WHERE relname = 'leadership'").Scan(&all, &hot)
	return all, hot
}

// articleRound is the server's time, and the clock's, for one round of the article's loop over n jobs.
func articleRound(ctx context.Context, w *world, n int) (cpu, took time.Duration, err error) {
	if _, err := w.db.Exec(ctx, "TRUNCATE leadership, terms, replicas"); err != nil {
		return 0, 0, err
	}
	conn, err := w.db.Acquire(ctx)
	if err != nil {
		return 0, 0, err
	}
	defer conn.Release()
	leases := named(n)
	round := func() error {
		for _, l := range leases {
			if _, err := conn.Exec(ctx, articleUpsert, l.Name, "article"); err != nil {
				return err
			}
		}
		return nil
	}
	if err := round(); err != nil {
		return 0, 0, err
	}
	before, err := w.cpu()
	if err != nil {
		return 0, 0, err
	}
	rounds := max(1, w.some(20_000)/n)
	began := time.Now()
	for range rounds {
		if err := round(); err != nil {
			return 0, 0, err
		}
	}
	took = time.Since(began) / time.Duration(rounds)
	after, err := w.cpu()
	return (after - before) / time.Duration(rounds), took, err
}
