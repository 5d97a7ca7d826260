package main

import (
	"context"
	"fmt"
	"sync/atomic"
	"time"

	"rota/internal/lease"
)

// spreads starts replicas one after another, cuts the wire of one and ends another in good order, and
// counts the heartbeats until leadership is spread evenly again, and the terms that began for it.
func spreads(ctx context.Context, w *world) (rows []row, err error) {
	for _, n := range []int{12, w.some(1000)} {
		more, err := w.spreading(ctx, n)
		if err != nil {
			return rows, fmt.Errorf("%d leases: %w", n, err)
		}
		rows = append(rows, more...)
		if _, err := w.db.Exec(ctx, "TRUNCATE leadership, terms, lease_epochs, replicas"); err != nil {
			return rows, err
		}
	}
	return rows, nil
}

// A troupe is replicas among which leadership spreads.
type troupe struct {
	*world
	leases []lease.Lease
	terms  atomic.Int64 // how many have begun
	before int64        // of them, those before the change under way
	here   []*member
}

type member struct {
	*replica
	led atomic.Int64
}

func (w *world) spreading(ctx context.Context, n int) (rows []row, err error) {
	t := &troupe{world: w, leases: named(n)}
	defer func() {
		for _, m := range t.here {
			m.end()
		}
	}()
	if err := t.join(ctx); err != nil {
		return nil, err
	}
	if _, err := t.settled(ctx); err != nil {
		return nil, err
	}
	t.before = t.terms.Load()
	for i := range 3 {
		if err := t.join(ctx); err != nil {
			return rows, err
		}
		r, err := t.changed(ctx, fmt.Sprintf("replica %d joins", i+2), int64(n/(i+2)))
		if err != nil {
			return rows, err
		}
		rows = append(rows, r)
	}
	// What is cut off leads until its lease runs out, which is no heartbeat of the others'.
	lost := t.here[0]
	t.here = t.here[1:]
	defer lost.end()
	needed := lost.led.Load()
	lost.wire.sever()
	if err := until(ctx, func() bool { return lost.led.Load() == 0 }); err != nil {
		return rows, err
	}
	r, err := t.changed(ctx, "one of 4 has been cut off", needed)
	if err != nil {
		return rows, err
	}
	rows = append(rows, r)
	gone := t.here[0]
	t.here = t.here[1:]
	needed = gone.led.Load()
	ended := make(chan struct{})
	go func() { defer close(ended); gone.end() }()
	r, err = t.changed(ctx, "one of 3 leaves", needed)
	<-ended
	return append(rows, r), err
}

// changed waits until leadership is spread evenly after a change that has just been made.
func (t *troupe) changed(ctx context.Context, what string, needed int64) (r row, err error) {
	began := time.Now()
	even, err := t.settled(ctx)
	if err != nil {
		return r, fmt.Errorf("%s: %w", what, err)
	}
	beats := float64(even.Sub(began)) / float64(brisk.renew)
	made := t.terms.Load() - t.before
	t.before += made
	r = row{
		Work:    fmt.Sprintf("%d leases, %s: spread evenly", len(t.leases), what),
		Figure:  fmt.Sprintf("%.1f heartbeats", beats),
		Against: fmt.Sprintf("%d terms begun of %d needed", made, needed), Ratio: float64(made) / float64(needed),
	}
	if len(t.leases) == 12 { // of many, a tenth moves at a time
		r = r.barred("3 heartbeats, needed + 1", beats <= 3 && made <= needed+1)
	}
	return r, nil
}

func (t *troupe) join(ctx context.Context) (err error) {
	m := &member{}
	m.replica, err = t.replica(ctx, fmt.Sprint("replica", len(t.here)), brisk, t.leases, func(term *lease.Term) {
		m.led.Add(1)
		t.terms.Add(1)
		untilOver(term)
		m.led.Add(-1)
	})
	if err == nil {
		t.here = append(t.here, m)
	}
	return err
}

// even reports whether all are led, by no member two more than by another.
func (t *troupe) even() bool {
	least, most, sum := int64(len(t.leases)), int64(0), int64(0)
	for _, m := range t.here {
		n := m.led.Load()
		least, most, sum = min(least, n), max(most, n), sum+n
	}
	return sum == int64(len(t.leases)) && most-least <= 1
}

// settled returns since when leadership has been spread evenly, once it has been for ten heartbeats.
func (t *troupe) settled(ctx context.Context) (since time.Time, err error) {
	terms := int64(-1)
	for deadline := time.Now().Add(time.Minute); ; {
		switch now := t.terms.Load(); {
		case !t.even() || now != terms:
			if since = (time.Time{}); t.even() {
				since, terms = time.Now(), now
			}
		case time.Since(since) > 10*brisk.renew:
			return since, nil
		}
		if time.Now().After(deadline) {
			return since, fmt.Errorf("not spread evenly after a minute")
		}
		select {
		case <-ctx.Done():
			return since, ctx.Err()
		case <-time.After(2 * time.Millisecond):
		}
	}
}
