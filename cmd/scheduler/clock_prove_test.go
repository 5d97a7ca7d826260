//go:build prove

package main

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"rota/internal/pgtest"
	"rota/internal/registry"
)

const clocked = 10

func init() {
	for i := range clocked {
		testJobs["clocked"] = append(testJobs["clocked"], registry.Job{
			Name: fmt.Sprintf("clocked_%d", i), Schedule: registry.Cron("* * * * * *"), Run: idle,
		})
	}
}

// A fakeClock is what Postgres takes for the time.
type fakeClock struct {
	t    *testing.T
	file string
}

// newFakeClock has every program that is started until stop is called take its time from the clock.
// The monotonic clock, by which Postgres waits, stays the true one.
func newFakeClock(t *testing.T, ahead time.Duration) (c *fakeClock, stop func()) {
	t.Helper()
	out, err := exec.Command(need(t, "faketime"), "-f", "+0", "sh", "-c", "echo $LD_PRELOAD").Output()
	if err != nil {
		t.Fatalf("find libfaketime: %v", err)
	}
	dir, err := os.MkdirTemp("", "rota-clock-") // where Postgres may read, whoever it runs as
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	if err := os.Chmod(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	c = &fakeClock{t: t, file: filepath.Join(dir, "offset")}
	c.set(ahead)
	env := map[string]string{
		"LD_PRELOAD":                   strings.TrimSpace(string(out)),
		"FAKETIME_TIMESTAMP_FILE":      c.file,
		"FAKETIME_NO_CACHE":            "1",
		"FAKETIME_DONT_FAKE_MONOTONIC": "1",
	}
	for name, value := range env {
		t.Setenv(name, value)
	}
	return c, func() {
		for name := range env {
			_ = os.Unsetenv(name)
		}
	}
}

// set sets the clock ahead of the true one.
func (c *fakeClock) set(ahead time.Duration) {
	c.t.Helper()
	next := c.file + ".next" // so that nobody reads half of it
	if err := os.WriteFile(next, fmt.Appendf(nil, "%+d\n", int(ahead.Seconds())), 0o644); err != nil {
		c.t.Fatal(err)
	}
	if err := os.Rename(next, c.file); err != nil {
		c.t.Fatal(err)
	}
}

// P7: ticks are those of the database's clock, two hours from the replicas', and while that jumps.
func TestProveTicksFollowTheDatabasesClockWhereverItJumps(t *testing.T) {
	const apart = 2 * time.Hour
	clock, stop := newFakeClock(t, apart)
	cluster := pgtest.Cluster(t)
	stop()
	url, args := cluster.URL("postgres"), withoutOurs(t)
	pgtest.Migrate(t, url)
	db := lookAt(t, url)
	if off := time.Until(db.now()); off < apart-time.Minute {
		t.Fatalf("the database's clock is %v ahead, not %v", off, apart)
	}
	for range 3 {
		launch(t, url, "clocked", args...).serving()
	}
	var leases []string
	for _, j := range testJobs["clocked"] {
		leases = append(leases, j.Name)
	}
	eventually(t, 30*time.Second, "every job has run", func() bool {
		return db.number(`SELECT count(DISTINCT lease) FROM runs WHERE lease LIKE 'clocked%'`) == clocked
	})

	db.onTime(leases, db.now(), "two hours apart", 0)

	clock.set(apart + time.Hour)
	jumped := db.now()
	db.onTime(leases, jumped, "after a jump of an hour forward", 1)

	clock.set(apart)
	back := db.now()
	db.onTime(leases, back, "after the jump back", 1)
	eventually(t, 10*time.Second, "no lease lasts for longer than a lease", func() bool {
		return db.number(`SELECT count(*) FROM leadership WHERE owner <> '' AND expires_at > clock_timestamp() + $1::interval`, testLease) == 0
	})

	doubled := db.number(`SELECT count(*) FROM (SELECT FROM runs WHERE outcome NOT IN ('missed', 'skipped', 'lost')
		GROUP BY lease, tick HAVING count(*) > 1) AS d`)
	lost := db.number(`SELECT count(*) FROM runs WHERE outcome = 'lost'`)
	written := db.number(`SELECT sum(ticks) FROM runs WHERE outcome = 'missed'`)
	t.Logf("%d ticks run twice, %d runs lost, %d ticks on record as missed", doubled, lost, written)
	if doubled > 0 {
		t.Errorf("%d ticks were run twice", doubled)
	}
	if written < clocked*3500 {
		t.Errorf("of the hour that the clock left out %d ticks are on record as missed", written)
	}
}

const (
	// settling is what a jump may cost: the leases that it ended are won again.
	settling = 5 * time.Second
	observed = 15 * time.Second
)

// onTime watches for a while from an instant on, by the database's clock: after the settling every
// tick is run once and in time, and of what lies before it at most so many are run for each lease.
func (e eye) onTime(leases []string, from time.Time, when string, late int) {
	e.t.Helper()
	first := from.Add(settling).Truncate(time.Second)
	last := first.Add(observed)
	eventually(e.t, settling+observed+20*time.Second, "every job is past the last tick, "+when, func() bool {
		return e.number(`SELECT count(*) FROM runs WHERE lease = ANY ($2) AND tick = $1 AND outcome = 'success'`, last, leases) == len(leases)
	})
	var delays []time.Duration
	for _, f := range e.fates(leases, first, last, time.Second) {
		ran := 0
		for _, o := range f.Outcomes {
			if o == "success" {
				ran++
			}
		}
		if ran != 1 || f.Delay < 0 || f.Delay > 500*time.Millisecond {
			e.t.Errorf("%s: %s at %v: %q, %v late", when, f.Lease, f.Tick.Format(time.TimeOnly), f.Outcomes, f.Delay)
		}
		delays = append(delays, f.Delay)
	}
	p50, p99, longest := quantiles(delays)
	var idle float64
	err := e.QueryRow(e.t.Context(), `SELECT extract(epoch FROM max(first) - $1)::float8 FROM (
		SELECT min(started_at) AS first FROM runs WHERE started_at BETWEEN $1 AND $2 AND outcome = 'success' GROUP BY lease) AS f`,
		from, last).Scan(&idle)
	if err != nil {
		e.t.Fatal(err)
	}
	burst := e.number(`SELECT coalesce(max(n), 0) FROM (
		SELECT count(*) AS n FROM runs WHERE started_at BETWEEN $1 AND $2 AND tick < $1 AND outcome NOT IN ('missed', 'skipped') GROUP BY lease) AS b`,
		from, last)
	e.t.Logf("%s: every job ran again within %.2f s, %d ticks on time (p50 %v p99 %v max %v after the tick), at most %d earlier ones of a lease run",
		when, idle, len(delays), p50, p99, longest, burst)
	if burst > late+1 { // one may have been under way
		e.t.Errorf("%s: %d earlier ticks of one lease were run", when, burst)
	}
}
