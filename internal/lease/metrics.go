package lease

import (
	"context"
	"errors"
	"sync"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"rota/internal/fence"
)

// metrics is what the elector counts. The series that alarms rest on exist from the start, at 0.
type metrics struct {
	leader      *prometheus.Desc
	epoch       *prometheus.Desc
	transitions *tally
	handovers   prometheus.Histogram
	beats       prometheus.Histogram
	failures    prometheus.Counter
	resets      *tally

	mu    sync.Mutex
	seats []*seat // of which there are gauges; only what never changes of them is read, and the gauges
}

// gauges are those of one lease. They are made into the library's when somebody collects them, for these
// take a kilobyte, and a replica may compete for 100,000 leases.
type gauges struct {
	hidden, leader atomic.Bool
	epoch          atomic.Int64 // 0: no term yet
}

// show makes the series of a lease exist again.
func (g *gauges) show() { g.hidden.Store(false) }

// hide takes away the series of a lease that is out of force.
func (g *gauges) hide() {
	g.hidden.Store(true)
	g.epoch.Store(0)
}

// The events of rota_lease_transitions_total.
var events = []string{"acquired", "released", "lost", "deadline", "fenced", "other"}

// newMetrics registers them, with the length of the leases and a function that says how far the
// database's clock is ahead.
func newMetrics(reg prometheus.Registerer, lease time.Duration, ahead func() time.Duration) (*metrics, error) {
	m := &metrics{
		leader: prometheus.NewDesc("rota_is_leader",
			"1 exactly while this replica believes that it leads the lease. Summed over all replicas it must be 1.", []string{"job_name", "shard"}, nil),
		epoch: prometheus.NewDesc("rota_lease_epoch",
			"The epoch of this replica's last term of the lease.", []string{"job_name", "shard"}, nil),
		handovers: prometheus.NewHistogram(prometheus.HistogramOpts{
			Name:    "rota_handover_seconds",
			Help:    "Time from the end of one term to the readiness of the next, which this replica won.",
			Buckets: []float64{.002, .005, .01, .02, .05, .1, .2, .5, 1, 2, 5, 10, 20, 60},
		}),
		beats: prometheus.NewHistogram(prometheus.HistogramOpts{
			Name:    "rota_heartbeat_seconds",
			Help:    "Round trip of the heartbeat that renews all leases of this replica.",
			Buckets: []float64{.001, .002, .005, .01, .02, .05, .1, .2, .5, 1, 2, 5},
		}),
		failures: prometheus.NewCounter(prometheus.CounterOpts{
			Name: "rota_heartbeat_failures_total",
			Help: "Heartbeats of this replica that failed or were not answered in time.",
		}),
	}
	m.transitions = newTally(prometheus.CounterOpts{
		Name: "rota_lease_transitions_total",
		Help: "Terms begun and ended by this replica.",
	}, m.jobs, events...)
	m.resets = newTally(prometheus.CounterOpts{
		Name: "rota_epoch_resets_total",
		Help: "Terms ended because a protected row had a higher epoch: the lease row was reset or restored.",
	}, m.jobs)
	length := prometheus.NewGauge(prometheus.GaugeOpts{
		Name: "rota_lease_length_seconds",
		Help: "How long a lease of this replica runs from each renewal.",
	})
	length.Set(lease.Seconds())
	offset := prometheus.NewGaugeFunc(prometheus.GaugeOpts{
		Name: "rota_clock_offset_seconds",
		Help: "The database's clock less this replica's, by its last heartbeat.",
	}, func() float64 { return ahead().Seconds() })
	if reg == nil {
		return m, nil
	}
	var errs []error
	for _, c := range []prometheus.Collector{m, m.transitions, m.handovers, m.beats, m.failures, m.resets, length, offset} {
		errs = append(errs, reg.Register(c))
	}
	return m, errors.Join(errs...)
}

// start makes the series of a lease exist.
func (m *metrics) start(s *seat) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.seats = append(m.seats, s)
}

// all are those of which there are series, as of now.
func (m *metrics) all() []*seat {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.seats
}

// jobs are those that the leases are of.
func (m *metrics) jobs(yield func(string) bool) {
	for _, s := range m.all() {
		if s.lease.Shard.K <= 1 && !yield(s.lease.Job) {
			return
		}
	}
}

// Describe implements prometheus.Collector.
func (m *metrics) Describe(to chan<- *prometheus.Desc) {
	to <- m.leader
	to <- m.epoch
}

// Collect implements prometheus.Collector.
func (m *metrics) Collect(to chan<- prometheus.Metric) {
	for _, s := range m.all() {
		if s.gauges.hidden.Load() {
			continue
		}
		job, shard, leads := s.lease.Job, s.lease.Shard.String(), 0.0
		if s.gauges.leader.Load() {
			leads = 1
		}
		to <- prometheus.MustNewConstMetric(m.leader, prometheus.GaugeValue, leads, job, shard)
		if epoch := s.gauges.epoch.Load(); epoch > 0 {
			to <- prometheus.MustNewConstMetric(m.epoch, prometheus.GaugeValue, float64(epoch), job, shard)
		}
	}
}

// begin counts a term's beginning, and returns what counts its end.
func (m *metrics) begin(s *seat, epoch int64) (end func(cause error)) {
	s.gauges.epoch.Store(epoch)
	s.gauges.leader.Store(true)
	m.transitions.WithLabelValues(s.lease.Job, "acquired").Inc()
	return func(cause error) {
		s.gauges.leader.Store(false)
		m.transitions.WithLabelValues(s.lease.Job, event(cause)).Inc()
	}
}

func event(cause error) string {
	switch {
	case errors.Is(cause, ErrReturned):
		return "released"
	case errors.Is(cause, ErrLost):
		return "lost"
	case errors.Is(cause, ErrDeadline):
		return "deadline"
	case errors.Is(cause, fence.ErrFenced):
		return "fenced"
	}
	return "other"
}

// handover returns what observes the time from the last term's end to this term's readiness; nil:
// there was none.
func (m *metrics) handover(g grant, won time.Duration, now func() time.Duration) (ready func()) {
	if g.first {
		return nil
	}
	return func() { m.handovers.Observe((g.idle + now() - won).Seconds()) }
}

func (m *metrics) beaten(took time.Duration, err error) {
	m.beats.Observe(took.Seconds())
	if err != nil && !errors.Is(err, context.Canceled) {
		m.failures.Inc()
	}
}
