package lease

import (
	"iter"
	"slices"
	"sync"

	"github.com/prometheus/client_golang/prometheus"
)

// A tally counts events by job. It is a vector of counters that takes some bytes for each job of which
// there was something to count, and nothing for any other, where one of the library's takes half a
// kilobyte for each counter: a replica may compete for 100,000 jobs.
type tally struct {
	desc   *prometheus.Desc
	jobs   iter.Seq[string] // of which there are series
	events []string

	mu    sync.Mutex
	byJob map[string][]uint64 // in the order of events
}

// newTally counts so many kinds of events; without a kind, all as one, which has no label for it.
func newTally(opts prometheus.CounterOpts, jobs iter.Seq[string], events ...string) *tally {
	t := &tally{jobs: jobs, byJob: map[string][]uint64{}, events: events}
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

// WithLabelValues is one of the counters, as of a prometheus.CounterVec.
func (t *tally) WithLabelValues(job string, event ...string) tallied {
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
	if c.byJob[c.job] == nil {
		c.byJob[c.job] = make([]uint64, max(1, len(c.events)))
	}
	c.byJob[c.job][c.event]++
}

// Describe implements prometheus.Collector.
func (t *tally) Describe(to chan<- *prometheus.Desc) { to <- t.desc }

// Collect implements prometheus.Collector. Nobody who counts waits for whoever collects.
func (t *tally) Collect(to chan<- prometheus.Metric) {
	t.mu.Lock()
	counted := make(map[string][]uint64, len(t.byJob))
	for job, counts := range t.byJob {
		counted[job] = slices.Clone(counts)
	}
	t.mu.Unlock()
	none := make([]uint64, max(1, len(t.events)))
	for job := range t.jobs {
		counts := counted[job]
		if counts == nil {
			counts = none
		}
		for i, n := range counts {
			labels := []string{job}
			if len(t.events) > 0 {
				labels = append(labels, t.events[i])
			}
			to <- prometheus.MustNewConstMetric(t.desc, prometheus.CounterValue, float64(n), labels...)
		}
	}
}
