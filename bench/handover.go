package main

import (
	"context"
	"fmt"
	"time"

	"rota/internal/lease"
)

// handover asks the leader of one lease to step down, again and again, and waits for the next term.
// The article's loop polls every 5 s, so that its next leader comes at any moment of those.
func handover(ctx context.Context, w *world) ([]row, error) {
	terms := make(chan *lease.Term, 16)
	var replicas []*replica
	for _, name := range []string{"one", "two"} {
		r, err := w.replica(ctx, name, 15*time.Second, 5*time.Second, named(1), func(t *lease.Term) { terms <- t })
		if err != nil {
			return nil, err
		}
		defer r.end()
		replicas = append(replicas, r)
	}
	next := func() (*lease.Term, error) {
		select {
		case t := <-terms:
			return t, nil
		case <-time.After(20 * time.Second):
			return nil, fmt.Errorf("nobody led within 20 s")
		case <-ctx.Done():
			return nil, ctx.Err()
		}
	}
	term, err := next()
	if err != nil {
		return nil, err
	}
	for !replicas[0].Hints() || !replicas[1].Hints() {
		time.Sleep(10 * time.Millisecond)
	}
	var took []time.Duration
	for range w.some(200) {
		time.Sleep(20 * time.Millisecond)
		asked := time.Now()
		for _, r := range replicas {
			r.GiveUp(term.Token.Lease, lease.Reason("bench"))
		}
		if term, err = next(); err != nil {
			return nil, err
		}
		took = append(took, time.Since(asked))
	}
	p50, p99 := quantile(took, .5), quantile(took, .99)
	poll := 2500 * time.Millisecond
	return []row{{
		"step down to the next term", fmt.Sprintf("p50 %s, p99 %s", ms(p50), ms(p99)),
		"the article's poll, on average 2.5 s", fmt.Sprintf("%.0fx faster at p50", float64(poll)/float64(p50)), "100x faster",
	}}, nil
}
