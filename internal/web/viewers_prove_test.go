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

	"github.com/jackc/pgx/v5/pgxpool"

	"rota/internal/control"
	"rota/internal/pgtest"
	"rota/internal/status"
)

// manySQL is 10,000 jobs with a million runs, nearly all of them successes.
var manySQL = []string{
	`CREATE EXTENSION pg_stat_statements`,
	`ALTER TABLE runs SET (autovacuum_enabled = false)`,
	`INSERT INTO leadership (job_name, owner, expires_at, epoch)
	 SELECT to_char(i, 'FM"job-"00000'), 'pod/1', clock_timestamp() + interval '1 hour', 10 FROM generate_series(0, 9999) i`,
	`INSERT INTO progress (lease, last_tick, schedule) SELECT job_name, clock_timestamp(), 'every 1m40s' FROM leadership`,
	`INSERT INTO runs (lease, job, tick, epoch, owner, started_at, ended_at, outcome, error)
	 SELECT to_char(i % 10000, 'FM"job-"00000'), to_char(i % 10000, 'FM"job-"00000'), at, 1 + i / 100000, 'pod/1', at, at + interval '1 second',
	        CASE WHEN i % 1000 = 11 THEN 'failed' ELSE 'success' END, CASE WHEN i % 1000 = 11 THEN 'no route to LP-3' END
	   FROM generate_series(0, 999999) i, LATERAL (SELECT clock_timestamp() - interval '600 s' - make_interval(secs => (1000000 - i) / 100) AS at) t`,
	`VACUUM ANALYZE runs, leadership, progress`,
}

const (
	manyViewers = 50
	viewedFor   = 8 * time.Second
	viewedEvery = 2 * time.Second // as the page's script does
)

// 10,000 jobs, a million runs, 50 viewers of pages of 100 jobs whose leases are renewed meanwhile: p99
// under 100 ms (asserted with a margin of five), and no more queries than for one viewer.
func TestProveFiftyViewersCostTheDatabaseWhatOneDoes(t *testing.T) {
	db := pgtest.New(t)
	for _, sql := range manySQL {
		run(t, db, sql)
	}
	pool, err := pgxpool.NewWithConfig(t.Context(), db.Config()) // the page's own, as large as a replica has it
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

	view(t, server.URL, 1, time.Second) // the first reading of all
	alone, _ := queriesDuring(t, db, func() []time.Duration { return view(t, server.URL, 1, viewedFor) })
	many, took := queriesDuring(t, db, func() []time.Duration { return view(t, server.URL, manyViewers, viewedFor) })
	slices.Sort(took)
	p50, p99 := took[len(took)/2], took[len(took)*99/100]
	t.Logf("%d answers, p50 %v, p99 %v, slowest %v; in %v, one viewer cost %d queries, %d viewers %d", len(took), p50, p99, took[len(took)-1], viewedFor, alone, manyViewers, many)
	if p99 > 500*time.Millisecond {
		t.Errorf("p99 is %v, wanted 100 ms", p99)
	}
	// A reading a second, whoever looks; one viewer who looks every two seconds may need but every other.
	if readings := int(viewedFor/time.Second) + 2; many > alone/int(viewedFor/viewedEvery)*readings {
		t.Errorf("%d queries for %d viewers, %d for one", many, manyViewers, alone)
	}
}

// view has n viewers look at different pages, and returns how long each answer took.
func view(t *testing.T, address string, n int, lasts time.Duration) []time.Duration {
	ctx, cancel := context.WithTimeout(t.Context(), lasts)
	defer cancel()
	var mu sync.Mutex
	var took []time.Duration
	var viewers sync.WaitGroup
	for i := range n {
		viewers.Go(func() {
			page, tag := fmt.Sprintf("%s/?page=%d", address, 1+i%5), ""
			wait := time.NewTimer(time.Duration(i) * viewedEvery / time.Duration(n))
			for {
				select {
				case <-ctx.Done():
					return
				case <-wait.C:
				}
				wait.Reset(viewedEvery)
				r, err := http.NewRequest(http.MethodGet, page, nil)
				if err != nil {
					t.Error(err)
					return
				}
				r.Header.Set("If-None-Match", tag)
				began := time.Now()
				w, err := http.DefaultClient.Do(r)
				if err != nil {
					t.Error(err)
					return
				}
				_, err = io.Copy(io.Discard, w.Body)
				d := time.Since(began)
				_ = w.Body.Close()
				if err != nil || w.StatusCode != http.StatusOK && w.StatusCode != http.StatusNotModified || w.Header.Get("Rota-Stale") != "" {
					t.Errorf("%s: %s, stale %q, %v", page, w.Status, w.Header.Get("Rota-Stale"), err)
				}
				tag = w.Header.Get("ETag")
				mu.Lock()
				took = append(took, d)
				mu.Unlock()
			}
		})
	}
	viewers.Wait()
	return took
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
