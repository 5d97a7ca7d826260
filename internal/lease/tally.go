package lease

import (
	"slices"
	"sync"

	"github.com/prometheus/client_golang/prometheus"
)

// A tally counts events by job. It is a vector of counters that takes some bytes for each of them,
// where one of the library's takes half a kilobyte: a replica may compete for 100,000 jobs.
type tally struct {
	desc *prometheus.Desc

	mu     sync.Mutex
	byJob  map[string][]uint64 // in the order of events
	events []string
}

// newTally counts so many kinds of events; without a kind, all as one, which has no label for it.
func newTally(opts prometheus.CounterOpts, events ...string) *tally {
	t := &tally{byJob: map[string][]uint64{}, events: events}
	labels := []string{"job_name"}
	if len(events) > 0 {
		labels = append(labels, "event")
	}
	t.desc = prometheus.NewDesc(opts.Name, opts.Help, labels, nil)
	return t
}

// A tallied is one of the counters.
type tallied struct {
	*tally
	job   string
	event int
}

// WithLabelValues is one of the counters, as of a prometheus.CounterVec. All of a job's exist once
// one of them has been asked for.
func (t *tally) WithLabelValues(job string, event ...string) tallied {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.byJob[job] == nil {
		t.byJob[job] = make([]uint64, max(1, len(t.events)))
	}
	at := 0
	if len(event) > 0 {
		at = slices.Index(t.events, event[0])
	}
	return tallied{t, job, at}
}

// Inc counts one more.
func (c tallied) Inc() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.byJob[c.job][c.event]++
}

// Describe implements prometheus.Collector.
func (t *tally) Describe(to chan<- *prometheus.Desc) { to <- t.desc }

// Collect implements prometheus.Collector.
func (t *tally) Collect(to chan<- prometheus.Metric) {
	t.mu.Lock()
	all := make([]prometheus.Metric, 0, len(t.byJob)*max(1, len(t.events)))
	for job, counts := range t.byJob {
		for i, n := range counts {
			labels := []string{job}
			if len(t.events) > 0 {
				labels = append(labels, t.events[i])
			}
			all = append(all, prometheus.MustNewConstMetric(t.desc, prometheus.CounterValue, float64(n), labels...))
		}
	}
	t.mu.Unlock()
	for _, m := range all {
		to <- m
	}
}
