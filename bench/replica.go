package main

import (
	"context"
	"fmt"
	"sync"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/prometheus/client_golang/prometheus"
	dto "github.com/prometheus/client_model/go"

	"rota/internal/fence"
	"rota/internal/lease"
)

var bridgeStatus = fence.Table{Name: "bridge_status", Key: []string{"bridge_id"}, Stamp: "checked_at"}

// A replica is an elector over a wire that can be cut.
type replica struct {
	*lease.Elector
	wire    *wire
	pool    *pgxpool.Pool
	metrics *prometheus.Registry
	stop    context.CancelFunc
	done    sync.WaitGroup
}

// A pace is that of leases and their renewal.
type pace struct{ lease, renew time.Duration }

var (
	usual = pace{15 * time.Second, 5 * time.Second}
	brisk = pace{1500 * time.Millisecond, 500 * time.Millisecond} // where something is waited for
)

func (w *world) replica(ctx context.Context, name string, p pace, leases []lease.Lease, lead func(*lease.Term)) (*replica, error) {
	owner := lease.NewOwner(name)
	base, err := pgxpool.ParseConfig(w.url())
	if err != nil {
		return nil, fmt.Errorf("read the address of PostgreSQL: %w", err)
	}
	r := &replica{wire: new(wire), metrics: prometheus.NewRegistry()}
	base.ConnConfig.DialFunc = r.wire.dial
	if r.pool, err = lease.NewPool(ctx, base, owner); err != nil {
		return nil, err
	}
	r.Elector, err = lease.New(r.pool, lease.Config{Owner: owner, Lease: p.lease, Renew: p.renew, Metrics: r.metrics})
	if err != nil {
		r.pool.Close()
		return nil, err
	}
	ctx, r.stop = context.WithCancel(ctx)
	r.done.Go(func() { _ = r.Run(ctx, leases, lead) })
	return r, nil
}

func (r *replica) end() {
	r.wire.restore()
	r.stop()
	r.done.Wait()
	r.pool.Close()
}

func endAll(replicas []*replica) {
	var all sync.WaitGroup
	for _, r := range replicas {
		all.Go(r.end)
	}
	all.Wait()
}

// untilOver is all that a lead does here.
func untilOver(t *lease.Term) {
	select {
	case <-t.Asked():
	case <-t.Yielding():
	case <-t.Context().Done():
	}
}

// stay is what a lead does that keeps its lease although others could take it.
func stay(t *lease.Term) {
	select {
	case <-t.Asked():
	case <-t.Context().Done():
	}
}

func named(n int) (leases []lease.Lease) {
	for i := range n {
		name := fmt.Sprintf("job%06d", i)
		leases = append(leases, lease.Lease{Name: name, Job: name})
	}
	return leases
}

// beats is the replica's histogram of the round trips of its heartbeats so far.
func (r *replica) beats() (*dto.Histogram, error) {
	families, err := r.metrics.Gather()
	if err != nil {
		return nil, err
	}
	for _, f := range families {
		if f.GetName() == "rota_heartbeat_seconds" {
			return f.GetMetric()[0].GetHistogram(), nil
		}
	}
	return nil, fmt.Errorf("the replica has no metric rota_heartbeat_seconds")
}
