package scheduler

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"rota/internal/fence"
	"rota/internal/pgtest"
)

func mustExec(t testing.TB, db *pgxpool.Pool, sql string, args ...any) {
	t.Helper()
	if _, err := db.Exec(context.Background(), sql, args...); err != nil {
		t.Fatal(err)
	}
}

// lines are the rows of a query with one text column.
func lines(t testing.TB, db *pgxpool.Pool, sql string, args ...any) []string {
	t.Helper()
	rows, err := db.Query(context.Background(), sql, args...)
	if err != nil {
		t.Fatal(err)
	}
	all, err := pgx.CollectRows(rows, pgx.RowTo[string])
	if err != nil {
		t.Fatal(err)
	}
	return all
}

// leads gives the owner a lease that lasts an hour.
func leads(t testing.TB, db *pgxpool.Pool, name, owner string, epoch int64) fence.Token {
	t.Helper()
	mustExec(t, db, `INSERT INTO leadership (job_name, owner, expires_at, epoch)
		VALUES ($1, $2, clock_timestamp() + interval '1 hour', $3)
		ON CONFLICT (job_name) DO UPDATE SET owner = EXCLUDED.owner, expires_at = EXCLUDED.expires_at, epoch = EXCLUDED.epoch`,
		name, owner, epoch)
	return fence.Token{Lease: name, Owner: owner, Epoch: epoch}
}

// begins begins a term and fails the test if it cannot.
func begins(t testing.TB, s *postgres, token fence.Token) opened {
	t.Helper()
	found, err := s.begin(t.Context(), []opening{{token, "every 1s", 3}})
	if err != nil {
		t.Fatal(err)
	}
	if found[token].verdict != begun {
		t.Fatalf("the verdict on %v is %q", token, found[token].verdict)
	}
	return found[token]
}

func claims(t testing.TB, s *postgres, asked ...claim) map[fence.Token]claimed {
	t.Helper()
	found, err := s.claim(t.Context(), asked)
	if err != nil {
		t.Fatal(err)
	}
	return found
}

// ask is the claim of a tick by its lease, which has the job's name.
func ask(t fence.Token, at time.Time) claim {
	return claim{token: t, job: t.Lease, kind: scheduled, run: attempt{tick: at, number: 1}, until: at}
}

// verdicts are by lease.
func verdicts(found map[fence.Token]claimed) map[string]verdict {
	all := map[string]verdict{}
	for token, c := range found {
		all[token.Lease] = c.verdict
	}
	return all
}

const runsSQL = `SELECT concat_ws(' ', lease, attempt, epoch, owner, coalesce(outcome, 'open'), nullif(refused, 0)) FROM runs ORDER BY lease, tick, attempt`

// tick is an instant that is long due by the database's clock.
var tick = time.Date(2026, 1, 1, 8, 0, 0, 0, time.UTC)

// long makes the progress of leases so old that tick is due.
func long(t testing.TB, db *pgxpool.Pool) {
	t.Helper()
	mustExec(t, db, `UPDATE progress SET last_tick = $1`, tick.Add(-time.Second))
}

func TestThousandsAtOnceTakeOneStatement(t *testing.T) {
	t.Parallel()
	db := pgtest.New(t)
	mustExec(t, db, `INSERT INTO leadership (job_name, owner, expires_at, epoch)
		SELECT 'job-' || n, 'me', clock_timestamp() + interval '1 hour', 1 FROM generate_series(1, 2000) n`)
	s := &postgres{db, "me"}
	var asked []opening
	var due []claim
	for n := range 2000 {
		token := fence.Token{Lease: fmt.Sprintf("job-%d", n+1), Owner: "me", Epoch: 1}
		asked = append(asked, opening{token, "every 1s", 3})
		due = append(due, ask(token, tick))
	}
	found, err := s.begin(t.Context(), asked)
	if err != nil || len(found) != 2000 {
		t.Fatalf("%d terms begun: %v", len(found), err)
	}
	long(t, db)
	ends := make([]end, 0, 2000)
	for _, c := range claims(t, s, due...) {
		if c.verdict != won {
			t.Fatalf("a verdict is %q", c.verdict)
		}
		ends = append(ends, end{run: c.run, owner: "me", outcome: success, at: time.Now()})
	}
	settled, err := s.record(t.Context(), ends)
	if err != nil || len(settled) != 2000 {
		t.Fatalf("%d runs recorded: %v", len(settled), err)
	}
}

// holds locks rows as an operator's psql may, until the test ends.
func holds(t testing.TB, db *pgxpool.Pool, queries ...string) {
	t.Helper()
	holder, err := db.Begin(context.Background())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = holder.Rollback(context.Background()) })
	for _, sql := range queries {
		if _, err := holder.Exec(context.Background(), sql+" FOR UPDATE"); err != nil {
			t.Fatal(err)
		}
	}
}

// claimOf is a claim of one of the kinds, which can be won where tick is due and attempt 1 of the tick
// before it was lost.
func claimOf(k kind, t fence.Token) claim {
	c := ask(t, tick)
	c.kind = k
	switch k {
	case moment:
		c.run.tick, c.until = tick.Add(time.Microsecond), time.Time{}
	case requested:
		c.run, c.until = attempt{tick: tick.Add(2 * time.Microsecond), number: 1, request: 1 + int64(len(t.Lease))}, time.Time{}
	case again:
		c.run, c.until = attempt{tick: tick.Add(-time.Second), number: 2}, time.Time{}
	case rebase:
		c.run, c.until = attempt{}, time.Time{}
	}
	return c
}

var kinds = []kind{scheduled, moment, requested, again, rebase}

// cut leaves a run of the tick before tick that is to be run again.
func cut(t testing.TB, db *pgxpool.Pool, lease string) {
	t.Helper()
	mustExec(t, db, `INSERT INTO runs (lease, job, tick, epoch, owner, ended_at, outcome, again)
		VALUES ($1, $1, $2, 0, 'old', clock_timestamp(), 'lost', true)`, lease, tick.Add(-time.Second))
}
