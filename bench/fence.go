package main

import (
	"context"
	"fmt"
	"sync"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"rota/internal/fence"
)

// A status is the article's row.
type status struct {
	BridgeID string `db:"bridge_id"`
	Health   string `db:"health"`
}

const (
	bareOneSQL = `
INSERT INTO bridge_status (bridge_id, health, checked_at, epoch) VALUES ($1, $2, clock_timestamp(), 1)
ON CONFLICT (bridge_id) DO UPDATE SET health = EXCLUDED.health, checked_at = EXCLUDED.checked_at, epoch = EXCLUDED.epoch`

	bareManySQL = `
INSERT INTO bridge_status (bridge_id, health, checked_at, epoch)
SELECT id, health, clock_timestamp(), 1 FROM unnest($1::text[], $2::text[]) AS r (id, health)
ON CONFLICT (bridge_id) DO UPDATE SET health = EXCLUDED.health, checked_at = EXCLUDED.checked_at, epoch = EXCLUDED.epoch`
)

// rowsAtOnce is the size of the larger upsert.
const rowsAtOnce = 100

// A contest is one write through the fence and the same without it. Each of several connections
// writes rows of its own.
type contest struct {
	name         string
	fenced, bare func(conn int) error
	barred       bool // section 8's bars are for it
}

// fences compares writes through the fence with bare ones, on one connection and on 32.
func fences(ctx context.Context, w *world) (rows []row, err error) {
	if _, err := w.db.Exec(ctx, "INSERT INTO leadership VALUES ('bridge_health', 'bench', clock_timestamp() + interval '1 day', 1)"); err != nil {
		return nil, err
	}
	for _, conns := range []int{1, 32} {
		db, err := w.pool(ctx, int32(conns))
		if err != nil {
			return rows, err
		}
		more, err := fencesOver(ctx, w, db, conns)
		db.Close()
		if rows = append(rows, more...); err != nil {
			return rows, err
		}
	}
	return rows, nil
}

func fencesOver(ctx context.Context, w *world, db *pgxpool.Pool, conns int) (rows []row, err error) {
	bar := map[int]float64{1: 1.15, 32: 1.3}[conns]
	run, stop := context.WithCancel(ctx) // a run's context is made of its term's
	defer stop()
	for _, c := range contests(ctx, run, db) {
		r, err := c.run(conns, w.some(20))
		if err != nil {
			return rows, fmt.Errorf("%s on %d connections: %w", c.name, conns, err)
		}
		if c.barred {
			r = r.atMost(bar)
		}
		rows = append(rows, r)
	}
	return rows, nil
}

func contests(term, ctx context.Context, db *pgxpool.Pool) []contest {
	token := fence.Token{Lease: "bridge_health", Owner: "bench", Epoch: 1}
	writer := fence.NewWriter(term, func(error) {}, db, token, fence.Shard{}, bridgeStatus)
	one := func(conn int) string { return fmt.Sprint("LP-", conn) }
	many := func(conn int) (ids []string) {
		for i := range rowsAtOnce {
			ids = append(ids, fmt.Sprintf("LP-%d-%03d", conn, i))
		}
		return ids
	}
	upsertIn := func(conn int) func(pgx.Tx) error {
		return func(tx pgx.Tx) error {
			_, err := tx.Exec(ctx, bareOneSQL, one(conn), "UP")
			return err
		}
	}
	return []contest{
		{name: "fenced upsert of 1 row", barred: true, fenced: func(conn int) error {
			return writer.Upsert(ctx, bridgeStatus, status{one(conn), "UP"})
		}, bare: func(conn int) error {
			_, err := db.Exec(ctx, bareOneSQL, one(conn), "UP")
			return err
		}},
		{name: fmt.Sprintf("fenced upsert of %d rows", rowsAtOnce), barred: true, fenced: func(conn int) error {
			var all []status
			for _, id := range many(conn) {
				all = append(all, status{id, "UP"})
			}
			return writer.Upsert(ctx, bridgeStatus, all)
		}, bare: func(conn int) error {
			var healths []string
			for range rowsAtOnce {
				healths = append(healths, "UP")
			}
			_, err := db.Exec(ctx, bareManySQL, many(conn), healths)
			return err
		}},
		{name: "fenced transaction of 1 statement", fenced: func(conn int) error {
			return writer.Tx(ctx, upsertIn(conn))
		}, bare: func(conn int) error {
			return pgx.BeginFunc(ctx, db, upsertIn(conn))
		}},
	}
}

// turn is how long each side writes before it is the other's turn.
const turn = 500 * time.Millisecond

// run has both write in turns, so that a machine whose speed drifts does so for both. The ratio is
// the median of those of neighbouring turns.
func (c contest) run(conns, turns int) (r row, err error) {
	var fenced, bare []time.Duration
	var ratios []float64
	for i := range turns + 1 {
		a, err := write(conns, c.fenced)
		if err != nil {
			return r, err
		}
		b, err := write(conns, c.bare)
		if err != nil {
			return r, err
		}
		if i > 0 { // the first is for caches and plans
			fenced, bare, ratios = append(fenced, a), append(bare, b), append(ratios, over(a, b))
		}
	}
	return row{
		Work: fmt.Sprintf("%s, %d conn", c.name, conns), Figure: ms(quantile(fenced, .5)),
		Against: "bare " + ms(quantile(bare, .5)), Ratio: quantile(ratios, .5),
	}, nil
}

// write has so many connections write for one turn, and says how long one write took.
func write(conns int, once func(conn int) error) (time.Duration, error) {
	var all sync.WaitGroup
	writes, errs := make([]int, conns), make([]error, conns)
	began := time.Now()
	for i := range conns {
		all.Go(func() {
			for ; errs[i] == nil && time.Since(began) < turn; writes[i]++ {
				errs[i] = once(i)
			}
		})
	}
	all.Wait()
	took, sum := time.Since(began), 0
	for i, n := range writes {
		if errs[i] != nil {
			return 0, errs[i]
		}
		sum += n
	}
	return took * time.Duration(conns) / time.Duration(max(1, sum)), nil
}
