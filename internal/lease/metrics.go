package lease

import (
	"context"
	"errors"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"rota/internal/fence"
)

// metrics is what the elector counts. The series that alarms rest on exist from the start, at 0.
type metrics struct {
	leader      *prometheus.GaugeVec
	epoch       *prometheus.GaugeVec
	transitions *tally
	handovers   prometheus.Histogram
	beats       prometheus.Histogram
	failures    prometheus.Counter
	resets      *tally
}

// The events of rota_lease_transitions_total.
var events = []string{"acquired", "released", "lost", "deadline", "fenced", "other"}

// newMetrics registers them, with the length of the leases and a function that says how far the
// database's clock is ahead.
func newMetrics(reg prometheus.Registerer, lease time.Duration, ahead func() time.Duration) (*metrics, error) {
	m := &metrics{
		leader: prometheus.NewGaugeVec(prometheus.GaugeOpts{
			Name: "rota_is_leader",
			Help: "1 exactly while this replica believes that it leads the lease. Summed over all replicas it must be 1.",
		}, []string{"job_name", "shard"}),
		epoch: prometheus.NewGaugeVec(prometheus.GaugeOpts{
			Name: "rota_lease_epoch",
			Help: "The epoch of this replica's last term of the lease.",
		}, []string{"job_name", "shard"}),
		transitions: newTally(prometheus.CounterOpts{
			Name: "rota_lease_transitions_total",
			Help: "Terms begun and ended by this replica.",
		}, events...),
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
		resets: newTally(prometheus.CounterOpts{
			Name: "rota_epoch_resets_total",
			Help: "Terms ended because a protected row had a higher epoch: the lease row was reset or restored.",
		}),
	}
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
	for _, c := range []prometheus.Collector{m.leader, m.epoch, m.transitions, m.handovers, m.beats, m.failures, m.resets, length, offset} {
		errs = append(errs, reg.Register(c))
	}
	return m, errors.Join(errs...)
}

// start makes the series of a lease exist.
func (m *metrics) start(l Lease) {
	m.leader.WithLabelValues(l.Job, l.Shard.String()).Set(0)
	m.resets.WithLabelValues(l.Job)
	for _, e := range events {
		m.transitions.WithLabelValues(l.Job, e)
	}
}

// stop takes away the series of a lease that is out of force.
func (m *metrics) stop(l Lease) {
	m.leader.DeleteLabelValues(l.Job, l.Shard.String())
	m.epoch.DeleteLabelValues(l.Job, l.Shard.String())
}

// begin counts a term's beginning, and returns what counts its end.
func (m *metrics) begin(l Lease, epoch int64) (end func(cause error)) {
	m.leader.WithLabelValues(l.Job, l.Shard.String()).Set(1)
	m.epoch.WithLabelValues(l.Job, l.Shard.String()).Set(float64(epoch))
	m.transitions.WithLabelValues(l.Job, "acquired").Inc()
	return func(cause error) {
		m.leader.WithLabelValues(l.Job, l.Shard.String()).Set(0)
		m.transitions.WithLabelValues(l.Job, event(cause)).Inc()
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

// handover returns what observes, once, the time from the last term's end to this term's readiness.
func (m *metrics) handover(g grant, won time.Duration, now func() time.Duration) (ready func()) {
	if g.first {
		return func() {}
	}
	return sync.OnceFunc(func() { m.handovers.Observe((g.idle + now() - won).Seconds()) })
}

func (m *metrics) beaten(took time.Duration, err error) {
	m.beats.Observe(took.Seconds())
	if err != nil && !errors.Is(err, context.Canceled) {
		m.failures.Inc()
	}
}
