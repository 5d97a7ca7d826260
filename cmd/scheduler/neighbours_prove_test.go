//go:build prove

package main

import (
	"context"
	"fmt"
	"os"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"rota/internal/pgtest"
	"rota/internal/registry"
)

const good = 20

// endless is what the job says that logs without end.
const endless = "and on it goes"

func init() {
	second := registry.Cron("* * * * * *")
	neighbours := []registry.Job{
		{Name: "bad_hangs", Schedule: second, Timeout: time.Second, Run: func(context.Context, *registry.Run) error { select {} }},
		{Name: "bad_panics", Schedule: second, Run: func(context.Context, *registry.Run) error { panic("each time") }},
		{Name: "bad_logs", Schedule: second, Run: logEndlessly},
		{Name: "bad_hogs", Schedule: second, Run: hog},
	}
	for i := range good {
		neighbours = append(neighbours, registry.Job{Name: fmt.Sprintf("good_%02d", i), Schedule: second, Run: idle})
	}
	testJobs["neighbours"] = neighbours
}

func logEndlessly(ctx context.Context, run *registry.Run) error {
	for i := 0; ctx.Err() == nil; i++ {
		run.Log.Info(endless, "line", i)
	}
	return context.Cause(ctx)
}

// hog takes every connection that the jobs have, and tells when it has more than those.
func hog(ctx context.Context, run *registry.Run) error {
	var all sync.WaitGroup
	for range 50 {
		all.Go(func() {
			rows, err := run.DB.Query(ctx, `SELECT 1`)
			if err != nil {
				return
			}
			<-ctx.Done()
			rows.Close()
		})
	}
	all.Wait()
	return context.Cause(ctx)
}

// P8: jobs that hang, panic, log without end, and take every connection delay nobody else's tick, and
// no renewal.
func TestProveBadNeighboursDelayNobody(t *testing.T) {
	const watched = 30 * time.Second
	url := pgtest.URL(t)
	db := lookAt(t, url)
	replica := launchDeafTo(t, endless, url, "neighbours", append(withoutOurs(t), "--grace", "1s")...)
	if err := replica.await(30 * time.Second); err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"bad_logs", "bad_hogs"} {
		db.running(name)
	}
	eventually(t, 30*time.Second, "the pool of the jobs is taken", func() bool {
		return db.number(`SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() AND query = 'SELECT 1'`) >= 12
	})
	eventually(t, 30*time.Second, "the job that hangs has lost its lease", func() bool { return !db.lease("bad_hangs").held() })
	var leases []string
	for i := range good {
		leases = append(leases, fmt.Sprintf("good_%02d", i))
	}
	first := db.now().Truncate(time.Second).Add(time.Second)
	last := first.Add(watched)
	gap := db.widestGap(append(leases, "bad_panics", "bad_logs", "bad_hogs"), last)
	eventually(t, 20*time.Second, "the last tick is run", func() bool {
		return db.number(`SELECT count(*) FROM runs WHERE lease LIKE 'good%' AND tick = $1 AND outcome = 'success'`, last) == good
	})
	var delays []time.Duration
	for _, f := range db.fates(leases, first, last, time.Second) {
		if !f.ran() || len(f.Outcomes) != 1 {
			t.Errorf("%s at %v: %q", f.Lease, f.Tick.Format(time.TimeOnly), f.Outcomes)
		}
		delays = append(delays, f.Delay)
	}
	p50, p99, longest := quantiles(delays)
	t.Logf("beside them %d ticks of %d jobs: p50 %v p99 %v max %v late; a renewal every %v, the latest %v late",
		len(delays), good, p50, p99, longest, testRenew, max(0, gap-testRenew).Round(time.Millisecond))
	if longest > 500*time.Millisecond {
		t.Errorf("a tick came %v late", longest)
	}
	if gap > testRenew+500*time.Millisecond {
		t.Errorf("%v lay between two renewals", gap)
	}
	panics := db.number(`SELECT count(*) FROM runs WHERE job = 'bad_panics' AND outcome = 'panicked' AND tick BETWEEN $1 AND $2`, first, last)
	if panics != int(watched/time.Second)+1 {
		t.Errorf("%d runs panicked, not one a second", panics)
	}
	if code, _ := get(t, "http://"+replica.probeAddress()+"/livez"); code != 200 {
		t.Errorf("/livez %d", code)
	}
}

// launchDeafTo starts a replica some of whose lines are not kept.
func launchDeafTo(t *testing.T, msg, url, jobs string, args ...string) *child {
	t.Helper()
	exe, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	args = append([]string{
		"serve", "--name", "deaf", "--listen", "127.0.0.1:0", "--log", "json", "--lease", testLease.String(), "--renew", testRenew.String(),
	}, args...)
	env := childEnvironment(os.Environ(), "DATABASE_URL="+url, testJobsEnv+"="+jobs)
	p := &proc{t: t}
	c, err := startChild("deaf", exe, args, env, func(c *child, e entry) {
		if e.Msg != msg {
			p.hear(c, e)
		}
	})
	if err != nil {
		t.Fatal(err)
	}
	p.child = c
	t.Cleanup(func() {
		_ = c.cmd.Process.Kill()
		<-c.gone
		if t.Failed() {
			p.dump()
		}
	})
	return c
}

// widestGap is the longest time between two renewals of a lease until an instant; a term that ends
// is a test that fails.
func (e eye) widestGap(leases []string, until time.Time) (widest time.Duration) {
	e.t.Helper()
	type state struct {
		Name      string
		Epoch     int64
		ExpiresAt time.Time
	}
	before := map[string]state{}
	for look := time.NewTicker(20 * time.Millisecond); e.now().Before(until); <-look.C {
		rows, err := e.Query(e.t.Context(), `SELECT job_name, epoch, expires_at FROM leadership WHERE job_name = ANY ($1)`, leases)
		if err != nil {
			e.t.Fatal(err)
		}
		now, err := pgx.CollectRows(rows, pgx.RowToStructByPos[state])
		if err != nil {
			e.t.Fatal(err)
		}
		for _, s := range now {
			if b, known := before[s.Name]; known {
				widest = max(widest, s.ExpiresAt.Sub(b.ExpiresAt))
				if s.Epoch != b.Epoch {
					e.t.Errorf("the term of %s has ended", s.Name)
				}
			}
			before[s.Name] = s
		}
	}
	return widest
}
