package scheduler

import (
	"fmt"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"rota/internal/pgtest"
)

// said is what a begin says is to be run again.
func (o opened) said() []string {
	all := []string{}
	for _, a := range o.again {
		all = append(all, fmt.Sprintf("%v (%d) %d %s", a.tick.Sub(tick), a.number, a.request, a.args))
	}
	return all
}

// P7: a run that was lost is run again by the next term, as its next attempt, up to the bound; that term
// learns of it even where the answer to its first begin was lost, until the attempt is claimed.
func TestNewTermLearnsWhatIsToBeRunAgain(t *testing.T) {
	t.Parallel()
	db := pgtest.New(t)
	mustExec(t, db, `INSERT INTO requests (kind, job, lease, args, asked_by) VALUES ('run', 'asked', 'asked', '{"limit": 3}', 'ann')`)
	id := lines(t, db, `SELECT id::text FROM requests`)[0]
	for _, c := range []struct {
		name string
		rows string // attempt, state, again, request; of the ticks at 0 s, 1 s and so on
		want []string
	}{
		{"open", `(0, 1, NULL, false, NULL)`, []string{"0s (2) 0 "}},
		{"open-second", `(0, 1, 'lost', false, NULL), (0, 2, NULL, false, NULL)`, []string{"0s (3) 0 "}},
		{"open-third", `(0, 3, NULL, false, NULL)`, []string{}}, // its bound
		{"marked", `(0, 1, 'cancelled', true, NULL)`, []string{"0s (2) 0 "}},
		{"marked-third", `(0, 3, 'lost', true, NULL)`, []string{}},
		{"ended", `(0, 1, 'lost', false, NULL), (1, 1, 'failed', false, NULL), (2, 1, 'cancelled', false, NULL)`, []string{}},
		{"tried-since", `(0, 1, 'lost', true, NULL), (0, 2, 'success', false, NULL)`, []string{}},
		{"lost-again", `(0, 1, 'lost', true, NULL), (0, 2, NULL, false, NULL)`, []string{"0s (3) 0 "}},
		{"two", `(0, 1, 'fenced', true, NULL), (1, 1, NULL, false, NULL)`, []string{"0s (2) 0 ", "1s (2) 0 "}},
		{"asked", `(0, 1, NULL, false, ` + id + `)`, []string{"0s (2) " + id + ` {"limit": 3}`}},
	} {
		t.Run(c.name, func(t *testing.T) {
			mustExec(t, db, fmt.Sprintf(`INSERT INTO runs (lease, job, tick, attempt, epoch, owner, ended_at, outcome, again, request_id)
				SELECT '%[1]s', '%[1]s', $1::timestamptz + make_interval(secs => n), attempt, 1, 'old', CASE WHEN o::text IS NOT NULL THEN clock_timestamp() END, o::text, again, request::bigint
				  FROM (VALUES %[2]s) AS v(n, attempt, o, again, request)`, c.name, c.rows), tick)
			s := &postgres{db, "new"}
			token := leads(t, db, c.name, "new", 2)
			for n := range 3 { // the answers to the first may have been lost
				if diff := cmp.Diff(c.want, begins(t, s, token).said()); diff != "" {
					t.Errorf("begin %d (-want +got):\n%s", n+1, diff)
				}
			}
			for _, a := range begins(t, s, token).again {
				if got := claims(t, s, claim{token: token, job: c.name, kind: again, run: a})[token]; got.verdict != won || got.attempt != a.number {
					t.Errorf("the claim: %+v", got)
				}
			}
			if got := begins(t, s, token).said(); len(got) != 0 { // it executes late
				t.Errorf("once claimed, there is still %q", got)
			}
			if got := lines(t, db, `SELECT count(*)::text FROM runs WHERE lease = $1 AND epoch = 2 AND ended_at IS NULL`, c.name); got[0] != fmt.Sprint(len(c.want)) {
				t.Errorf("%s attempts are under way", got[0])
			}
		})
	}
}

// P7: a job that leaves what is lost has nothing run again.
func TestWhatIsLeftAsLostIsNotRunAgain(t *testing.T) {
	t.Parallel()
	db := pgtest.New(t)
	s := &postgres{db, "new"}
	cut(t, db, "job") // as long as it was run again
	mustExec(t, db, `INSERT INTO runs (lease, job, tick, epoch, owner) VALUES ('job', 'job', $1, 1, 'old')`, tick)
	token := leads(t, db, "job", "new", 2)
	found, err := s.begin(t.Context(), []opening{{token, "every 1s", 0}})
	if err != nil || found[token].lost != 1 || len(found[token].again) != 0 {
		t.Errorf("the term: %+v, %v", found[token], err)
	}
	if marked := lines(t, db, `SELECT again::text FROM runs ORDER BY id DESC`); marked[0] != "false" {
		t.Error("it is marked to be run again")
	}
}

