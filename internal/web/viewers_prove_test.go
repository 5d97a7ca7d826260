//go:build prove

package web

import (
	"context"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"rota/internal/control"
	"rota/internal/pgtest"
	"rota/internal/status"
)

// fillWithMany makes 10,000 jobs with a million runs, nearly all of them successes. They are made by two
// at once, and their indexes afterwards, which takes half as long.
func fillWithMany(t *testing.T, db *pgxpool.Pool) {
	t.Helper()
	run(t, db, `ALTER TABLE runs DROP CONSTRAINT runs_lease_tick_attempt_key, SET (autovacuum_enabled = false)`)
	rows, err := db.Query(t.Context(), `
		SELECT indexrelid::regclass::text, pg_get_indexdef(indexrelid) FROM pg_index WHERE indrelid = 'runs'::regclass AND NOT indisprimary`)
	if err != nil {
		t.Fatal(err)
	}
	indexes, err := pgx.CollectRows(rows, pgx.RowToStructByPos[struct{ Name, Definition string }])
	if err != nil {
		t.Fatal(err)
	}
	definitions := []string{`ALTER TABLE runs ADD CONSTRAINT runs_lease_tick_attempt_key UNIQUE (lease, tick, attempt)`}
	for _, x := range indexes {
		run(t, db, `DROP INDEX `+x.Name)
		definitions = append(definitions, x.Definition)
	}
	const half = `
		INSERT INTO runs (id, lease, job, tick, epoch, owner, started_at, ended_at, outcome, error) OVERRIDING SYSTEM VALUE
		SELECT i + 1, name, name, at, 1 + i / 100000, 'pod/1', at, at + interval '1 second',
		       CASE WHEN i % 1000 = 11 THEN 'failed' ELSE 'success' END, CASE WHEN i % 1000 = 11 THEN 'no route to LP-3' END
		  FROM generate_series($1::int, $1 + 499999) i,
		       LATERAL (SELECT 'job-' || lpad((i % 10000)::text, 5, '0') AS name, clock_timestamp() - interval '600 s' - make_interval(secs => (1000000 - i) / 100) AS at) t`
	var both sync.WaitGroup
	both.Go(func() { run(t, db, half, 0) })
	both.Go(func() { run(t, db, half, 500_000) })
	both.Wait()
	for _, sql := range definitions[1:] {
		both.Go(func() { run(t, db, sql) })
	}
	both.Wait()
	run(t, db, definitions[0]) // it locks the table
	run(t, db, `INSERT INTO leadership (job_name, owner, expires_at, epoch)
		SELECT 'job-' || lpad(i::text, 5, '0'), 'pod/1', clock_timestamp() + interval '1 hour', 10 FROM generate_series(0, 9999) i`)
	run(t, db, `INSERT INTO progress (lease, last_tick, schedule, success)
		SELECT 'job-' || lpad(i::text, 5, '0'), clock_timestamp(), 'every 1m40s', CASE WHEN i % 1000 = 11 THEN 1 ELSE 990001 END + i FROM generate_series(0, 9999) i`)
	run(t, db, `VACUUM ANALYZE runs, leadership, progress, terms`)
	run(t, db, `CREATE EXTENSION IF NOT EXISTS pg_stat_statements`)
}

const (
	manyViewers = 50
	viewedFor   = 4 * time.Second
	viewedEvery = 2 * time.Second // as the page's script does
)

