//go:build prove

package scheduler

import (
	"fmt"
	"log/slog"
	"slices"
	"strconv"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"

	"rota/internal/fence"
	"rota/internal/pgtest"
	"rota/internal/registry"
)

// P8, and one million rows of history: pruning nineteen of twenty of them never has a claim wait for
// a lock for 50 ms, which the server sees to, whether the planner has statistics or not. Nor does it
// make claims slow: 99 of 100 within 50 ms (asserted with a margin of five).
func TestProvePruningAMillionRunsHoldsUpNoClaim(t *testing.T) {
	for _, analyze := range []bool{false, true} {
		t.Run(fmt.Sprintf("analyzed %t", analyze), func(t *testing.T) { pruneAMillion(t, analyze) })
	}
}

func pruneAMillion(t *testing.T, analyze bool) {
	db := pgtest.New(t)
	cfg := db.Config()
	cfg.ConnConfig.RuntimeParams["lock_timeout"] = "50ms"
	claiming, err := pgxpool.NewWithConfig(t.Context(), cfg)
	if err != nil {
		t.Fatal(err)
	}
	defer claiming.Close()
	s := &postgres{claiming, "me"}
	mustExec(t, db, `ALTER TABLE runs SET (autovacuum_enabled = false)`)
	mustExec(t, db, `INSERT INTO runs (lease, job, tick, epoch, owner, started_at, ended_at, outcome, log)
		SELECT 'job-' || i % 100, 'job-' || i % 100, at, 1, 'me', at, at, CASE WHEN i % 10 = 0 THEN 'failed' ELSE 'success' END, repeat('log ', 20)
		  FROM generate_series(0, 999999) i, LATERAL (SELECT clock_timestamp() - interval '1 day' - make_interval(secs => 1000000 - i) AS at) t`)
	mustExec(t, db, `INSERT INTO terms (job_name, epoch, owner, acquired_at, ended_at, end_reason)
		SELECT 'job-' || i % 10, i, 'me', clock_timestamp(), clock_timestamp(), 'released' FROM generate_series(1, 50000) i`)
	if analyze {
		mustExec(t, db, `VACUUM ANALYZE runs`)
	}
	tokens := make([]fence.Token, 100)
	for i := range tokens {
		tokens[i] = leads(t, db, fmt.Sprintf("job-%d", i), "me", 100_000)
		begins(t, s, tokens[i])
	}
	long(t, db)
	at := tick

	alone := claimWhile(t, db, s, tokens, &at, lapse(5*time.Second))
	pruned := make(chan struct{})
	var took time.Duration
	go func() {
		defer close(pruned)
		began := time.Now()
		// By age down to some 970 of each job, then by number.
		job := History(db, Keep{Age: 51 * time.Hour, Runs: 500})
		if err := job.Run(t.Context(), &registry.Run{Log: slog.New(slog.DiscardHandler)}); err != nil {
			t.Error(err)
		}
		took = time.Since(began)
	}()
	beside := claimWhile(t, db, s, tokens, &at, pruned)

	for what, d := range map[string][]time.Duration{"alone": alone, fmt.Sprintf("beside pruning, which took %v", took): beside} {
		t.Logf("%d claims of 100 ticks %s: median %v, 99 of 100 within %v, slowest %v", len(d), what, d[len(d)/2], d[len(d)*99/100], d[len(d)-1])
	}
	if d := beside[len(beside)*99/100]; d > 250*time.Millisecond {
		t.Errorf("99 of 100 claims took up to %v, wanted 50 ms", d)
	}
	const ended = `SELECT count(*)::text FROM runs WHERE log IS NOT NULL`
	if n, err := strconv.Atoi(lines(t, db, ended)[0]); err != nil || n < 100 || n > 50_000 {
		t.Errorf("%d runs of at most 500 for each of 100 jobs are left: %v", n, err)
	}
	if n := lines(t, db, `SELECT count(*)::text FROM terms`)[0]; n != "10090" {
		t.Errorf("%s terms are left", n)
	}
}

func lapse(d time.Duration) <-chan struct{} {
	done := make(chan struct{})
	time.AfterFunc(d, func() { close(done) })
	return done
}

// claimWhile claims a tick of every lease, one second after another, until it is told to stop, and
// returns how long each claim took, sorted.
func claimWhile(t *testing.T, db *pgxpool.Pool, s *postgres, tokens []fence.Token, at *time.Time, stop <-chan struct{}) []time.Duration {
	t.Helper()
	var took []time.Duration
	for {
		asked := make([]claim, len(tokens))
		for i, token := range tokens {
			asked[i] = ask(token, *at)
		}
		*at = at.Add(time.Second)
		mustExec(t, db, `UPDATE runs SET ended_at = clock_timestamp(), outcome = 'success' WHERE ended_at IS NULL`)
		began := time.Now()
		found := claims(t, s, asked...)
		took = append(took, time.Since(began))
		for token, c := range found {
			if c.verdict != won {
				t.Fatalf("the claim of %s was %s", token.Lease, c.verdict)
			}
		}
		select {
		case <-stop:
			slices.Sort(took)
			return took
		case <-time.After(20 * time.Millisecond):
		}
	}
}
