package browser

import (
	"context"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"

	"rota/internal/control"
	"rota/internal/pgtest"
	"rota/internal/registry"
	"rota/internal/status"
	"rota/internal/web"
)

// A site is the page over a database that nobody else writes.
type site struct {
	url   string
	db    *pgxpool.Pool // the test's
	page  *pgxpool.Pool // the page's
	asked atomic.Int64  // requests of any kind
}

func run(t *testing.T, db *pgxpool.Pool, sql string, args ...any) {
	t.Helper()
	if _, err := db.Exec(t.Context(), sql, args...); err != nil {
		t.Fatalf("%s: %v", sql, err)
	}
}

func newSite(t *testing.T, jobs []registry.Job, seed func(*testing.T, *pgxpool.Pool)) *site {
	t.Helper()
	db := pgtest.New(t)
	if seed != nil {
		seed(t, db)
		renew(t, db)
	}
	page, err := pgxpool.NewWithConfig(t.Context(), db.Config())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(page.Close)
	gate, err := web.NewGate(web.Access{Listen: "127.0.0.1:0"})
	if err != nil {
		t.Fatal(err)
	}
	nothing := http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, "ok") })
	s := &site{db: db, page: page}
	handler := web.Handler(web.Config{
		Status: status.New(page, jobs), Desk: control.NewDesk(page, jobs), Gate: gate, Jobs: jobs,
		Metrics: nothing, Live: nothing, Ready: nothing, Log: slog.New(slog.DiscardHandler),
		Version: "v1.4.0", Environment: "production", EnvironmentColor: "red",
	})
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		s.asked.Add(1)
		handler.ServeHTTP(w, r)
	}))
	t.Cleanup(server.Close)
	s.url = server.URL
	return s
}

const (
	first  = "rota-7c9f4/2075d748-5d6e-4f70-8192-a3b4c5d6e7f8"
	second = "rota-b41d2/63abb974-5d6e-4f70-8192-a3b4c5d6e7f8"
	third  = "rota-e08a7/dbf0a639-5d6e-4f70-8192-a3b4c5d6e7f8"
)

// desk are the jobs of a trading desk, some of which do well.
func desk() []registry.Job {
	return []registry.Job{
		{Name: "bridge_health", About: "Pings every bridge, and writes whether it is up and how fast it answers.", Schedule: registry.Every(5 * time.Second), Timeout: 4 * time.Second, Source: "jobs/bridge_health.go:31", Runbook: "https://runbooks.example.com/bridge-health", Args: struct {
			Parallel int
			Timeout  time.Duration
		}{32, 2 * time.Second}},
		{Name: "fx_fixing", About: "Takes the fixing of each pair.", Schedule: registry.Cron("0 16 * * MON-FRI").In("Europe/London"), Source: "jobs/fx_fixing.go:18"},
		{Name: "ledger_archive", About: "Moves closed days of the ledger to the archive.", Schedule: registry.Cron("30 2 * * *").In("America/New_York"), Source: "jobs/ledger_archive.go:22"},
		{Name: "margin_report", About: "Sends each desk its margin, before it opens.", Schedule: registry.Cron("45 7 * * MON-FRI").In("Europe/Berlin"), Retry: registry.Retry{Attempts: 3}, Timeout: 10 * time.Minute, Source: "jobs/margin_report.go:40"},
		{Name: "quote_watch", About: "Listens to each quote feed, and says when one falls silent.", Schedule: registry.Continuous, Source: "jobs/quote_watch.go:25"},
		{Name: "reconciliation", About: "Compares the engine’s trades with each broker’s statement.", Schedule: registry.Cron("*/5 * * * *"), Source: "jobs/reconciliation.go:28"},
		{Name: "symbol_sync", About: "Keeps the symbols of each venue as the venue lists them.", Schedule: registry.Cron("*/15 * * * *"), Source: "jobs/symbol_sync.go:33"},
		{Name: "venue_fees", About: "Reads the fee tables of the venues.", Schedule: registry.OnDemand, Source: "jobs/venue_fees.go:12"},
	}
}

