package scheduler

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/jackc/pgx/v5/pgxpool"

	"rota/internal/fence"
	"rota/internal/pgtest"
	"rota/internal/registry"
)

// plainly claims by the statement for plain claims alone, and returns the runs that it has won.
func plainly(t testing.TB, s *postgres, asked ...claim) map[string]int64 {
	t.Helper()
	found := map[fence.Token]claimed{}
	if err := s.claimPlain(context.Background(), asked, found); err != nil {
		t.Fatal(err)
	}
	runs := map[string]int64{}
	for token, c := range found {
		if c.verdict != won || c.attempt != 1 || c.now.IsZero() {
			t.Errorf("%s: %+v", token.Lease, c)
		}
		runs[token.Lease] = c.run
	}
	return runs
}

// P7: the statement for plain claims wins what is due, led, free and not paused, and leaves all else as
// it was, for the other to judge.
func TestPlainClaimWinsNothingButTheNextTick(t *testing.T) {
	t.Parallel()
	db := pgtest.New(t)
	s := &postgres{db, "me"}
	var asked []claim
	for _, name := range []string{"early", "epoch", "expired", "held-lease", "held-progress", "no-progress", "owner", "passed", "paused", "won", "won-too"} {
		token := leads(t, db, name, "me", 7)
		begins(t, s, token)
		asked = append(asked, ask(token, tick))
	}
	long(t, db)
	asked[0] = ask(asked[0].token, time.Now().Add(time.Hour))
	mustExec(t, db, `UPDATE leadership SET epoch = 8 WHERE job_name = 'epoch'`)
	mustExec(t, db, `UPDATE leadership SET expires_at = clock_timestamp() WHERE job_name = 'expired'`)
	mustExec(t, db, `UPDATE leadership SET owner = 'other' WHERE job_name = 'owner'`)
	mustExec(t, db, `DELETE FROM progress WHERE lease = 'no-progress'`)
	mustExec(t, db, `UPDATE progress SET last_tick = $1 WHERE lease = 'passed'`, tick)
	mustExec(t, db, `INSERT INTO pauses (job, reason, paused_by) VALUES ('paused', 'why', 'who')`)
	mustExec(t, db, `INSERT INTO pauses (job, reason, paused_by, paused_at, until) VALUES ('won', 'why', 'who', now() - interval '2 h', now() - interval '1 h')`)
	holds(t, db, `SELECT FROM lease_epochs WHERE job_name = 'held-lease'`, `SELECT FROM progress WHERE lease = 'held-progress'`)

	got := plainly(t, s, asked...)
	if len(got) != 2 || got["won"] == 0 || got["won-too"] == 0 {
		t.Errorf("won %v", got)
	}
	if diff := cmp.Diff([]string{"won 1 7 me open", "won-too 1 7 me open"}, lines(t, db, runsSQL)); diff != "" {
		t.Errorf("runs (-want +got):\n%s", diff)
	}
	want := []string{fmt.Sprintf("won {%d}", got["won"]), fmt.Sprintf("won-too {%d}", got["won-too"])}
	if diff := cmp.Diff(want, lines(t, db, `SELECT lease || ' ' || open::text FROM progress WHERE last_tick = $1 AND lease <> 'passed' ORDER BY lease`, tick)); diff != "" {
		t.Errorf("progress (-want +got):\n%s", diff)
	}
	if again := plainly(t, s, asked...); len(again) != 0 {
		t.Errorf("late, or again, it wins %v", again)
	}
	mustExec(t, db, `INSERT INTO pauses (job, reason, paused_by) VALUES ('*', 'why', 'who')`)
	if got := plainly(t, s, ask(asked[9].token, tick.Add(time.Second))); len(got) != 0 {
		t.Errorf("while all are paused it wins %v", got)
	}
}

// P7: a tick that comes again, since the clock was set back, keeps no other lease from its own.
func TestTickThatComesAgainHoldsUpNoOther(t *testing.T) {
	t.Parallel()
	db := pgtest.New(t)
	s := &postgres{db, "me"}
	var asked []claim
	for _, name := range []string{"missed", "next", "run"} {
		token := leads(t, db, name, "me", 7)
		begins(t, s, token)
		asked = append(asked, ask(token, tick))
	}
	long(t, db)
	mustExec(t, db, `INSERT INTO runs (lease, job, tick, epoch, owner, ended_at, outcome)
		VALUES ('missed', 'missed', $1, 7, 'me', now(), 'missed'), ('run', 'run', $1, 7, 'me', now(), 'success')`, tick)
	if got := plainly(t, s, asked...); len(got) != 0 {
		t.Errorf("beside a tick that comes again it wins %v", got)
	}
	want := map[string]verdict{"missed": won, "next": won, "run": taken}
	if diff := cmp.Diff(want, verdicts(claims(t, s, asked...))); diff != "" {
		t.Errorf("verdicts (-want +got):\n%s", diff)
	}
	wantRuns := []string{"missed 1 7 me missed", "missed 2 7 me open", "next 1 7 me open", "run 1 7 me success"}
	if diff := cmp.Diff(wantRuns, lines(t, db, runsSQL)); diff != "" {
		t.Errorf("runs (-want +got):\n%s", diff)
	}
}

