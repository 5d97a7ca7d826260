package fence

import "github.com/prometheus/client_golang/prometheus"

// Metrics counts refused writes by job.
type Metrics struct{ refused *prometheus.CounterVec }

// NewMetrics registers rota_fenced_writes_total{job_name}, which begins at 0 for each of the jobs,
// so that an alarm sees its first increase.
func NewMetrics(reg prometheus.Registerer, jobs ...string) *Metrics {
	m := &Metrics{refused: prometheus.NewCounterVec(prometheus.CounterOpts{
		Name: "rota_fenced_writes_total",
		Help: "Writes refused because their term of leadership was over.",
	}, []string{"job_name"})}
	reg.MustRegister(m.refused)
	for _, job := range jobs {
		m.refused.WithLabelValues(job)
	}
	return m
}

// Of is the job's counter, for Writer.Count.
func (m *Metrics) Of(job string) prometheus.Counter { return m.refused.WithLabelValues(job) }
