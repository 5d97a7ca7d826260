//go:build prove

package main

import (
	"context"
	"fmt"
	"os"
	"runtime"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"rota/internal/pgtest"
	"rota/internal/registry"
)

const (
	many       = 10_000
	manyPeriod = 5 * time.Second
)

func init() {
	calls := roll{ticks: map[time.Time][]time.Duration{}}
	for i := range many {
		testJobs["many"] = append(testJobs["many"], registry.Job{
			Name: fmt.Sprintf("many_%05d", i), Schedule: registry.Every(manyPeriod), Run: calls.answer,
		})
	}
}

// A roll notes, inside the replica, when each of the many jobs was called, and tells of each tick for
// which all of them were.
type roll struct {
	mu    sync.Mutex
	ticks map[time.Time][]time.Duration
}

func (r *roll) answer(_ context.Context, run *registry.Run) error {
	delay := time.Since(run.Tick)
	r.mu.Lock()
	defer r.mu.Unlock()
	delays := append(r.ticks[run.Tick], delay)
	r.ticks[run.Tick] = delays
	if len(delays) == many {
		delete(r.ticks, run.Tick)
		go tell(run.Tick, delays)
	}
	return nil
}

// A burst is what a replica says of one tick of all its jobs.
type burst struct {
	tick               int64 // in Unix time
	p50, p99, longest  int64 // from the tick to the call, in milliseconds
	goroutines, memory int64 // some time after it; in bytes
}

const burstFormat = "all called for %d: p50 %d p99 %d max %d ms, %d goroutines %d bytes"

// tell tells of a tick once its records are written.
func tell(tick time.Time, delays []time.Duration) {
	time.Sleep(manyPeriod / 2) // in the replica, which cannot see its records: what is told must not disturb them
	p50, p99, longest := quantiles(delays)
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	fmt.Fprintf(os.Stderr, burstFormat+"\n", tick.Unix(), p50.Milliseconds(), p99.Milliseconds(), longest.Milliseconds(),
		runtime.NumGoroutine(), m.HeapAlloc)
}

// bursts are those after a tick, up to another.
func (p *proc) bursts(after, last time.Time) (all []burst) {
	for _, e := range p.heard() {
		var b burst
		if !strings.HasPrefix(e.Msg, "all called for ") {
			continue
		}
		if _, err := fmt.Sscanf(e.Msg, burstFormat, &b.tick, &b.p50, &b.p99, &b.longest, &b.goroutines, &b.memory); err != nil {
			p.t.Fatalf("%q: %v", e.Msg, err)
		}
		if b.tick > after.Unix() && b.tick <= last.Unix() {
			all = append(all, b)
		}
	}
	return all
}

// P7, P8: ten thousand jobs that are due at the same instant start together, for two minutes, and
// leave nothing behind.
func TestProveTenThousandJobsDueAtOnceStartInTimeForTwoMinutes(t *testing.T) {
	const ticks = int(2 * time.Minute / manyPeriod)
	url := pgtest.URL(t)
	db := lookAt(t, url)
	began := time.Now()
	replica := launch(t, url, "many", append(withoutOurs(t), "--lease", "15s", "--renew", "5s")...).serving()
	eventually(t, time.Minute, "all are led", func() bool {
		return db.number(`SELECT count(*) FROM progress WHERE lease LIKE 'many%'`) == many
	})
	t.Logf("all were led %v after the start", time.Since(began).Round(time.Millisecond))
	warm := db.now().Truncate(manyPeriod).Add(manyPeriod) // the first tick finds no plan and no memory
	first, last := warm.Add(manyPeriod), warm.Add(time.Duration(ticks)*manyPeriod)
	time.Sleep(time.Until(last.Add(manyPeriod / 2))) // to look all the time would be a load of its own
	eventually(t, time.Minute, "all are past the last tick", func() bool {
		return db.number(`SELECT count(*) FROM progress WHERE lease LIKE 'many%' AND last_tick >= $1`, last) == many
	})
	eventually(t, time.Minute, "all runs are on record", func() bool {
		return db.number(`SELECT count(*) FROM runs WHERE ended_at IS NULL AND tick <= $1`, last) == 0
	})
	all := replica.bursts(warm, last)
	if len(all) < ticks/3 {
		t.Fatalf("of %d ticks only %d were run by all jobs: this machine is too slow for the test to show anything", ticks, len(all))
	}
	var p99s []int64
	var longest int64
	for _, b := range all {
		p99s, longest = append(p99s, b.p99), max(longest, b.longest)
		t.Logf("%v: p50 %d ms p99 %d ms max %d ms; %d goroutines, %.1f MiB",
			time.Unix(b.tick, 0).UTC().Format(time.TimeOnly), b.p50, b.p99, b.longest, b.goroutines, float64(b.memory)/(1<<20))
	}
	slices.Sort(p99s)
	p99 := p99s[len(p99s)/2]
	t.Logf("of %d ticks of %d jobs %d were run by all; p99 of the middle one %d ms, of the worst %d ms, the latest start %d ms",
		ticks, many, len(all), p99, p99s[len(p99s)-1], longest)
	if p99 > 5000 {
		t.Errorf("ticks came late: p99 %d ms", p99)
	}
	goroutines, memory := grown(all)
	t.Logf("from the first third to the last goroutines grew by %.1f %%, memory by %.1f %%", 100*goroutines, 100*memory)
	if goroutines > .05 || memory > .2 {
		t.Errorf("goroutines grew by %.0f %%, memory by %.0f %%", 100*goroutines, 100*memory)
	}

	// A machine that cannot do so much in five seconds writes ticks off; none may be absent or double.
	rows := db.number(`SELECT count(*) FROM runs WHERE lease LIKE 'many%' AND tick BETWEEN $1 AND $2
		AND attempt = 1 AND ticks = 1 AND outcome IN ('success', 'skipped', 'missed')`, first, last)
	every := db.number(`SELECT count(*) FROM runs WHERE lease LIKE 'many%' AND tick BETWEEN $1 AND $2`, first, last)
	runs := db.number(`SELECT count(*) FROM runs WHERE lease LIKE 'many%' AND tick BETWEEN $1 AND $2 AND outcome = 'success'`, first, last)
	t.Logf("%d of %d ticks were run, the others are on record", runs, many*ticks)
	if rows != many*ticks || every != rows {
		t.Errorf("of %d ticks %d are accounted for, in %d rows", many*ticks, rows, every)
	}
	replica.send(syscall.SIGTERM)
	if code := replica.code(30 * time.Second); code != exitOK {
		t.Errorf("exit code %d", code)
	}
	if open := db.number(`SELECT count(*) FROM runs WHERE ended_at IS NULL`); open > 0 {
		t.Errorf("%d runs are left open", open)
	}
}

// grown is by how much of itself the mean of the last third is above that of the first.
func grown(all []burst) (goroutines, memory float64) {
	third := len(all) / 3
	mean := func(some []burst, of func(burst) int64) (sum float64) {
		for _, b := range some {
			sum += float64(of(b))
		}
		return sum / float64(len(some))
	}
	growth := func(of func(burst) int64) float64 {
		return mean(all[len(all)-third:], of)/mean(all[:third], of) - 1
	}
	return growth(func(b burst) int64 { return b.goroutines }), growth(func(b burst) int64 { return b.memory })
}
