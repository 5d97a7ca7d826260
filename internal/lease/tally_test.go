package lease

import (
	"fmt"
	"runtime"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"
)

// P10: every event of a job has its series from the start, and counts what happened at once too.
func TestTallyIsAVectorOfCounters(t *testing.T) {
	t.Parallel()
	c := newTally(prometheus.CounterOpts{Name: "seen_total", Help: "What was seen."}, slices.Values([]string{"a", "b"}), "won", "lost")
	plain := newTally(prometheus.CounterOpts{Name: "plain_total", Help: "Of no kind."}, slices.Values([]string{"a"}))
	plain.WithLabelValues("a").Inc()
	var all sync.WaitGroup
	for range 8 {
		all.Go(func() {
			for range 100 {
				c.WithLabelValues("b", "lost").Inc()
			}
		})
	}
	all.Wait()
	reg := prometheus.NewPedanticRegistry()
	reg.MustRegister(c, plain)
	if err := testutil.GatherAndCompare(reg, strings.NewReader(`# HELP plain_total Of no kind.
# TYPE plain_total counter
plain_total{job_name="a"} 1
# HELP seen_total What was seen.
# TYPE seen_total counter
seen_total{event="lost",job_name="a"} 0
seen_total{event="won",job_name="a"} 0
seen_total{event="lost",job_name="b"} 800
seen_total{event="won",job_name="b"} 0
`)); err != nil {
		t.Error(err)
	}
}

// A replica keeps less than 2 KiB for each lease that it competes for without leading it.
func TestLeaseThatAnotherLeadsTakesLittleMemory(t *testing.T) {
	used := func() uint64 {
		runtime.GC()
		var m runtime.MemStats
		runtime.ReadMemStats(&m)
		return m.HeapAlloc
	}
	const n = 20_000
	names := make([]Lease, n)
	for i := range names {
		name := fmt.Sprintf("job%06d", i)
		names[i] = Lease{Name: name, Job: name}
	}
	before := used()
	m, err := newMetrics(prometheus.NewRegistry(), hour, func() time.Duration { return 0 })
	must(t, err)
	seats := map[string]*seat{}
	for _, l := range names {
		seats[l.Name] = &seat{lease: l}
		m.start(seats[l.Name])
	}
	each := float64(used()-before) / n / 1024
	runtime.KeepAlive(m)
	runtime.KeepAlive(seats)
	t.Logf("%.2f KiB", each)
	if each > 2 {
		t.Errorf("%.2f KiB for each lease", each)
	}
}
