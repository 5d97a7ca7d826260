package scheduler

import (
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"rota/internal/fence"
	"rota/internal/pgtest"
)

// P7, P8: each kind of claim is refused by what concerns it, and by nothing else.
func TestEachKindOfClaimGetsItsVerdict(t *testing.T) {
	t.Parallel()
	db := pgtest.New(t)
	s := &postgres{db, "me"}
	var asked []claim
	want := map[string]verdict{}
	for _, k := range kinds {
		for n, state := range []string{"free", "held-lease", "held-progress", "held-cut", "other-epoch"} {
			name := fmt.Sprintf("%s-%s%*s", k, state, n, "")
			token := leads(t, db, name, "me", 7)
			begins(t, s, token)
			cut(t, db, name)
			asked = append(asked, claimOf(k, token))
			switch {
			case state == "other-epoch":
				want[name] = fenced
			case state == "held-lease", state == "held-progress":
				want[name] = locked
			case k == rebase:
				want[name] = rebased
			default:
				want[name] = won
			}
		}
	}
	for i := range asked { // a request is one lease's
		if asked[i].kind == requested {
			asked[i].run.request = int64(i)
		}
	}
	long(t, db)
	mustExec(t, db, `UPDATE leadership SET epoch = 8 WHERE job_name LIKE '%other-epoch%'`)
	holds(t, db, `SELECT FROM lease_epochs WHERE job_name LIKE '%held-lease%'`, `SELECT FROM progress WHERE lease LIKE '%held-progress%'`,
		`SELECT FROM runs WHERE lease LIKE '%held-cut%'`)
	found := claims(t, s, asked...)
	if diff := cmp.Diff(want, verdicts(found)); diff != "" {
		t.Errorf("verdicts (-want +got):\n%s", diff)
	}
	for _, c := range asked {
		if got := found[c.token]; (got.run != 0) != (got.verdict == won) {
			t.Errorf("%s: %+v", c.token.Lease, got)
		}
	}
	left := lines(t, db, `SELECT lease FROM runs WHERE again AND lease LIKE 'again%' ORDER BY lease`)
	if want := []string{"again-held-cut   ", "again-held-lease ", "again-held-progress  ", "again-other-epoch    "}; cmp.Diff(want, left) != "" {
		t.Errorf("still to be run again: %q", left)
	}
}

// P7: a claim of any kind whose answer was lost is repeated, and claims nothing more.
func TestClaimOfEachKindMayBeRepeated(t *testing.T) {
	t.Parallel()
	db := pgtest.New(t)
	s := &postgres{db, "me"}
	for _, k := range kinds {
		token := leads(t, db, string(k), "me", 7)
		begins(t, s, token)
		cut(t, db, string(k))
		long(t, db)
		c := claimOf(k, token)
		c.passed = []passed{{first: tick.Add(-3 * time.Second), last: tick.Add(-2 * time.Second), ticks: 2, outcome: missed, why: "unled"}}
		first := claims(t, s, c)[token]
		before := lines(t, db, `SELECT runs::text FROM runs ORDER BY id`)
		for range 3 {
			if got := claims(t, s, c)[token]; got.verdict != first.verdict || got.run != first.run || got.attempt != first.attempt {
				t.Errorf("%s: claimed %+v, then %+v", k, first, got)
			}
		}
		if diff := cmp.Diff(before, lines(t, db, `SELECT runs::text FROM runs ORDER BY id`)); diff != "" {
			t.Errorf("%s: the rows changed:\n%s", k, diff)
		}
	}
}

