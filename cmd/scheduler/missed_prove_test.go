//go:build prove

package main

import (
	"fmt"
	"syscall"
	"testing"
	"time"

	"rota/internal/pgtest"
	"rota/internal/registry"
)

// missedPeriod leaves room between two ticks for a replica to start and to make up for what it missed.
const missedPeriod = 20 * time.Second

var (
	missedCounts   = []int{101, 1000}
	missedPolicies = map[string]registry.Missed{
		"run_latest": registry.RunLatest, "run_all": registry.RunAll, "run_none": registry.RunNone,
	}
)

func missedJob(policy string, n int) string { return fmt.Sprintf("%s_%d", policy, n) }

func init() {
	for policy, missed := range missedPolicies {
		for _, n := range missedCounts {
			testJobs["missed"] = append(testJobs["missed"], registry.Job{
				Name: missedJob(policy, n), Schedule: registry.Every(missedPeriod), Missed: missed, Run: idle,
			})
		}
	}
}

// P7: of the ticks that passed while no replica was there, the policy's number is run, at once, and
// each of the others is on record; then the job goes on in time.
func TestProveMissedTicksAreMadeUpForByPolicy(t *testing.T) {
	t.Parallel() // it mostly waits
	url, args := pgtest.URL(t), withoutOurs(t)
	db := lookAt(t, url)
	jobs := len(testJobs["missed"])
	before := launch(t, url, "missed", args...).serving()
	eventually(t, 30*time.Second, "every schedule is known", func() bool {
		return db.number(`SELECT count(*) FROM progress WHERE lease LIKE 'run\_%'`) == jobs
	})
	before.send(syscall.SIGTERM)
	before.code(20 * time.Second)

	// All that follows is to be over before the next tick.
	time.Sleep(time.Until(db.now().Truncate(missedPeriod).Add(missedPeriod + time.Second)))
	newest := db.now().Truncate(missedPeriod)
	execute(t, url, `DELETE FROM runs`)
	for _, n := range missedCounts {
		execute(t, url, `UPDATE progress SET last_tick = $1 WHERE lease LIKE '%\_' || $2`,
			newest.Add(-time.Duration(n)*missedPeriod), fmt.Sprint(n))
	}
	launch(t, url, "missed", args...).serving()
	next := newest.Add(missedPeriod)
	eventually(t, missedPeriod+20*time.Second, "the next tick of each is run", func() bool {
		return db.number(`SELECT count(*) FROM runs WHERE lease LIKE 'run\_%' AND tick = $1 AND outcome = 'success'`, next) == jobs
	})

	for policy, missed := range missedPolicies {
		for _, n := range missedCounts {
			want := map[registry.Missed]int{registry.RunLatest: 1, registry.RunAll: registry.MissedBound, registry.RunNone: 0}[missed]
			db.madeUpFor(missedJob(policy, n), n, want, newest)
		}
	}
}

// madeUpFor checks that of so many ticks, up to the newest, the latest were run and the others are
// on record as missed, and that the one after them was run in time.
func (e eye) madeUpFor(lease string, n, want int, newest time.Time) {
	e.t.Helper()
	oldest := newest.Add(-time.Duration(n-1) * missedPeriod)
	all := e.fates([]string{lease}, oldest, newest.Add(missedPeriod), missedPeriod)
	ran := 0
	for i, f := range all[:n] {
		run := i >= n-want
		if run {
			ran++
		}
		if run != f.ran() || run == f.writtenOff() || !run && f.Outcomes[0] != "missed" {
			e.t.Errorf("%s, tick %d of %d: %q", lease, i+1, n, f.Outcomes)
		}
	}
	var acquired time.Time
	if err := e.QueryRow(e.t.Context(), `SELECT acquired_at FROM leadership WHERE job_name = $1`, lease).Scan(&acquired); err != nil {
		e.t.Fatal(err)
	}
	took, delay := time.Duration(0), all[n].Delay
	if want > 0 {
		took = all[n-1].Started.Sub(acquired)
	}
	e.t.Logf("%-15s %d of %d ticks run, the last %v after the lease was won; the next tick %v late",
		lease, ran, n, took.Round(time.Millisecond), delay.Round(time.Millisecond))
	if took > 10*time.Second || !all[n].ran() || delay > 2500*time.Millisecond {
		e.t.Errorf("%s: made up for after %v, the next tick %v late (%q)", lease, took, delay, all[n].Outcomes)
	}
}
