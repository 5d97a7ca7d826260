package scheduler

import (
	"context"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/jackc/pgx/v5/pgxpool"

	"rota/internal/pgtest"
)

func pauseRow(t testing.TB, db *pgxpool.Pool, job, until string) {
	t.Helper()
	mustExec(t, db, `INSERT INTO pauses (job, reason, paused_by, paused_at, until)
		VALUES ($1, 'no ' || $1, 'ann', clock_timestamp() - interval '2 hours', clock_timestamp() + $2::text::interval)`, job, until)
}

// P7: whether a job is paused is decided as its tick is claimed. The tick is then on record as skipped,
// with who paused the job and why; its own pause is named before the one of all.
func TestClaimOfAPausedJobIsOnRecordAsSkipped(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		pauses map[string]*string // until, from now
		want   string             // why; empty: it is run
	}{
		"none":             {nil, ""},
		"its own":          {map[string]*string{"job": nil}, "paused by ann: no job"},
		"all":              {map[string]*string{"*": nil}, "paused by ann: no *"},
		"both":             {map[string]*string{"*": nil, "job": nil}, "paused by ann: no job"},
		"for a while":      {map[string]*string{"job": new("1 hour")}, "paused by ann: no job"},
		"over":             {map[string]*string{"job": new("-1 hour"), "*": new("-1 minute")}, ""},
		"its own is over":  {map[string]*string{"job": new("-1 hour"), "*": nil}, "paused by ann: no *"},
		"that of another":  {map[string]*string{"other": nil}, ""},
		"of another's too": {map[string]*string{"other": nil, "job": new("1 hour")}, "paused by ann: no job"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			db := pgtest.New(t)
			s := &postgres{db, "me"}
			token := leads(t, db, "job", "me", 7)
			begins(t, s, token)
			cut(t, db, "job")
			long(t, db)
			for job, until := range c.pauses {
				if until == nil {
					until = new("infinity")
				}
				if *until == "infinity" {
					mustExec(t, db, `INSERT INTO pauses (job, reason, paused_by) VALUES ($1, 'no ' || $1, 'ann')`, job)
					continue
				}
				pauseRow(t, db, job, *until)
			}
			want := map[kind]verdict{scheduled: paused, again: paused, moment: paused, requested: won, rebase: rebased}
			if c.want == "" {
				want = map[kind]verdict{scheduled: won, again: won, moment: won, requested: won, rebase: rebased}
			}
			got := map[kind]verdict{}
			for _, k := range kinds {
				found := claims(t, s, claimOf(k, token))[token]
				if got[k] = found.verdict; found.verdict == won && found.run == 0 {
					t.Errorf("%s: %+v", k, found)
				}
			}
			if diff := cmp.Diff(want, got); diff != "" {
				t.Errorf("verdicts (-want +got):\n%s", diff)
			}
			rows := lines(t, db, `SELECT concat_ws(' ', attempt, coalesce(outcome, 'open'), error) FROM runs WHERE tick >= $1 OR attempt = 2 ORDER BY tick`, tick)
			wantRows := []string{"2 open", "1 open", "1 open", "1 open"}
			if c.want != "" {
				wantRows = []string{"2 skipped " + c.want, "1 skipped " + c.want, "1 open"}
			}
			if diff := cmp.Diff(wantRows, rows); diff != "" {
				t.Errorf("rows (-want +got):\n%s", diff)
			}
			if n := lines(t, db, `SELECT count(*)::text FROM runs WHERE again`); n[0] != "0" {
				t.Error("what was lost is still to be run again")
			}
			if at := lines(t, db, `SELECT (last_tick = $1)::text FROM progress`, tick); at[0] != "true" {
				t.Error("the progress did not follow")
			}
		})
	}
}

// P8: rows of pauses and requests that somebody holds delay nothing, but for the request itself.
func TestHeldPausesAndRequestsDelayNoClaim(t *testing.T) {
	t.Parallel()
	db := pgtest.New(t)
	s := &postgres{db, "me"}
	token := leads(t, db, "job", "me", 7)
	mustExec(t, db, `INSERT INTO requests (kind, job, lease, asked_by) VALUES ('run', 'job', 'job', 'ann')`)
	pauseRow(t, db, "job", "1 hour")
	holds(t, db, `SELECT FROM pauses`, `SELECT FROM requests`)
	begins(t, s, token)
	long(t, db)
	if got := claims(t, s, ask(token, tick))[token]; got.verdict != paused {
		t.Errorf("the tick: %+v", got)
	}
	c := claimOf(requested, token)
	if got := claims(t, s, c)[token]; got.verdict != won {
		t.Errorf("another request: %+v", got)
	}
	c.run.request = 1
	if got := claims(t, s, c)[token]; got.verdict != locked {
		t.Errorf("the request: %+v", got)
	}
}

// P7: a request that is settled before its run has begun has none, also where it is settled by one
// whose transaction was open when it was claimed; one that has begun is claimed again by its claimant.
func TestSettledRequestIsNotRun(t *testing.T) {
	t.Parallel()
	db := pgtest.New(t)
	s := &postgres{db, "me"}
	token := leads(t, db, "job", "me", 7)
	begins(t, s, token)
	mustExec(t, db, `INSERT INTO requests (kind, job, lease, asked_by) SELECT 'run', 'job', 'job', 'ann' FROM generate_series(1, 2)`)
	const settle = `UPDATE requests SET done_at = clock_timestamp(), result = 'withdrawn' WHERE id = $1`
	claimOne := func(id int64) claimed {
		c := claimOf(requested, token)
		c.run.request = id
		return claims(t, s, c)[token]
	}
	desk, err := db.Begin(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = desk.Rollback(context.Background()) }()
	if _, err := desk.Exec(t.Context(), settle, 1); err != nil {
		t.Fatal(err)
	}
	if got := claimOne(1); got.verdict != locked {
		t.Errorf("while it is being settled: %+v", got)
	}
	if err := desk.Commit(t.Context()); err != nil {
		t.Fatal(err)
	}
	if got := claimOne(1); got.verdict != taken || got.run != 0 {
		t.Errorf("once it is settled: %+v", got)
	}
	first := claimOne(2)
	mustExec(t, db, settle, 2)
	if again := claimOne(2); first.verdict != won || again.verdict != won || again.run != first.run {
		t.Errorf("one that has begun: %+v, and again %+v", first, again)
	}
	if runs := lines(t, db, `SELECT request_id::text FROM runs WHERE request_id IS NOT NULL`); len(runs) != 1 || runs[0] != "2" {
		t.Errorf("runs for requests %q", runs)
	}
}