// P7: a statement of a former term that executes late, after a takeover, changes nothing, whatever it is.
func TestWhatExecutesLateChangesNothing(t *testing.T) {
	t.Parallel()
	db := pgtest.New(t)
	old, s := &postgres{db, "old"}, &postgres{db, "new"}
	all := `SELECT runs::text FROM runs UNION ALL SELECT progress::text FROM progress ORDER BY 1`
	for _, k := range kinds {
		former := leads(t, db, string(k), "old", 7)
		begins(t, old, former)
		cut(t, db, string(k))
		long(t, db)
		next := leads(t, db, string(k), "new", 8)
		begins(t, s, next)
		before := lines(t, db, all)
		c := claimOf(k, former)
		c.passed = []passed{{first: tick, last: tick, ticks: 1, outcome: missed, why: "unled"}}
		if got := claims(t, old, c)[former]; got.verdict != fenced || got.run != 0 {
			t.Errorf("%s: %+v", k, got)
		}
		found, err := old.begin(t.Context(), []opening{{former, "every 9s", 3}})
		if err != nil || found[former].verdict != fenced {
			t.Errorf("%s: a late begin: %+v, %v", k, found[former], err)
		}
		if diff := cmp.Diff(before, lines(t, db, all)); diff != "" {
			t.Errorf("%s: the rows changed:\n%s", k, diff)
		}
	}
}

// P7: if any tick of a claim is not due, nothing of it is claimed: row by row, ticks would be lost.
func TestClaimWithATickThatIsEarlyClaimsNothing(t *testing.T) {
	t.Parallel()
	db := pgtest.New(t)
	s := &postgres{db, "me"}
	token := leads(t, db, "job", "me", 7)
	begins(t, s, token)
	long(t, db)
	c := ask(token, time.Now().Add(time.Hour).Truncate(time.Second))
	c.passed = []passed{{first: tick, last: tick, ticks: 1, outcome: missed, why: "unled"}}
	if got := claims(t, s, c)[token]; got.verdict != early || time.Since(got.now).Abs() > time.Minute {
		t.Errorf("the claim: %+v", got)
	}
	if runs := lines(t, db, runsSQL); len(runs) != 0 {
		t.Errorf("there are runs: %v", runs)
	}
	if at := lines(t, db, `SELECT (last_tick < $1)::text FROM progress`, tick); at[0] != "true" {
		t.Error("the progress moved")
	}
}

// P7: what is written off is on record with its reason, what it stands for and its place in the history;
// where a row of it is there already, the others and the run are claimed all the same.
func TestWrittenOffTicksAreOnRecordWithTheRun(t *testing.T) {
	t.Parallel()
	db := pgtest.New(t)
	s := &postgres{db, "me"}
	token := leads(t, db, "job", "me", 7)
	begins(t, s, token)
	long(t, db)
	at := func(n int) time.Time { return tick.Add(time.Duration(n) * time.Second) }
	mustExec(t, db, `INSERT INTO runs (lease, job, tick, epoch, owner, ended_at, outcome) VALUES ('job', 'job', $1, 1, 'old', clock_timestamp(), 'success')`, at(5))
	c := ask(token, at(9))
	c.passed = []passed{
		{first: at(1), last: at(4), ticks: 4, outcome: missed, why: "unled"},
		{first: at(5), last: at(5), ticks: 1, outcome: missed, why: "unled"},
		{first: at(6), last: at(6), ticks: 1, outcome: skipped, why: "busy"},
		{first: at(12), last: at(12), ticks: 1, outcome: skipped, why: "busy"},
	}
	c.until = at(12)
	if got := claims(t, s, c)[token]; got.verdict != won || got.run == 0 {
		t.Errorf("the claim: %+v", got)
	}
	want := []string{
		"4 00:00:03 x4 missed unled ended", "5 x1 success ended", "6 x1 skipped busy ended", "9 x1 open", "12 x1 skipped busy ended",
	}
	got := lines(t, db, `SELECT concat_ws(' ', extract(epoch FROM tick - $1)::int, tick - first_tick, 'x' || ticks,
		coalesce(outcome, 'open'), error, CASE WHEN ended_at IS NOT NULL THEN 'ended' END) FROM runs ORDER BY tick`, tick)
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("runs (-want +got):\n%s", diff)
	}
	if last := lines(t, db, `SELECT extract(epoch FROM last_tick - $1)::int::text FROM progress`, tick); last[0] != "12" {
		t.Errorf("the progress is at %s s", last[0])
	}
}

