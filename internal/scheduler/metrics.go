package scheduler

import (
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
			Name: "rota_tick_delay_seconds", Help: "From a tick to the start of its run, by the database's clock.",
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
		for _, o := range outcomes {
			m.runs.WithLabelValues(j.Name, string(o))
		}
		m.running.WithLabelValues(j.Name)
		m.abandoned.WithLabelValues(j.Name)
	}
	m.fenced = fence.NewMetrics(reg, names...)
	return m, nil
}

// started counts a run that begins; returned must follow.
func (m *metrics) started(job string, delay time.Duration) {
	m.running.WithLabelValues(job).Inc()
	m.delay.Observe(max(0, delay.Seconds()))
}

func (m *metrics) returned(job string) { m.running.WithLabelValues(job).Dec() }

func (m *metrics) ended(job string, o outcome) { m.runs.WithLabelValues(job, string(o)).Inc() }

// unrun counts ticks that were claimed and not run.
func (m *metrics) unrun(job string, o outcome, ticks int64) {
	m.runs.WithLabelValues(job, string(o)).Add(float64(ticks))
}
