package scheduler

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/jackc/pgx/v5"

	"rota/internal/fence"
	"rota/internal/pgtest"
)

// P7: all ticks that are due at once are claimed in one statement, and each gets its own verdict.
func TestClaimGivesEachLeaseItsOwnVerdict(t *testing.T) {
	t.Parallel()
	db := pgtest.New(t)
	s := &postgres{db, "me"}
	names := []string{"early", "fenced-epoch", "fenced-expired", "fenced-owner", "held-lease", "held-progress", "skipped", "taken", "won"}
	asked := make([]claim, len(names))
	for i, name := range names {
		token := leads(t, db, name, "me", 7)
		begins(t, s, token)
		asked[i] = ask(token, tick)
	}
	long(t, db)
	asked[0] = ask(asked[0].token, time.Now().Add(time.Hour))
	asked[6].passed = []passed{{first: tick, last: tick, ticks: 1, outcome: skipped, why: "busy"}}
	asked[6].run = attempt{}
	claims(t, s, asked[7])
	long(t, db) // its run is there, its progress is not
	mustExec(t, db, `UPDATE leadership SET epoch = 8 WHERE job_name = 'fenced-epoch'`)
	mustExec(t, db, `UPDATE leadership SET owner = 'other' WHERE job_name = 'fenced-owner'`)
	mustExec(t, db, `UPDATE leadership SET expires_at = clock_timestamp() WHERE job_name = 'fenced-expired'`)
	mustExec(t, db, `UPDATE runs SET owner = 'other' WHERE lease = 'taken'`)
	nobody := fence.Token{Lease: "no-row", Owner: "me", Epoch: 7}
	asked = append(asked, ask(nobody, tick))

	holder, err := db.Begin(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = holder.Rollback(context.Background()) }()
	for _, sql := range []string{
		`SELECT FROM lease_epochs WHERE job_name = 'held-lease' FOR UPDATE`,
		`SELECT FROM progress WHERE lease = 'held-progress' FOR UPDATE`,
	} {
		if _, err := holder.Exec(t.Context(), sql); err != nil {
			t.Fatal(err)
		}
	}

	got := verdicts(claims(t, s, asked...))
	want := map[string]verdict{
		"won": won, "skipped": won, "taken": taken, "early": early, "held-lease": locked, "held-progress": locked,
		"fenced-epoch": fenced, "fenced-owner": fenced, "fenced-expired": fenced, "no-row": fenced,
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("verdicts (-want +got):\n%s", diff)
	}
	wantRuns := []string{"skipped 1 7 me skipped", "taken 1 7 other open", "won 1 7 me open"}
	if diff := cmp.Diff(wantRuns, lines(t, db, runsSQL)); diff != "" {
		t.Errorf("runs (-want +got):\n%s", diff)
	}
	wantProgress := []string{"skipped", "taken", "won"}
	if diff := cmp.Diff(wantProgress, lines(t, db, `SELECT lease FROM progress WHERE last_tick = $1 ORDER BY lease`, tick)); diff != "" {
		t.Errorf("leases whose progress is at the tick (-want +got):\n%s", diff)
	}
}

// P7: whatever two replicas that both believe to lead do at once, a tick has one run.
func TestTwoReplicasThatClaimOneTickMakeOneRun(t *testing.T) {
	t.Parallel()
	db := pgtest.New(t)
	old := leads(t, db, "job", "old", 1)
	former, present := &postgres{db, "old"}, &postgres{db, "new"}
	begins(t, former, old)
	long(t, db)

	const ticks = 60
	type answer struct {
		c   claimed
		err error
	}
	var answers [2]chan answer
	for i, s := range []*postgres{former, present} {
		answers[i] = make(chan answer, ticks)
		token := fence.Token{Lease: "job", Owner: s.owner, Epoch: int64(i + 1)}
		go func() {
			for n := range ticks {
				found, err := s.claim(t.Context(), []claim{ask(token, tick.Add(time.Duration(n)*time.Second))})
				answers[i] <- answer{found[token], err}
			}
		}()
	}
	// The takeover commits somewhere among the claims.
	mustExec(t, db, `UPDATE leadership SET owner = 'new', epoch = 2 WHERE job_name = 'job'`)
	runs := 0
	for _, from := range answers {
		for range ticks {
			a := <-from
			if a.err != nil {
				t.Fatal(a.err)
			}
			if a.c.verdict == won {
				runs++
			}
		}
	}
	rows := lines(t, db, `SELECT format('%s %s', count(*), count(DISTINCT tick)) FROM runs`)
	if want := fmt.Sprintf("%d %[1]d", runs); rows[0] != want {
		t.Errorf("%d claims were won, and there are (runs, ticks) %s", runs, rows[0])
	}
}

// P7: a claim that arrives after a takeover claims nothing.
func TestLateClaimOfAFormerTermIsFenced(t *testing.T) {
	t.Parallel()
	db := pgtest.New(t)
	old := leads(t, db, "job", "old", 1)
	begins(t, &postgres{db, "old"}, old)
	long(t, db)
	leads(t, db, "job", "new", 2)
	got := claims(t, &postgres{db, "old"}, ask(old, tick))
	if got[old].verdict != fenced {
		t.Errorf("the verdict is %q", got[old].verdict)
	}
	if runs := lines(t, db, runsSQL); len(runs) != 0 {
		t.Errorf("there are runs: %v", runs)
	}
}

