package scheduler

import (
	"slices"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"rota/internal/fence"
	"rota/internal/registry"
)

// metrics are what the scheduler counts. Every series is there from the start, so that an alarm
// sees its first increase. Those of jobs are made when somebody collects them: kept, they would take
// most of the memory of an idle lease.
type metrics struct {
	delay  prometheus.Histogram
	took   prometheus.Histogram
	fenced *fence.Metrics

	registered []registry.Job

	mu   sync.Mutex
	jobs map[string]*counts
}

// counts are those of one job.
type counts struct {
	ended              []atomic.Int64 // as outcomes
	running, abandoned atomic.Int64
}

var (
	runsDesc = prometheus.NewDesc("rota_runs_total",
		"Runs that have ended on this replica, and ticks that it has written off, by outcome.", []string{"job_name", "outcome"}, nil)
	runningDesc = prometheus.NewDesc("rota_runs_running",
		"Runs under way on this replica, the abandoned ones included.", []string{"job_name"}, nil)
	abandonedDesc = prometheus.NewDesc("rota_runs_abandoned",
		"Runs whose function has not returned although its context ended longer ago than the grace.", []string{"job_name"}, nil)
	infoDesc = prometheus.NewDesc("rota_job_info",
		"1, with how this replica has the job: its schedule, zone included, and into how many shards it is split.", []string{"job_name", "schedule", "shards"}, nil)
)

func newMetrics(reg prometheus.Registerer, jobs []registry.Job) (*metrics, error) {
	m := &metrics{
		jobs: make(map[string]*counts, len(jobs)),
		delay: prometheus.NewHistogram(prometheus.HistogramOpts{
			Name: "rota_tick_delay_seconds", Help: "From a tick to the start of its first run, by the database's clock.",
			Buckets: []float64{.005, .01, .025, .05, .1, .25, .5, 1, 2.5, 5, 10, 30, 60, 300},
		}),
		took: prometheus.NewHistogram(prometheus.HistogramOpts{
			Name: "rota_run_seconds", Help: "How long runs took on this replica, however they ended; those of continuous jobs are left out.",
			Buckets: []float64{.01, .05, .1, .25, .5, 1, 2.5, 5, 10, 30, 60, 300, 900, 3600, 14400},
		}),
		registered: jobs,
	}
	for _, c := range []prometheus.Collector{m, m.delay, m.took} {
		if err := reg.Register(c); err != nil {
			return nil, err
		}
	}
	names := make([]string, len(jobs))
	for i, j := range jobs {
		names[i] = j.Name
		m.of(j.Name)
	}
	m.fenced = fence.NewMetrics(reg, names...)
	return m, nil
}

// Describe is prometheus.Collector's.
func (m *metrics) Describe(to chan<- *prometheus.Desc) {
	for _, d := range []*prometheus.Desc{runsDesc, runningDesc, abandonedDesc, infoDesc} {
		to <- d
	}
}

// Collect is prometheus.Collector's.
func (m *metrics) Collect(to chan<- prometheus.Metric) {
	for _, j := range m.registered {
		to <- prometheus.MustNewConstMetric(infoDesc, prometheus.GaugeValue, 1, j.Name, j.Schedule.String(), strconv.Itoa(max(1, j.Shards)))
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	for job, c := range m.jobs {
		for i, o := range outcomes {
			to <- prometheus.MustNewConstMetric(runsDesc, prometheus.CounterValue, float64(c.ended[i].Load()), job, string(o))
		}
		to <- prometheus.MustNewConstMetric(runningDesc, prometheus.GaugeValue, float64(c.running.Load()), job)
		to <- prometheus.MustNewConstMetric(abandonedDesc, prometheus.GaugeValue, float64(c.abandoned.Load()), job)
	}
}

// of is where a job counts.
func (m *metrics) of(job string) *counts {
	m.mu.Lock()
	defer m.mu.Unlock()
	c := m.jobs[job]
	if c == nil {
		c = &counts{ended: make([]atomic.Int64, len(outcomes))}
		m.jobs[job] = c
	}
	return c
}

// add counts runs that have ended, or ticks that were claimed and not run.
func (c *counts) add(o outcome, n int64) { c.ended[slices.Index(outcomes, o)].Add(n) }

// waited counts how long a tick waited for its run.
func (m *metrics) waited(d time.Duration) { m.delay.Observe(max(0, d.Seconds())) }

// ran counts how long a run took.
func (m *metrics) ran(d time.Duration) { m.took.Observe(d.Seconds()) }