// 10,000 jobs, a million runs, 50 viewers of pages of 100 jobs whose leases are renewed meanwhile: p99
// under 100 ms (asserted with a margin of five), and no more queries than for one viewer of each page.
func TestProveFiftyViewersCostTheDatabaseWhatOneDoes(t *testing.T) {
	db := pgtest.New(t)
	began := time.Now()
	fillWithMany(t, db)
	t.Logf("filled in %v", time.Since(began))
	for range 3 {
		began := time.Now()
		if _, err := status.NewPatient(db, nil, 30*time.Second).Snapshot(t.Context()); err != nil {
			t.Fatal(err)
		}
		t.Logf("a reading takes %v", time.Since(began))
	}
	pool, err := pgxpool.NewWithConfig(t.Context(), db.Config())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(pool.Close)
	server := httptest.NewServer(Handler(Config{
		Status: status.New(pool, nil), Desk: control.NewDesk(pool, nil), Gate: gate(t, Access{Listen: "127.0.0.1:0"}),
		Metrics: says(""), Live: says(""), Ready: says(""), Log: slog.New(slog.DiscardHandler),
	}))
	t.Cleanup(server.Close)
	renewing, stop := context.WithCancel(t.Context())
	var renewals sync.WaitGroup
	renewals.Go(func() {
		for renewing.Err() == nil {
			_, _ = db.Exec(renewing, `UPDATE leadership SET expires_at = clock_timestamp() + interval '1 hour' WHERE job_name < 'job-01000'`)
			select {
			case <-renewing.Done():
			case <-time.After(500 * time.Millisecond):
			}
		}
	})
	t.Cleanup(func() { stop(); renewals.Wait() })

	view(t, server.URL, shownPages, time.Second) // the first reading of all
	few, _ := queriesDuring(t, db, func() []time.Duration { return view(t, server.URL, shownPages, viewedFor) })
	many, took := queriesDuring(t, db, func() []time.Duration { return view(t, server.URL, manyViewers, viewedFor) })
	if len(took) < manyViewers {
		t.Fatalf("only %d answers", len(took))
	}
	slices.Sort(took)
	p50, p99 := took[len(took)/2], took[len(took)*99/100]
	t.Logf("%d answers, p50 %v, p99 %v, slowest %v; in %v, one viewer of each of %d pages cost %d queries, %d viewers %d",
		len(took), p50, p99, took[len(took)-1], viewedFor, shownPages, few, manyViewers, many)
	if p99 > 500*time.Millisecond {
		t.Errorf("p99 is %v, wanted 100 ms", p99)
	}
	// What is shown is read at most once a second, whoever looks; one who looks every two seconds needs
	// but every other of these. A tenth more is a reading at the edges.
	if most := few*2 + few/10 + 20; many > most {
		t.Errorf("%d queries for %d viewers, %d for %d", many, manyViewers, few, shownPages)
	}
}

const shownPages = 5

// view has n viewers look at shownPages different pages, and returns how long each answer took.
func view(t *testing.T, address string, n int, lasts time.Duration) []time.Duration {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), lasts)
	defer cancel()
	var mu sync.Mutex
	var took []time.Duration
	var viewers sync.WaitGroup
	for i := range n {
		viewers.Go(func() {
			page, tag := fmt.Sprintf("%s/?page=%d", address, 1+i%shownPages), ""
			wait := time.NewTimer(time.Duration(i) * viewedEvery / time.Duration(n))
			for {
				select {
				case <-ctx.Done():
					return
				case <-wait.C:
				}
				wait.Reset(viewedEvery)
				began := time.Now()
				next, err := look(t, page, tag)
				d := time.Since(began)
				if err != nil {
					t.Errorf("%s: %v", page, err)
					return // once is enough
				}
				tag = next
				mu.Lock()
				took = append(took, d)
				mu.Unlock()
			}
		})
	}
	viewers.Wait()
	return took
}

// look asks for what is new of a page, and returns the tag of what it has then.
func look(t *testing.T, page, tag string) (string, error) {
	r, err := http.NewRequestWithContext(t.Context(), http.MethodGet, page, nil)
	if err != nil {
		return "", err
	}
	r.Header.Set("If-None-Match", tag)
	r.Header.Set("Rota-Part", "main")
	w, err := http.DefaultClient.Do(r)
	if err != nil {
		return "", err
	}
	defer w.Body.Close()
	if _, err := io.Copy(io.Discard, w.Body); err != nil {
		return "", err
	}
	if w.StatusCode != http.StatusOK && w.StatusCode != http.StatusNotModified || w.Header.Get("Rota-Stale") != "" {
		return "", fmt.Errorf("%s, stale %q", w.Status, w.Header.Get("Rota-Stale"))
	}
	return w.Header.Get("ETag"), nil
}

// queriesDuring counts the statements of the pages, which are the only ones that read here.
func queriesDuring(t *testing.T, db *pgxpool.Pool, f func() []time.Duration) (int, []time.Duration) {
	t.Helper()
	const sql = `SELECT coalesce(sum(calls), 0)::int FROM pg_stat_statements s JOIN pg_database d ON d.oid = s.dbid
		WHERE d.datname = current_database() AND query ILIKE '%select%' AND query NOT ILIKE 'UPDATE%' AND query NOT ILIKE '%pg_stat_statements%'`
	before := number(t, db, sql)
	took := f()
	return number(t, db, sql) - before, took
}