// P7, P8: an open run whose row somebody holds delays nothing; it is closed, and run again, by the term
// after this one, beside what that one lost.
func TestHeldOpenRunIsClosedByALaterTerm(t *testing.T) {
	t.Parallel()
	db := pgtest.New(t)
	mustExec(t, db, `INSERT INTO runs (lease, job, tick, epoch, owner) VALUES ('job', 'job', $1, 1, 'old')`, tick)
	pgtest.Note(t, db)
	t.Run("held", func(t *testing.T) {
		holds(t, db, `SELECT FROM runs`)
		s := &postgres{db, "second"}
		token := leads(t, db, "job", "second", 2)
		if got := begins(t, s, token); got.lost != 0 || len(got.again) != 0 {
			t.Errorf("the second term: %+v", got)
		}
		if got := claims(t, s, claim{token: token, job: "job", kind: moment, run: attempt{tick: tick.Add(time.Second), number: 1}})[token]; got.verdict != won {
			t.Errorf("its claim: %+v", got)
		}
	})
	third := begins(t, &postgres{db, "third"}, leads(t, db, "job", "third", 3))
	if diff := cmp.Diff([]string{"0s (2) 0 ", "1s (2) 0 "}, third.said()); diff != "" || third.lost != 2 {
		t.Errorf("the third term closed %d (-want +got):\n%s", third.lost, diff)
	}
}

// P7: a begin that executes late, after claims of its own term, closes none of their runs, and moves no
// progress.
func TestBeginThatExecutesLateChangesNothingOfItsTerm(t *testing.T) {
	t.Parallel()
	db := pgtest.New(t)
	s := &postgres{db, "me"}
	token := leads(t, db, "job", "me", 2)
	begins(t, s, token)
	long(t, db)
	claims(t, s, ask(token, tick))
	all := `SELECT runs::text FROM runs UNION ALL SELECT progress::text FROM progress ORDER BY 1`
	before := lines(t, db, all)
	if got := begins(t, s, token); got.lost != 0 || !got.last.Equal(tick) {
		t.Errorf("the late begin: %+v", got)
	}
	if diff := cmp.Diff(before, lines(t, db, all)); diff != "" {
		t.Errorf("the rows changed:\n%s", diff)
	}
}

// P7: a progress that lies ahead, since the clock was set back, is brought back to now by a begin.
func TestBeginBringsProgressThatLiesAheadBackToNow(t *testing.T) {
	t.Parallel()
	db := pgtest.New(t)
	s := &postgres{db, "me"}
	begins(t, s, leads(t, db, "job", "me", 1))
	mustExec(t, db, `UPDATE progress SET last_tick = clock_timestamp() + interval '20 years'`)
	got := begins(t, s, leads(t, db, "job", "me", 2))
	if got.last.After(got.now) || got.now.Sub(got.last) > time.Minute {
		t.Errorf("it counts from %v, at %v", got.last, got.now)
	}
	if ahead := lines(t, db, `SELECT (last_tick > clock_timestamp())::text FROM progress`); ahead[0] != "false" {
		t.Error("the progress is still ahead")
	}
}

// A run that was to be cancelled when its term ended is not run again.
func TestCancelledRunThatWasLostIsNotRunAgain(t *testing.T) {
	t.Parallel()
	db := pgtest.New(t)
	mustExec(t, db, `INSERT INTO runs (lease, job, tick, epoch, owner) VALUES ('job', 'job', '2026-01-01 08:00Z', 1, 'old'), ('other', 'other', '2026-01-01 08:00Z', 1, 'old')`)
	mustExec(t, db, `INSERT INTO requests (kind, job, lease, run_id, asked_by, done_at, result)
		SELECT 'cancel', lease, lease, id, 'ann', clock_timestamp(), 'settled' FROM runs WHERE lease = 'job'`)
	s := &postgres{db, "new"}
	for name, want := range map[string]int{"job": 0, "other": 1} {
		if got := begins(t, s, leads(t, db, name, "new", 2)); len(got.again) != want || got.lost != 1 {
			t.Errorf("%s: %+v", name, got)
		}
	}
}
