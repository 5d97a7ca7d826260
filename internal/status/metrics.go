package status

import (
	"context"
	"strings"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"rota/internal/registry"
)

// Facts are what the rows say, as metrics. Every replica exports the same facts about the whole
// installation, so a rule takes the max or the min of them over the replicas, and never their sum.
// They outlive the replica that made them true: the last success of a job does not go back to
// nothing because another replica leads it now.
type Facts struct {
	reader *Reader
	jobs   map[string]registry.Job
	since  time.Time // from when on a success may be expected of a job that never had one

	mu     sync.Mutex
	paused map[string]time.Time     // by lease: when it was last seen paused
	took   map[string]time.Duration // by lease: how long its newest success took
}

// tooOld is the age from which on facts are left out: one replica that is cut off from the database
// must not cover up what the others see.
const tooOld = 10 * time.Second

// NewFacts returns a collector of what the reader reads. A scrape reads what the page reads, at most
// once a second. Where the database does not answer, rota_status_timestamp_seconds stands still and,
// after ten seconds, is alone.
func NewFacts(r *Reader) *Facts {
	f := &Facts{
		reader: r, jobs: make(map[string]registry.Job, len(r.jobs)), since: time.Now(),
		paused: map[string]time.Time{}, took: map[string]time.Duration{},
	}
	for _, j := range r.jobs {
		f.jobs[j.Name] = j
	}
	return f
}

func describeFact(name, help string, labels ...string) *prometheus.Desc {
	return prometheus.NewDesc(name, help, labels, nil)
}

var (
	factHeld = describeFact("rota_lease_held",
		"1 while the lease's row runs out in the future, by the database.", "job_name", "shard")
	factExpires = describeFact("rota_lease_expires_timestamp_seconds",
		"When the lease's row runs out, by the database; absent while nobody has led it.", "job_name", "shard")
	factSuccess = describeFact("rota_last_success_timestamp_seconds",
		"When a run last succeeded on any replica, by the database; 0: not in the kept history.", "job_name", "shard")
	factDue = describeFact("rota_success_due_timestamp_seconds",
		"By when, by the database, a run should have succeeded: the second tick after the last success, and what a run may take. Absent for jobs without ticks.",
		"job_name", "shard")
	factNext = describeFact("rota_next_tick_timestamp_seconds",
		"The next tick, by the database's clock; absent for jobs without ticks.", "job_name", "shard")
	factStarted = describeFact("rota_run_started_timestamp_seconds",
		"When the run under way began, by the database; absent while none is.", "job_name", "shard")
	factPaused = describeFact("rota_paused",
		"1 while the job takes no ticks because an operator has paused it, by the database.", "job_name")
	factReplicas = describeFact("rota_replicas",
		"Replicas by standing, by the database: members, members that drain, gone within the last hour, and owners of leases that are no member.", "standing")
	factAsOf = describeFact("rota_status_timestamp_seconds",
		"The database's clock when this replica last read the rows; absent before the first time.")
)

// Describe says what there is.
func (f *Facts) Describe(ch chan<- *prometheus.Desc) {
	for _, d := range []*prometheus.Desc{factHeld, factExpires, factSuccess, factDue, factNext, factStarted, factPaused, factReplicas, factAsOf} {
		ch <- d
	}
}

// Collect reads the rows. It says nothing where they have never been read.
func (f *Facts) Collect(ch chan<- prometheus.Metric) {
	snap, err := f.reader.Snapshot(context.Background()) // which is bounded by the reader's patience
	if err != nil {
		return
	}
	ch <- constant(factAsOf, unix(snap.AsOf))
	if snap.Age > tooOld {
		return
	}
	standings := map[Standing]int{Member: 0, Draining: 0, Outside: 0, Gone: 0}
	for _, r := range snap.Replicas {
		standings[r.Standing]++
	}
	for s, n := range standings {
		ch <- constant(factReplicas, float64(n), string(s))
	}
	told := map[string]bool{}
	for _, l := range snap.Leases {
		job, ours := f.jobs[l.Job]
		if !ours || l.Disabled {
			continue // the row of a job that is no more is kept for ever, and nobody should miss it
		}
		if !told[l.Job] {
			told[l.Job] = true
			ch <- constant(factPaused, truth(l.Paused != nil), l.Job)
		}
		f.collectLease(ch, snap.AsOf, l, job)
	}
}

func (f *Facts) collectLease(ch chan<- prometheus.Metric, asOf time.Time, l Lease, job registry.Job) {
	labels := []string{l.Job, strings.TrimPrefix(strings.TrimPrefix(l.Name, l.Job), ".")}
	ch <- constant(factHeld, truth(l.State == Held), labels...)
	ch <- constant(factSuccess, unix(l.LastSuccess), labels...)
	started := time.Time{}
	if l.Last != nil && l.Last.EndedAt.IsZero() {
		started = l.Last.StartedAt
	}
	for _, each := range []struct {
		desc *prometheus.Desc
		at   time.Time
	}{{factExpires, l.ExpiresAt}, {factNext, l.NextTick}, {factStarted, started}, {factDue, f.due(asOf, l, job)}} {
		if !each.at.IsZero() {
			ch <- constant(each.desc, unix(each.at), labels...)
		}
	}
}

// due is the second tick after the last success, so that one bad run alarms nobody, and the time
// that the run of that tick may take: its timeout, or else twice what the newest success took. A job
// counts from the end of a pause at the earliest, and one without a success from this replica's start.
func (f *Facts) due(asOf time.Time, l Lease, job registry.Job) time.Time {
	from := l.LastSuccess
	if from.IsZero() {
		from = f.since
	}
	f.mu.Lock()
	if l.Paused != nil {
		f.paused[l.Name] = asOf
	}
	if at := f.paused[l.Name]; at.After(from) {
		from = at
	}
	if l.Last != nil && l.Last.Outcome == "success" {
		f.took[l.Name] = l.Last.EndedAt.Sub(l.Last.StartedAt)
	}
	may := job.Timeout
	if may == 0 {
		may = 2 * f.took[l.Name]
	}
	f.mu.Unlock()
	first := job.Schedule.Next(from)
	if first.IsZero() {
		return first
	}
	second := job.Schedule.Next(first)
	if second.IsZero() {
		second = first
	}
	return second.Add(job.Jitter + may)
}

func constant(d *prometheus.Desc, v float64, labels ...string) prometheus.Metric {
	return prometheus.MustNewConstMetric(d, prometheus.GaugeValue, v, labels...)
}

func truth(is bool) float64 {
	if is {
		return 1
	}
	return 0
}

// unix is in seconds; 0 for no time.
func unix(t time.Time) float64 {
	if t.IsZero() {
		return 0
	}
	return float64(t.UnixMilli()) / 1000
}
