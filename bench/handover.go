package main

import (
	"context"
	"fmt"
	"sync"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"

	"rota/internal/fence"
	"rota/internal/lease"
)

// idle is the time between two handovers. It matters: a machine that has been idle wakes slowly.
const idle = 50 * time.Millisecond

// articlePoll is how long the article's loop takes to notice that a lease is free, on average: it
// looks every 5 s. This is arithmetic, not measured.
const articlePoll = 2500 * time.Millisecond

const bridgesSQL = `INSERT INTO %s (bridge_id, health, checked_at) SELECT 'LP-' || i, 'UP', clock_timestamp() FROM generate_series(1, 10) i`

// handover moves one lease to and fro between two replicas that lead 101, in turns with the floor.
func handover(ctx context.Context, w *world) ([]row, error) {
	if _, err := w.db.Exec(ctx, fmt.Sprintf(bridgesSQL, "bridge_status")); err != nil {
		return nil, err
	}
	p, err := w.pair(ctx)
	if err != nil {
		return nil, err
	}
	defer p.end()
	f, err := newFloor(ctx, w)
	if err != nil {
		return nil, fmt.Errorf("floor: %w", err)
	}
	defer f.end()
	if err := p.balance(ctx); err != nil {
		return nil, err
	}
	var ours, wrote, floor []time.Duration
	wonBack := 0
	for range w.some(300) {
		time.Sleep(idle)
		took, back, err := p.move(ctx)
		if err != nil {
			return nil, err
		}
		if back {
			wonBack++
		} else {
			ours, wrote = append(ours, took), append(wrote, p.wrote)
		}
		time.Sleep(idle)
		if took, err = f.move(ctx); err != nil {
			return nil, fmt.Errorf("floor: %w", err)
		}
		floor = append(floor, took)
	}
	against := func(q float64) row {
		a, b := quantile(ours, q), quantile(floor, q)
		return row{Work: fmt.Sprintf("planned handover, p%.0f", 100*q), Figure: ms(a), Against: "bare program " + ms(b), Ratio: over(a, b)}
	}
	theirs, err := w.articleHandovers(ctx, 20)
	if err != nil {
		return nil, fmt.Errorf("the article's loop: %w", err)
	}
	half, article := quantile(wrote, .5), quantile(theirs, .5)
	return []row{
		against(.5).atMost(1.5),
		against(.99).atMost(2),
		row{
			Work: "  to the first fenced write, p50", Figure: ms(half),
			Against: fmt.Sprintf("article's loop %s, %d times", ms(article), len(theirs)), Ratio: over(half, article),
		}.barred("at most 1/100", over(half, article) <= .01),
		{Work: "  by arithmetic", Figure: ms(half), Against: "half its poll, 2500 ms", Ratio: over(half, articlePoll)},
		{Work: "  won back by the replica that gave it up", Figure: fmt.Sprintf("%d of %d, not counted above", wonBack, len(ours)+wonBack)},
	}, nil
}

// A pair is two replicas that lead 101 leases: with an odd number, whoever leads one more can give
// one up, and the other will take it.
type pair struct {
	replicas [2]*replica
	engine   *pgxpool.Pool
	begun    chan error // a term has raised and is ready

	mu    sync.Mutex
	led   map[string]int // by lease: which replica leads it
	moved string         // the lease that moves; empty: none yet
	left  time.Time      // when its last lead returned
	took  time.Duration  // from there until the next was ready
	wrote time.Duration  // and until it had written through the fence
}

func (w *world) pair(ctx context.Context) (p *pair, err error) {
	p = &pair{begun: make(chan error, 200), led: map[string]int{}}
	if p.engine, err = w.pool(ctx, 2); err != nil {
		return nil, err
	}
	for i := range p.replicas {
		p.replicas[i], err = w.replica(ctx, fmt.Sprint("replica", i), usual, named(101), func(t *lease.Term) { p.lead(i, t) })
		if err != nil {
			p.end()
			return nil, err
		}
	}
	return p, nil
}

func (p *pair) end() {
	for _, r := range p.replicas {
		if r != nil {
			r.end()
		}
	}
	p.engine.Close()
}

func (p *pair) lead(replica int, t *lease.Term) {
	p.mu.Lock()
	moves := t.Token.Lease == p.moved
	p.mu.Unlock()
	var err error
	if moves {
		_, err = fence.Raise(t.Context(), p.engine, t.Token, fence.Shard{}, bridgeStatus)
	}
	t.Ready()
	ready := time.Now()
	if moves && err == nil {
		w := fence.NewWriter(t.Context(), t.End, p.engine, t.Token, fence.Shard{}, bridgeStatus)
		err = w.Upsert(t.Context(), bridgeStatus, status{"LP-1", "UP"})
	}
	wrote := time.Now()
	p.mu.Lock()
	p.led[t.Token.Lease] = replica
	if moves {
		p.took, p.wrote = ready.Sub(p.left), wrote.Sub(p.left)
	}
	p.mu.Unlock()
	p.begun <- err
	untilOver(t)
	p.mu.Lock()
	defer p.mu.Unlock()
	delete(p.led, t.Token.Lease)
	if t.Token.Lease == p.moved { // it may have been chosen meanwhile
		p.left = time.Now()
	}
}

func (p *pair) next(ctx context.Context) error {
	select {
	case err := <-p.begun:
		return err
	case <-time.After(20 * time.Second):
		return fmt.Errorf("a lease is free for 20 s")
	case <-ctx.Done():
		return ctx.Err()
	}
}

// balance waits until all are led, evenly but for one, and chooses the lease that moves.
func (p *pair) balance(ctx context.Context) error {
	for range 101 {
		if err := p.next(ctx); err != nil {
			return err
		}
	}
	for began := time.Now(); !p.replicas[0].Hints() || !p.replicas[1].Hints(); time.Sleep(10 * time.Millisecond) {
		if time.Since(began) > 20*time.Second {
			return fmt.Errorf("releases are not announced")
		}
	}
	for {
		fuller, more, name := p.fuller()
		if more == 1 {
			p.mu.Lock()
			p.moved = name
			p.mu.Unlock()
			return nil
		}
		p.replicas[fuller].GiveUp(name, lease.Reason("bench"))
		if err := p.next(ctx); err != nil {
			return err
		}
	}
}

// fuller is the replica that leads more, how many more, and a lease of its.
func (p *pair) fuller() (replica, more int, name string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	var leads [2]int
	var some [2]string
	for l, r := range p.led {
		leads[r]++
		some[r] = l
	}
	if leads[1] > leads[0] {
		replica = 1
	}
	return replica, leads[replica] - leads[1-replica], some[replica]
}

// move is one handover: from the return of the lead to the readiness of the next, which may be on
// the same replica.
func (p *pair) move(ctx context.Context) (took time.Duration, back bool, err error) {
	p.mu.Lock()
	name := p.moved
	leader := p.led[name]
	p.mu.Unlock()
	p.replicas[leader].GiveUp(name, lease.Reason("bench"))
	if err := p.next(ctx); err != nil {
		return 0, false, err
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.took, p.led[name] == leader, nil
}
