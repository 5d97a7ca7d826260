package main

import (
	"context"
	"fmt"
	"sync"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/prometheus/client_golang/prometheus"

	"rota/internal/lease"
)

// A replica is an elector whose leads do nothing but lead.
type replica struct {
	*lease.Elector
	pool    *pgxpool.Pool
	metrics *prometheus.Registry
	stop    context.CancelFunc
	done    sync.WaitGroup
}

func (w *world) replica(ctx context.Context, name string, length, renew time.Duration, leases []lease.Lease, begun func(*lease.Term)) (*replica, error) {
	owner := lease.NewOwner(name)
	pool, err := lease.NewPool(ctx, w.db.Config(), owner)
	if err != nil {
		return nil, err
	}
	r := &replica{pool: pool, metrics: prometheus.NewRegistry()}
	if r.Elector, err = lease.New(pool, lease.Config{Owner: owner, Lease: length, Renew: renew, Metrics: r.metrics}); err != nil {
		return nil, err
	}
	ctx, r.stop = context.WithCancel(ctx)
	r.done.Go(func() {
		_ = r.Run(ctx, leases, func(t *lease.Term) {
			t.Ready()
			begun(t)
			select {
			case <-t.Asked():
			case <-t.Context().Done():
			}
		})
	})
	return r, nil
}

func (r *replica) end() {
	r.stop()
	r.done.Wait()
	r.pool.Close()
}

func named(n int) (leases []lease.Lease) {
	for i := range n {
		name := fmt.Sprintf("job%06d", i)
		leases = append(leases, lease.Lease{Name: name, Job: name})
	}
	return leases
}

// histogram is the sum and the count of one of the replica's histograms.
func (r *replica) histogram(name string) (sum float64, count uint64, err error) {
	families, err := r.metrics.Gather()
	if err != nil {
		return 0, 0, err
	}
	for _, f := range families {
		if f.GetName() == name {
			h := f.GetMetric()[0].GetHistogram()
			return h.GetSampleSum(), h.GetSampleCount(), nil
		}
	}
	return 0, 0, fmt.Errorf("no metric %s", name)
}