// P7: where the clock went forward and back, a tick that was missed is run in time, as its second
// attempt; one that was run, or skipped, is not.
func TestTickThatComesAgainIsRunOnlyIfItWasMissed(t *testing.T) {
	t.Parallel()
	db := pgtest.New(t)
	s := &postgres{db, "me"}
	for _, o := range []outcome{missed, skipped, success, failed, lost} {
		token := leads(t, db, string(o), "me", 7)
		begins(t, s, token)
		mustExec(t, db, `INSERT INTO runs (lease, job, tick, epoch, owner, ended_at, outcome) VALUES ($1, $1, $2, 7, 'me', clock_timestamp(), $1)`, string(o), tick)
		long(t, db)
		want := taken
		if o == missed {
			want = won
		}
		first := claims(t, s, ask(token, tick))[token]
		if first.verdict != want || o == missed && first.attempt != 2 {
			t.Errorf("%s: %+v", o, first)
		}
		if repeated := claims(t, s, ask(token, tick))[token]; repeated.verdict != want || repeated.run != first.run {
			t.Errorf("%s: repeated, %+v", o, repeated)
		}
		mustExec(t, db, `UPDATE runs SET ended_at = clock_timestamp(), outcome = 'success' WHERE ended_at IS NULL`)
		long(t, db)
		if third := claims(t, s, ask(token, tick))[token]; third.verdict != taken {
			t.Errorf("%s: a third time, %+v", o, third)
		}
	}
}

// P7: a request is run once, whoever claims it, at once or one after the other.
func TestRequestIsClaimedOnceAcrossReplicas(t *testing.T) {
	t.Parallel()
	db := pgtest.New(t)
	tokens := []fence.Token{leads(t, db, "job", "first", 1), {Lease: "job", Owner: "second", Epoch: 2}}
	c := attempt{tick: tick, number: 1, request: 7}
	mustExec(t, db, `INSERT INTO progress (lease, last_tick, schedule) VALUES ('job', $1, 'only when asked')`, tick)
	var both sync.WaitGroup
	for _, token := range tokens {
		both.Go(func() {
			for range 20 {
				if _, err := (&postgres{db, token.Owner}).claim(t.Context(), []claim{{token: token, job: "job", kind: requested, run: c}}); err != nil {
					t.Error(err)
				}
			}
		})
	}
	mustExec(t, db, `UPDATE leadership SET owner = 'second', epoch = 2`)
	both.Wait()
	if runs := lines(t, db, `SELECT request_id::text FROM runs`); len(runs) != 1 {
		t.Errorf("it has %d runs", len(runs))
	}
	c.tick = tick.Add(time.Hour) // whatever else it says
	if got := claims(t, &postgres{db, "third"}, claim{token: leads(t, db, "job", "third", 3), job: "job", kind: requested, run: c}); got[fence.Token{Lease: "job", Owner: "third", Epoch: 3}].verdict != taken {
		t.Errorf("a third claims it: %+v", got)
	}
}

// P7: a rebase brings the progress back to the clock, and never forward.
func TestRebaseLowersTheProgressOnly(t *testing.T) {
	t.Parallel()
	db := pgtest.New(t)
	s := &postgres{db, "me"}
	token := leads(t, db, "job", "me", 7)
	begins(t, s, token)
	mustExec(t, db, `UPDATE progress SET last_tick = clock_timestamp() + interval '1 hour'`)
	got := claims(t, s, claimOf(rebase, token))[token]
	if got.verdict != rebased || got.last.Sub(got.now) < 50*time.Minute {
		t.Errorf("the rebase: %+v", got)
	}
	if ahead := lines(t, db, `SELECT (last_tick > clock_timestamp())::text FROM progress`); ahead[0] != "false" {
		t.Error("the progress is still ahead")
	}
	long(t, db)
	if got := claims(t, s, claimOf(rebase, token))[token]; got.verdict != rebased || !got.last.Equal(tick.Add(-time.Second)) {
		t.Errorf("the second rebase: %+v", got)
	}
	if at := lines(t, db, `SELECT (last_tick = $1)::text FROM progress`, tick.Add(-time.Second)); at[0] != "true" {
		t.Error("a progress that was behind has moved")
	}
}
