package scheduler

import (
	"fmt"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/jackc/pgx/v5/pgxpool"

	"rota/internal/pgtest"
)

// P7: whatever is open of a lease stands in its progress, so that the next term finds it, and the newest
// success is known however long ago it was. A run whose end is not on record yet stays there, whatever
// is claimed meanwhile.
func TestProgressKnowsWhatIsOpenAndTheNewestSuccess(t *testing.T) {
	t.Parallel()
	db := pgtest.New(t)
	s := &postgres{db, "me"}
	token := leads(t, db, "job", "me", 1)
	begins(t, s, token)
	long(t, db)
	at := tick
	var runs []int64
	claimsNext := func() {
		t.Helper()
		c := claims(t, s, ask(token, at))[token]
		if c.verdict != won {
			t.Fatalf("the claim: %+v", c)
		}
		at, runs = at.Add(time.Second), append(runs, c.run)
	}
	ends := func(n int, o outcome) {
		t.Helper()
		if settled, err := s.record(t.Context(), []end{{run: runs[n], owner: "me", outcome: o, at: time.Now()}}); err != nil || !settled[runs[n]] {
			t.Fatalf("the end: %v, %v", settled, err)
		}
	}
	noted := func(success int, open ...int) {
		t.Helper()
		want := fmt.Sprint(success, open)
		got := lines(t, db, `SELECT coalesce(array_position($1::bigint[], success), 0) || ' ' || translate(
			ARRAY(SELECT array_position($1::bigint[], id) FROM unnest(open) id)::text, '{,}', '[ ]') FROM progress`, runs)[0]
		if got != want {
			t.Errorf("after %d claims it has %s, want %s", len(runs), got, want)
		}
	}
	claimsNext()
	noted(0, 1)
	ends(0, success)
	noted(0, 1)
	claimsNext()
	noted(1, 2)
	claimsNext() // the end of the second is not on record
	claimsNext()
	noted(1, 2, 3, 4)
	ends(2, success)
	ends(3, failed)
	claimsNext()
	noted(3, 2, 5)
	ends(1, success) // late: an earlier run
	ends(4, lost)
	runs = append(runs, claims(t, s, claim{token: token, job: "job", kind: moment, run: attempt{tick: at, number: 1}})[token].run)
	noted(3, 6)
	if got := begins(t, &postgres{db, "next"}, leads(t, db, "job", "next", 2)); got.lost != 1 || len(got.again) != 1 || !got.again[0].tick.Equal(at) {
		t.Errorf("the next term found %+v", got)
	}
}

// P7: what a replica of an earlier version left open, which notes nothing in the progress, is found as
// the newest run.
func TestRunOfAnEarlierVersionIsClosedToo(t *testing.T) {
	t.Parallel()
	db := pgtest.New(t)
	begins(t, &postgres{db, "old"}, leads(t, db, "job", "old", 1))
	mustExec(t, db, `INSERT INTO runs (lease, job, tick, epoch, owner) VALUES ('job', 'job', $1, 1, 'old')`, tick)
	if got := begins(t, &postgres{db, "new"}, leads(t, db, "job", "new", 2)); got.lost != 1 {
		t.Errorf("the term: %+v", got)
	}
	if diff := cmp.Diff([]string{"job 1 1 old lost"}, lines(t, db, runsSQL)); diff != "" {
		t.Errorf("runs (-want +got):\n%s", diff)
	}
}

// The end of a run that succeeded touches no index, while its page has room.
func TestEndOfASuccessTouchesNoIndex(t *testing.T) {
	t.Parallel()
	cfg := pgtest.New(t).Config()
	cfg.MaxConns = 1 // its statistics are its session's
	db, err := pgxpool.NewWithConfig(t.Context(), cfg)
	if err != nil {
		t.Fatal(err)
	}
	defer db.Close()
	s := &postgres{db, "me"}
	token := leads(t, db, "job", "me", 1)
	begins(t, s, token)
	long(t, db)
	for n := range 20 {
		run := claims(t, s, ask(token, tick.Add(time.Duration(n)*time.Second)))[token].run
		if _, err := s.record(t.Context(), []end{{run: run, owner: "me", outcome: success, log: "a line", at: time.Now()}}); err != nil {
			t.Fatal(err)
		}
	}
	mustExec(t, db, `SELECT pg_stat_force_next_flush()`)
	got := lines(t, db, `SELECT n_tup_upd || ' ends, without an index ' || n_tup_hot_upd FROM pg_stat_user_tables WHERE relname = 'runs'`)
	if diff := cmp.Diff([]string{"20 ends, without an index 20"}, got); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}
