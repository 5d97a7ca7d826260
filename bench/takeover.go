package main

import (
	"context"
	"fmt"
	"math/rand/v2"
	"time"

	"rota/internal/fence"
	"rota/internal/lease"
)

// A beginning is that of a term that is ready to work.
type beginning struct {
	replica int
	at      time.Time // by this machine's clock, which is the database's
	err     error
}

// takeover cuts the wire of the leader, one of three replicas, at any moment of its renewals, and
// waits for the successor. The article's loop looks every 5 s, so that it comes within those.
func takeover(ctx context.Context, w *world) ([]row, error) {
	if _, err := w.db.Exec(ctx, fmt.Sprintf(bridgesSQL, "bridge_status")); err != nil {
		return nil, err
	}
	begun := make(chan beginning, 4)
	var replicas []*replica
	defer func() { endAll(replicas) }()
	for i := range 3 {
		r, err := w.replica(ctx, fmt.Sprint("replica", i), brisk, named(1), func(t *lease.Term) {
			_, err := fence.Raise(t.Context(), w.db, t.Token, fence.Shard{}, bridgeStatus)
			t.Ready()
			begun <- beginning{i, time.Now(), err}
			untilOver(t)
		})
		if err != nil {
			return nil, err
		}
		replicas = append(replicas, r)
	}
	next := func() (b beginning, err error) {
		select {
		case b = <-begun:
			return b, b.err
		case <-time.After(20 * time.Second):
			return b, fmt.Errorf("the lease is free for 20 s")
		case <-ctx.Done():
			return b, ctx.Err()
		}
	}
	leader, err := next()
	if err != nil {
		return nil, err
	}
	var late []time.Duration
	for range w.some(30) {
		// Long enough for the former leader to have come back, and to end at any phase.
		time.Sleep(time.Second + rand.N(500*time.Millisecond))
		lost := replicas[leader.replica].wire
		lost.sever()
		time.Sleep(100 * time.Millisecond) // what had been sent has been executed by now
		var expires time.Time
		if err := w.db.QueryRow(ctx, "SELECT expires_at FROM leadership").Scan(&expires); err != nil {
			return nil, err
		}
		if leader, err = next(); err != nil {
			return nil, err
		}
		lost.restore()
		if leader.at.Before(expires) {
			return nil, fmt.Errorf("taken over %s before the expiry", expires.Sub(leader.at))
		}
		late = append(late, leader.at.Sub(expires))
	}
	half, slowest := quantile(late, .5), quantile(late, 1)
	return []row{
		row{
			Work: "takeover from a lost host, past expiry, p50", Figure: ms(half),
			Against: "the article's: half its poll, 2500 ms", Ratio: over(half, articlePoll),
		}.barred("at most 15 ms", half <= 15*time.Millisecond),
		row{
			Work: fmt.Sprintf("  slowest of %d", len(late)), Figure: ms(slowest),
			Against: "its whole poll, 5000 ms", Ratio: over(slowest, 2*articlePoll),
		}.barred("at most 100 ms", slowest <= 100*time.Millisecond),
	}, nil
}
