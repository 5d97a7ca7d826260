package main

import (
	"context"
	"fmt"
	"sync"
	"time"

	"rota/internal/fence"
)

// A status is the article's row.
type status struct {
	BridgeID string `db:"bridge_id"`
	Health   string `db:"health"`
}

const bareUpsert = `INSERT INTO bridge_status (bridge_id, health, checked_at, epoch) VALUES ($1, $2, clock_timestamp(), 1)
ON CONFLICT (bridge_id) DO UPDATE SET health = EXCLUDED.health, checked_at = EXCLUDED.checked_at, epoch = EXCLUDED.epoch`

// fencedUpsert compares the fenced upsert of one row with a bare one, in turns of a second, so that
// a machine whose speed drifts does so for both. Its ratio is the median of the turns'.
func fencedUpsert(ctx context.Context, w *world) (rows []row, err error) {
	table := fence.Table{Name: "bridge_status", Key: []string{"bridge_id"}, Stamp: "checked_at"}
	for _, sql := range []string{
		"CREATE TABLE bridge_status (bridge_id text PRIMARY KEY, health text NOT NULL, checked_at timestamptz NOT NULL)",
		"SELECT fence_protect('bridge_status')",
		"INSERT INTO leadership VALUES ('bridge_health', 'bench', clock_timestamp() + interval '1 day', 1)",
	} {
		if _, err := w.db.Exec(ctx, sql); err != nil {
			return nil, err
		}
	}
	token := fence.Token{Lease: "bridge_health", Owner: "bench", Epoch: 1}
	writer := fence.NewWriter(ctx, func(error) {}, w.db, token, table)
	fenced := func(id string) error { return writer.Upsert(ctx, table, status{id, "UP"}) }
	bare := func(id string) error {
		_, err := w.db.Exec(ctx, bareUpsert, id, "UP")
		return err
	}
	for conns, bar := range map[int]string{1: "1.15x", 32: "1.3x"} {
		var ours, theirs, ratios []time.Duration
		for range w.some(20) {
			a, err := turn(conns, fenced)
			if err != nil {
				return nil, err
			}
			b, err := turn(conns, bare)
			if err != nil {
				return nil, err
			}
			ours, theirs = append(ours, a), append(theirs, b)
			ratios = append(ratios, time.Duration(1000*float64(a)/float64(b)))
		}
		rows = append(rows, row{
			fmt.Sprintf("fenced upsert, %d connections", conns), ms(quantile(ours, .5)) + " each", "bare: " + ms(quantile(theirs, .5)),
			fmt.Sprintf("%.2fx", float64(quantile(ratios, .5))/1000), "at most " + bar,
		})
	}
	return rows, nil
}

// turn writes for a second on so many connections, each its own row, and says how long one write took.
func turn(conns int, write func(id string) error) (time.Duration, error) {
	var wg sync.WaitGroup
	var mu sync.Mutex
	var writes int
	var first error
	began := time.Now()
	for i := range conns {
		wg.Go(func() {
			n := 0
			var err error
			for ; err == nil && time.Since(began) < time.Second; n++ {
				err = write(fmt.Sprint("LP-", i))
			}
			mu.Lock()
			defer mu.Unlock()
			writes += n
			if first == nil {
				first = err
			}
		})
	}
	wg.Wait()
	return time.Since(began) * time.Duration(conns) / time.Duration(max(1, writes)), first
}
