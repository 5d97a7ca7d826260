package scheduler

import (
	"slices"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"rota/internal/fence"
	"rota/internal/registry"
)

// metrics are what the scheduler counts. Every series is there from the start, so that an alarm
// sees its first increase.
type metrics struct {
	runs      *prometheus.CounterVec
	running   *prometheus.GaugeVec
	abandoned *prometheus.GaugeVec
	delay     prometheus.Histogram
	fenced    *fence.Metrics
}

func newMetrics(reg prometheus.Registerer, jobs []registry.Job) (*metrics, error) {
	m := &metrics{
		runs: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "rota_runs_total", Help: "Runs that have ended on this replica, and ticks that it has written off, by outcome.",
		}, []string{"job_name", "outcome"}),
		running: prometheus.NewGaugeVec(prometheus.GaugeOpts{
			Name: "rota_runs_running", Help: "Runs under way on this replica, the abandoned ones included.",
		}, []string{"job_name"}),
		abandoned: prometheus.NewGaugeVec(prometheus.GaugeOpts{
			Name: "rota_runs_abandoned", Help: "Runs whose function has not returned although its context ended longer ago than the grace.",
		}, []string{"job_name"}),
		delay: prometheus.NewHistogram(prometheus.HistogramOpts{
			Name: "rota_tick_delay_seconds", Help: "From a tick to the start of its first run, by the database's clock.",
			Buckets: []float64{.005, .01, .025, .05, .1, .25, .5, 1, 2.5, 5, 10, 30, 60, 300},
		}),
	}
	for _, c := range []prometheus.Collector{m.runs, m.running, m.abandoned, m.delay} {
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

// counts are the series of one job: to look each up anew takes as long as the record of a run does.
type counts struct {
	ended              []prometheus.Counter // as outcomes
	running, abandoned prometheus.Gauge
}

// of is where a job counts.
func (m *metrics) of(job string) *counts {
	c := &counts{running: m.running.WithLabelValues(job), abandoned: m.abandoned.WithLabelValues(job)}
	for _, o := range outcomes {
		c.ended = append(c.ended, m.runs.WithLabelValues(job, string(o)))
	}
	return c
}

// add counts runs that have ended, or ticks that were claimed and not run.
func (c *counts) add(o outcome, n int64) { c.ended[slices.Index(outcomes, o)].Add(float64(n)) }

// waited counts how long a tick waited for its run.
func (m *metrics) waited(d time.Duration) { m.delay.Observe(max(0, d.Seconds())) }