// P7: a takeover waits for a claim that is under way, so that the successor sees what was claimed.
func TestTakeoverWaitsForAClaimUnderWay(t *testing.T) {
	t.Parallel()
	db := pgtest.New(t)
	token := leads(t, db, "job", "old", 1)
	begins(t, &postgres{db, "old"}, token)
	tx, err := db.Begin(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = tx.Rollback(context.Background()) }()
	if _, err := tx.Exec(t.Context(), `SET LOCAL synchronous_commit = off`); err != nil {
		t.Fatal(err)
	}
	asked := []claim{ask(token, tick)}
	rows, err := tx.Query(t.Context(), claimSQL, append(append([]any{pgx.QueryExecModeExec, "old"}, asks(asked)...), writtenOff(asked)...)...)
	if err != nil {
		t.Fatal(err)
	}
	rows.Close()
	if err := rows.Err(); err != nil {
		t.Fatal(err)
	}
	// What a crash of the server forgets would be claimed again.
	var durable string
	if err := tx.QueryRow(t.Context(), `SHOW synchronous_commit`).Scan(&durable); err != nil || durable != "on" {
		t.Errorf("the claim commits with synchronous_commit %q: %v", durable, err)
	}
	_, err = db.Exec(t.Context(), `UPDATE leadership SET owner = 'new', epoch = 2
		WHERE job_name = (SELECT job_name FROM lease_epochs WHERE job_name = 'job' FOR UPDATE NOWAIT)`)
	if err == nil || !strings.Contains(err.Error(), "55P03") {
		t.Errorf("a takeover did not have to wait: %v", err)
	}
	// A renewal, which changes no key, does not wait.
	if tag, err := db.Exec(t.Context(), `UPDATE leadership SET expires_at = expires_at + interval '1 second'
		WHERE job_name = (SELECT job_name FROM leadership WHERE job_name = 'job' FOR NO KEY UPDATE NOWAIT)`); err != nil || tag.RowsAffected() != 1 {
		t.Errorf("a renewal had to wait: %v, %v", tag, err)
	}
}

// P8: of two claims that are under way at once, neither waits for the other, whichever commits first.
func TestClaimsOfOtherLeasesDoNotWait(t *testing.T) {
	t.Parallel()
	db := pgtest.New(t)
	s := &postgres{db, "me"}
	var asked []claim
	for _, name := range []string{"first", "second"} {
		token := leads(t, db, name, "me", 1)
		begins(t, s, token)
		asked = append(asked, ask(token, tick))
	}
	long(t, db)
	tx, err := db.Begin(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = tx.Rollback(context.Background()) }()
	c := asked[0]
	_, err = tx.Exec(t.Context(), plainSQL, "me", []string{c.token.Lease}, []int64{1}, []string{c.job}, []time.Time{tick})
	if err != nil {
		t.Fatal(err)
	}
	if got := claims(t, s, asked...); got[asked[0].token].verdict != locked || got[asked[1].token].verdict != won {
		t.Errorf("beside a claim of the first that is under way: %v", verdicts(got))
	}
	if err := tx.Commit(t.Context()); err != nil {
		t.Fatal(err)
	}
	if got := claims(t, s, asked[0])[asked[0].token]; got.verdict != won {
		t.Errorf("once that came through it is %q", got.verdict)
	}
	if diff := cmp.Diff([]string{"first 1 1 me open", "second 1 1 me open"}, lines(t, db, runsSQL)); diff != "" {
		t.Errorf("runs (-want +got):\n%s", diff)
	}
}

// P7: after a lost answer the same is claimed again, and what was ours is recognised by owner and
// epoch. It stays another's for everybody else, and is over once it has ended.
func TestClaimWhoseAnswerWasLostIsStillOurs(t *testing.T) {
	t.Parallel()
	db := pgtest.New(t)
	token := leads(t, db, "job", "me", 1)
	s := &postgres{db, "me"}
	begins(t, s, token)
	long(t, db)
	c := ask(token, tick)
	first := claims(t, s, c)[token]
	again := claims(t, s, c)[token]
	if first.verdict != won || again.verdict != won || first.run == 0 || again.run != first.run {
		t.Errorf("claimed %+v, then %+v", first, again)
	}

	next := leads(t, db, "job", "me", 2) // the same process, in a new term
	if got := claims(t, s, ask(next, tick))[next]; got.verdict != taken {
		t.Errorf("for a new term the verdict is %q", got.verdict)
	}
	leads(t, db, "job", "me", 1)
	if _, err := s.record(t.Context(), []end{{run: first.run, owner: "me", outcome: success, at: time.Now()}}); err != nil {
		t.Fatal(err)
	}
	if got := claims(t, s, c)[token]; got.verdict != taken {
		t.Errorf("once the run has ended the verdict is %q", got.verdict)
	}
	if runs := lines(t, db, runsSQL); len(runs) != 1 {
		t.Errorf("runs are %v", runs)
	}
}
