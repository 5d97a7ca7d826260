package scheduler

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
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
		`SELECT FROM leadership WHERE job_name = 'held-lease' FOR UPDATE`,
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
		WHERE job_name = (SELECT job_name FROM leadership WHERE job_name = 'job' FOR UPDATE NOWAIT)`)
	if err == nil || !strings.Contains(err.Error(), "55P03") {
		t.Errorf("a takeover did not have to wait: %v", err)
	}
	// A renewal, which changes no key, does not wait.
	if tag, err := db.Exec(t.Context(), `UPDATE leadership SET expires_at = expires_at + interval '1 second'
		WHERE job_name = (SELECT job_name FROM leadership WHERE job_name = 'job' FOR NO KEY UPDATE NOWAIT)`); err != nil || tag.RowsAffected() != 1 {
		t.Errorf("a renewal had to wait: %v, %v", tag, err)
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

// P7: what former terms left open is closed as lost by the next one, and nothing else is.
func TestNewTermClosesTheRunsThatWereLost(t *testing.T) {
	t.Parallel()
	db := pgtest.New(t)
	s := &postgres{db, "new"}
	mustExec(t, db, `INSERT INTO runs (lease, job, tick, epoch, owner, ended_at, outcome) VALUES
		('job',   'job',   '2026-01-01 08:00Z', 1, 'old', NULL, NULL),
		('job',   'job',   '2026-01-01 08:01Z', 1, 'old', '2026-01-01 08:01Z', 'failed'),
		('job',   'job',   '2026-01-01 08:02Z', 9, 'old', NULL, NULL),
		('job',   'job',   '2026-01-01 08:03Z', 2, 'new', NULL, NULL),
		('other', 'other', '2026-01-01 08:00Z', 1, 'old', NULL, NULL)`)
	late := fence.Token{Lease: "other", Owner: "new", Epoch: 1}
	leads(t, db, "other", "old", 1)
	token := leads(t, db, "job", "new", 2)
	found, err := s.begin(t.Context(), []opening{{token, "every 1s", 3}, {late, "every 1s", 3}})
	if err != nil {
		t.Fatal(err)
	}
	if got := found[token]; got.verdict != begun || got.lost != 2 {
		t.Errorf("the term: %+v", got)
	}
	if got := found[late]; got.verdict != fenced {
		t.Errorf("a lease of somebody else: %+v", got)
	}
	want := []string{
		"job 1 1 old lost", "job 1 1 old failed", "job 1 9 old lost", "job 1 2 new open", "other 1 1 old open",
	}
	if diff := cmp.Diff(want, lines(t, db, runsSQL)); diff != "" {
		t.Errorf("runs (-want +got):\n%s", diff)
	}
}

// P7: a job that is seen for the first time, or under another schedule, counts from now, and that
// moment is kept at once; a handover changes nothing.
func TestProgressCountsFromTheFirstSightAndFromAChange(t *testing.T) {
	t.Parallel()
	db := pgtest.New(t)
	token := leads(t, db, "job", "me", 1)
	s := &postgres{db, "me"}
	first := begins(t, s, token).last
	if since := time.Since(first); since < -time.Minute || since > time.Minute {
		t.Errorf("a job seen for the first time counts from %v", first)
	}
	next := leads(t, db, "job", "other", 2)
	if got := begins(t, &postgres{db, "other"}, next).last; !got.Equal(first) {
		t.Errorf("the next term counts from %v, not from %v", got, first)
	}
	found, err := (&postgres{db, "other"}).begin(t.Context(), []opening{{next, "every 2s", 3}})
	if err != nil {
		t.Fatal(err)
	}
	if got := found[next].last; !got.After(first) {
		t.Errorf("under a new schedule it counts from %v", got)
	}
	if got := lines(t, db, `SELECT schedule FROM progress`); got[0] != "every 2s" {
		t.Errorf("the schedule kept is %q", got)
	}
}

// P8: a row that somebody holds keeps nobody else's term from beginning.
func TestHeldRowsHoldUpTheirOwnTermAlone(t *testing.T) {
	t.Parallel()
	db := pgtest.New(t)
	s := &postgres{db, "me"}
	held, changed, open, free := leads(t, db, "held", "me", 1), leads(t, db, "changed", "me", 1), leads(t, db, "open", "me", 1), leads(t, db, "free", "me", 1)
	begins(t, s, changed)
	mustExec(t, db, `INSERT INTO runs (lease, job, tick, epoch, owner) VALUES ('open', 'open', '2026-01-01 08:00Z', 0, 'old')`)
	holder, err := db.Begin(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = holder.Rollback(context.Background()) }()
	for _, sql := range []string{
		`SELECT FROM leadership WHERE job_name = 'held' FOR UPDATE`,
		`SELECT FROM progress WHERE lease = 'changed' FOR UPDATE`,
		`SELECT FROM runs WHERE lease = 'open' FOR UPDATE`,
	} {
		if _, err := holder.Exec(t.Context(), sql); err != nil {
			t.Fatal(err)
		}
	}
	found, err := s.begin(t.Context(), []opening{{held, "x", 3}, {changed, "x", 3}, {open, "x", 3}, {free, "x", 3}})
	if err != nil {
		t.Fatal(err)
	}
	for token, want := range map[fence.Token]verdict{held: locked, changed: locked, open: begun, free: begun} {
		if got := found[token].verdict; got != want {
			t.Errorf("the verdict on %s is %q, want %q", token.Lease, got, want)
		}
	}
}

func TestRecordWritesEachEndOnce(t *testing.T) {
	t.Parallel()
	db := pgtest.New(t)
	s := &postgres{db, "me"}
	mustExec(t, db, `INSERT INTO runs (lease, job, tick, epoch, owner, ended_at, outcome)
		SELECT name, name, '2026-01-01 08:00Z', 1, 'me', CASE WHEN o <> '' THEN clock_timestamp() END, nullif(o, '')
		  FROM (VALUES ('a-open', ''), ('b-lost', 'lost'), ('c-lost', 'lost'), ('d-done', 'success'), ('e-held', '')) AS v(name, o)`)
	mustExec(t, db, `INSERT INTO runs (lease, job, tick, epoch, owner) VALUES ('f-other', 'f-other', '2026-01-01 08:00Z', 1, 'other')`)
	holder, err := db.Begin(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = holder.Rollback(context.Background()) }()
	if _, err := holder.Exec(t.Context(), `SELECT FROM runs WHERE lease = 'e-held' FOR UPDATE`); err != nil {
		t.Fatal(err)
	}
	ids, err := db.Query(t.Context(), `SELECT id FROM runs ORDER BY lease`)
	if err != nil {
		t.Fatal(err)
	}
	id, err := pgx.CollectRows(ids, pgx.RowTo[int64])
	if err != nil {
		t.Fatal(err)
	}
	now := time.Now()
	settled, err := s.record(t.Context(), []end{
		{run: id[0], owner: "me", outcome: failed, fault: "no route", at: now.Add(-time.Hour)},
		{run: id[1], owner: "me", outcome: refused, fault: "fenced", refused: 3, at: now},
		{run: id[2], owner: "me", outcome: success, at: now},
		{run: id[3], owner: "me", outcome: refused, at: now},
		{run: id[4], owner: "me", outcome: success, at: now},
		{run: id[5], owner: "me", outcome: success, at: now},
		{run: 1 << 40, owner: "me", outcome: success, at: now},
	})
	if err != nil {
		t.Fatal(err)
	}
	want := map[int64]bool{id[0]: true, id[1]: true, id[2]: true, id[3]: true, id[5]: true, 1 << 40: true} // all but the held one
	if diff := cmp.Diff(want, settled); diff != "" {
		t.Errorf("settled (-want +got):\n%s", diff)
	}
	wantRuns := []string{
		"a-open 1 1 me failed", "b-lost 1 1 me fenced 3", "c-lost 1 1 me lost", "d-done 1 1 me success",
		"e-held 1 1 me open", "f-other 1 1 other open",
	}
	if diff := cmp.Diff(wantRuns, lines(t, db, runsSQL)); diff != "" {
		t.Errorf("runs (-want +got):\n%s", diff)
	}
	// An end an hour ago is not before the start.
	if got := lines(t, db, `SELECT (ended_at = started_at)::text FROM runs WHERE lease = 'a-open'`); got[0] != "true" {
		t.Error("the run ended before it began")
	}
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
