package scheduler

import (
	"context"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"rota/internal/fence"
	"rota/internal/pgtest"
)

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
	pgtest.Note(t, db)
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
		`SELECT FROM lease_epochs WHERE job_name = 'held' FOR UPDATE`,
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
