package main

import (
	"context"
	"fmt"
	"net/http"
	"sync/atomic"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"
)

// probes tell whoever supervises a replica how it is.
type probes struct {
	beat     func() time.Time // when the lease loop last turned
	limit    time.Duration    // how long ago that may be
	started  time.Time
	db       *pgxpool.Pool
	draining atomic.Bool
}

func newProbes(beat func() time.Time, limit time.Duration, db *pgxpool.Pool) *probes {
	return &probes{beat: beat, limit: limit, started: time.Now(), db: db}
}

func (p *probes) drain() { p.draining.Store(true) }

// alive says whether the lease loop turns. It asks nothing of the database: an outage there must not
// restart every replica.
func (p *probes) alive() error {
	last := p.beat()
	if last.IsZero() {
		last = p.started
	}
	if age := time.Since(last); age > p.limit {
		return fmt.Errorf("the lease loop has not turned for %s", span(age))
	}
	return nil
}

// readyPatience leaves a prober that waits for a second the rest of it.
const readyPatience = 800 * time.Millisecond

func (p *probes) live(w http.ResponseWriter, _ *http.Request) {
	if err := p.alive(); err != nil {
		unavailable(w, err.Error())
		return
	}
	fmt.Fprintln(w, "ok")
}

// ready says whether the replica can do its part: the database answers, has the schema that this
// binary needs, and the replica is not on its way out. A standby is as ready as a leader.
func (p *probes) ready(w http.ResponseWriter, r *http.Request) {
	if p.draining.Load() {
		unavailable(w, "draining")
		return
	}
	ctx, cancel := context.WithTimeout(r.Context(), readyPatience)
	defer cancel()
	versions, err := versionsOf(ctx, p.db)
	if err != nil {
		unavailable(w, "the database does not answer")
		return
	}
	for _, v := range versions {
		// A newer one is the next release's, which is being rolled out.
		if v.State() == "older" {
			unavailable(w, fmt.Sprintf("the schema %s is at version %d, %d is needed", v.Schema, v.Database, v.Binary))
			return
		}
	}
	fmt.Fprintln(w, "ok")
}

func unavailable(w http.ResponseWriter, why string) {
	http.Error(w, why, http.StatusServiceUnavailable)
}
