package main

import (
	"runtime"

	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"

	"rota/internal/status"
)

// newRegistry holds what the process tells of itself, of its connections, and of the rows that all
// replicas share. Each package adds what it counts.
func newRegistry(db *pools, reader *status.Reader) *prometheus.Registry {
	build := prometheus.NewGauge(prometheus.GaugeOpts{
		Name: "rota_build_info", Help: "1, with the version of this replica and of the Go that built it.",
		ConstLabels: prometheus.Labels{"version": buildVersion(), "goversion": runtime.Version()},
	})
	build.Set(1)
	reg := prometheus.NewRegistry()
	reg.MustRegister(collectors.NewGoCollector(), collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}),
		build, poolFacts{db}, status.NewFacts(reader))
	return reg
}

// poolFacts say how busy each pool of connections is.
type poolFacts struct{ db *pools }

var (
	poolConnections = prometheus.NewDesc("rota_pool_connections",
		"Connections of this replica by pool and state: in use, or idle.", []string{"pool", "state"}, nil)
	poolMost = prometheus.NewDesc("rota_pool_max_connections",
		"How many connections a pool of this replica may have.", []string{"pool"}, nil)
	poolWait = prometheus.NewDesc("rota_pool_wait_seconds_total",
		"How long those who wanted a connection of the pool have waited for one, all together.", []string{"pool"}, nil)
)

func (poolFacts) Describe(ch chan<- *prometheus.Desc) {
	ch <- poolConnections
	ch <- poolMost
	ch <- poolWait
}

func (f poolFacts) Collect(ch chan<- prometheus.Metric) {
	for name, pool := range map[string]*pgxpool.Pool{
		"lease": f.db.lease, "engine": f.db.engine, "work": f.db.work, "page": f.db.page, "desk": f.db.desk, "steer": f.db.steer,
	} {
		s := pool.Stat()
		ch <- prometheus.MustNewConstMetric(poolConnections, prometheus.GaugeValue, float64(s.AcquiredConns()), name, "in_use")
		ch <- prometheus.MustNewConstMetric(poolConnections, prometheus.GaugeValue, float64(s.IdleConns()), name, "idle")
		ch <- prometheus.MustNewConstMetric(poolMost, prometheus.GaugeValue, float64(s.MaxConns()), name)
		ch <- prometheus.MustNewConstMetric(poolWait, prometheus.CounterValue, s.EmptyAcquireWaitTime().Seconds(), name)
	}
}