// P7: whatever is committed between what the statement sees and what it locks, it wins nothing of a term
// that is over and no tick twice, and keeps what it finds open.
func TestPlainClaimThatIsOvertakenGoesByTheNewestRows(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		meanwhile string
		want      []string // runs, and what is open
	}{
		"a takeover":             {`UPDATE leadership SET owner = 'new', epoch = 8 WHERE job_name = 'job'`, []string{"{}"}},
		"a claim of the tick":    {`UPDATE progress SET last_tick = '2026-01-01 08:00Z'`, []string{"{}"}},
		"a claim of a request":   {`UPDATE progress SET open = '{5}'`, []string{"job 1 7 me open", "{5,1}"}},
		"nothing":                {`SELECT`, []string{"job 1 7 me open", "{1}"}},
		"a renewal":              {`UPDATE leadership SET expires_at = expires_at + interval '1 s'`, []string{"job 1 7 me open", "{1}"}},
		"a claim of a later one": {`UPDATE progress SET last_tick = '2026-01-01 08:00:01Z'`, []string{"{}"}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			db := pgtest.New(t)
			s := &postgres{db, "me"}
			token := leads(t, db, "job", "me", 7)
			begins(t, s, token)
			long(t, db)
			goOn := waitsAtItsPauses(t, db)
			done := make(chan map[string]int64)
			go func() { done <- plainly(t, s, ask(token, tick)) }()
			eventuallyWaits(t, db)
			mustExec(t, db, c.meanwhile)
			goOn()
			if got := <-done; len(got) != len(c.want)-1 {
				t.Errorf("won %v", got)
			}
			got := append(lines(t, db, runsSQL), lines(t, db, `SELECT open::text FROM progress`)...)
			if diff := cmp.Diff(c.want, got); diff != "" {
				t.Errorf("runs and what is open (-want +got):\n%s", diff)
			}
		})
	}
}

// waitsAtItsPauses has each statement that reads the pauses wait there, once it has its snapshot and
// before it has locked a row, until the function is called.
func waitsAtItsPauses(t testing.TB, db *pgxpool.Pool) (goOn func()) {
	t.Helper()
	for _, sql := range []string{
		`ALTER TABLE pauses RENAME TO paused`,
		`CREATE FUNCTION waits() RETURNS SETOF paused LANGUAGE plpgsql AS $$ BEGIN PERFORM pg_advisory_xact_lock_shared(7); RETURN QUERY SELECT * FROM paused; END $$`,
		`CREATE VIEW pauses AS SELECT * FROM waits()`,
	} {
		mustExec(t, db, sql)
	}
	holder, err := db.Begin(context.Background())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = holder.Rollback(context.Background()) })
	if _, err := holder.Exec(context.Background(), `SELECT pg_advisory_xact_lock(7)`); err != nil {
		t.Fatal(err)
	}
	return func() { _ = holder.Rollback(context.Background()) }
}

// eventuallyWaits returns once a statement waits there.
func eventuallyWaits(t testing.TB, db *pgxpool.Pool) {
	t.Helper()
	for lines(t, db, `SELECT count(*)::text FROM pg_locks WHERE locktype = 'advisory' AND NOT granted AND database = (SELECT oid FROM pg_database WHERE datname = current_database())`)[0] == "0" {
		if t.Context().Err() != nil {
			t.Fatal("it does not wait")
		}
	}
}

// What a claim has won is run at once, although the rest of it failed.
func TestWhatIsWonStandsThoughTheRestFailed(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var delays notebook[time.Duration]
		work := func(_ context.Context, r *registry.Run) error {
			delays.add(time.Since(r.Tick))
			return nil
		}
		b := newBench(t, job("one", work), job("other", work))
		b.ticker.store = &halfStore{fakeStore: b.store}
		terms := []*fakeTerm{newFakeTerm(), newFakeTerm()}
		b.leads(terms[0], "one", 1)
		b.leads(terms[1], "other", 1)
		after(6 * time.Second)
		if d := delays.read(); len(d) != 2 || d[0] > time.Millisecond || d[1] < 250*time.Millisecond || d[1] > time.Second {
			t.Errorf("they began %v after their tick", d)
		}
		b.closes(terms...)
	})
}

// A halfStore judges one lease at first, and fails.
type halfStore struct {
	*fakeStore
	failed bool
}

func (s *halfStore) claim(ctx context.Context, asked []claim) (map[fence.Token]claimed, error) {
	if len(asked) > 1 && !s.failed {
		s.failed = true
		found, err := s.fakeStore.claim(ctx, asked[:1])
		return found, errors.Join(err, errors.New("the rest failed"))
	}
	return s.fakeStore.claim(ctx, asked)
}