// busy fills the database with what such a desk has seen by now.
func busy(t *testing.T, db *pgxpool.Pool) {
	for _, id := range []string{first, second, third} {
		run(t, db, `INSERT INTO replicas (id, host, pid, version, started_at, seen_at, expires_at, clock_offset, hints)
			VALUES ($1, split_part($1, '/', 1), 7, 'v1.4.0', clock_timestamp() - interval '3 days 4 hours', clock_timestamp(), clock_timestamp() + interval '15 s', '0.0021', true)`, id)
	}
	for job, l := range map[string]struct {
		owner string
		epoch int
	}{
		"bridge_health": {first, 42}, "fx_fixing": {second, 17}, "ledger_archive": {third, 9}, "margin_report": {first, 23},
		"quote_watch": {second, 31}, "reconciliation": {third, 56}, "symbol_sync": {first, 12},
	} {
		run(t, db, `INSERT INTO leadership (job_name, owner, expires_at, epoch) VALUES ($1, $2, clock_timestamp() + interval '15 s', $3)`, job, l.owner, l.epoch)
		run(t, db, `UPDATE terms SET acquired_at = clock_timestamp() - interval '26 minutes' WHERE job_name = $1`, job)
		run(t, db, `UPDATE leadership SET acquired_at = clock_timestamp() - interval '26 minutes' WHERE job_name = $1`, job)
	}
	// Earlier terms, and why they ended.
	run(t, db, `INSERT INTO terms (job_name, epoch, owner, acquired_at, ended_at, end_reason)
		SELECT job_name, l.epoch - i, (ARRAY[$1, $2, $3])[1 + (i + l.epoch) % 3], l.acquired_at - i * interval '47 minutes', l.acquired_at - (i - 1) * interval '47 minutes' - (i % 3) * interval '40 s',
		       (ARRAY['to spread the load', 'expired', 'stepped down: kernel update', 'drain'])[1 + i % 4]
		  FROM leadership l, generate_series(1, 7) i WHERE l.epoch > 8`, first, second, third)
	run(t, db, `UPDATE leadership SET expires_at = clock_timestamp() - interval '2 minutes' WHERE job_name = 'ledger_archive'`)
	// What ran.
	past := func(job string, every, took time.Duration, n int) {
		run(t, db, `INSERT INTO runs (lease, job, tick, epoch, owner, started_at, ended_at, outcome, log)
			SELECT $1, $1, date_trunc('second', clock_timestamp()) - i * $2::interval, l.epoch, l.owner, date_trunc('second', clock_timestamp()) - i * $2::interval + interval '3 ms',
			       date_trunc('second', clock_timestamp()) - i * $2::interval + interval '3 ms' + $3::interval * (0.8 + 0.5 * abs(sin(i * 1.7)) + CASE WHEN i % 23 = 7 THEN 1.6 ELSE 0 END), 'success', 'level=INFO msg="32 bridges asked" up=32'
			  FROM leadership l, generate_series($4, 1, -1) i WHERE l.job_name = $1`, job, every, took, n)
	}
	past("bridge_health", 5*time.Second, 412*time.Millisecond, 90)
	past("fx_fixing", 24*time.Hour, 2300*time.Millisecond, 12)
	past("ledger_archive", 24*time.Hour, 94*time.Second, 20)
	past("margin_report", 24*time.Hour, 31*time.Second, 20)
	past("reconciliation", 5*time.Minute, 3100*time.Millisecond, 40)
	past("symbol_sync", 15*time.Minute, 1200*time.Millisecond, 30)
	run(t, db, `UPDATE runs SET outcome = 'failed', error = 'no route to LP-3: dial tcp 10.40.1.9:7001: i/o timeout' WHERE job = 'bridge_health' AND id % 31 = 5`)
	run(t, db, `UPDATE runs SET outcome = 'skipped', error = 'the run before was still under way' WHERE job = 'bridge_health' AND id % 31 = 9`)
	run(t, db, `UPDATE runs SET outcome = 'panicked', error = E'runtime error: index out of range [3] with length 3\n\ngoroutine 87 [running]:\nrota/jobs.(*margins).send(0xc000412000, 0x3)\n\t/src/jobs/margin_report.go:88 +0x1d4', refused = 2
		WHERE id = (SELECT max(id) FROM runs WHERE job = 'margin_report')`)
	run(t, db, `INSERT INTO runs (lease, job, tick, epoch, owner, started_at) SELECT 'quote_watch', 'quote_watch', clock_timestamp() - interval '25 minutes', 31, $1, clock_timestamp() - interval '25 minutes'`, second)
	run(t, db, `INSERT INTO progress (lease, last_tick, schedule, success) SELECT job, max(tick), 'x', max(id) FILTER (WHERE outcome = 'success') FROM runs GROUP BY job`)
	run(t, db, `INSERT INTO pauses (job, reason, paused_by, paused_at, until) VALUES ('symbol_sync', 'the venue moves its listing to another host', 'mara', clock_timestamp() - interval '38 minutes', clock_timestamp() + interval '82 minutes')`)
	run(t, db, `INSERT INTO audit (at, actor, via, action, job, lease, reason, detail) VALUES
		(clock_timestamp() - interval '3 hours', 'jo', 'cli', 'step_down', 'bridge_health', 'bridge_health', 'kernel update', '{"epoch": 40}'),
		(clock_timestamp() - interval '38 minutes', 'mara', 'page', 'pause', 'symbol_sync', NULL, 'the venue moves its listing to another host', '{"until": "2026-03-01T08:00:00Z"}')`)
	run(t, db, `INSERT INTO requests (kind, job, lease, reason, asked_by) VALUES ('run', 'venue_fees', 'venue_fees', 'new fee table', 'jo')`)
}

// renew keeps what is led led, as replicas would, until the test ends.
func renew(t *testing.T, db *pgxpool.Pool) {
	t.Helper()
	ctx, stop := context.WithCancel(context.WithoutCancel(t.Context()))
	var renewing sync.WaitGroup
	renewing.Go(func() {
		for beat := time.NewTicker(200 * time.Millisecond); ctx.Err() == nil; <-beat.C {
			_, _ = db.Exec(ctx, `UPDATE leadership SET expires_at = clock_timestamp() + interval '11 s' WHERE expires_at > clock_timestamp()`)
			_, _ = db.Exec(ctx, `UPDATE replicas SET seen_at = clock_timestamp(), expires_at = clock_timestamp() + interval '15 s'`)
		}
	})
	t.Cleanup(func() {
		stop()
		renewing.Wait()
	})
}
