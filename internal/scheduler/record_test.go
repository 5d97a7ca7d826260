package scheduler

import (
	"context"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/jackc/pgx/v5"

	"rota/internal/pgtest"
)

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

// P7: an end says whether the next term runs the tick again, and has the log. A process that is late
// with it, so that its run was closed as lost, may say that it was fenced, and nothing else; whether
// the tick is run again was decided by then.
func TestRecordKeepsTheLogAndWhatIsToBeRunAgain(t *testing.T) {
	t.Parallel()
	db := pgtest.New(t)
	s := &postgres{db, "me"}
	mustExec(t, db, `INSERT INTO runs (lease, job, tick, epoch, owner, ended_at, outcome, again)
		SELECT name, name, $1, 1, 'me', CASE WHEN o <> '' THEN clock_timestamp() END, nullif(o, ''), again
		  FROM (VALUES ('a-open', '', false), ('b-open', '', false), ('c-lost', 'lost', true), ('d-lost', 'lost', false),
		               ('e-lost', 'lost', true), ('f-tried', 'lost', false)) AS v(name, o, again)`, tick)
	id := map[string]int64{}
	rows, err := db.Query(t.Context(), `SELECT lease, id FROM runs`)
	if err != nil {
		t.Fatal(err)
	}
	var name string
	var run int64
	if _, err := pgx.ForEachRow(rows, []any{&name, &run}, func() error {
		id[name] = run
		return nil
	}); err != nil {
		t.Fatal(err)
	}
	ends := []end{
		{run: id["a-open"], outcome: lost, log: "one\ntwo\n", again: true},
		{run: id["b-open"], outcome: success},
		{run: id["c-lost"], outcome: refused, log: "late\n"},
		{run: id["d-lost"], outcome: refused, log: "late\n", again: true},
		{run: id["e-lost"], outcome: success, log: "late\n"},
		{run: id["f-tried"], outcome: lost, again: true},
	}
	for i := range ends {
		ends[i].owner, ends[i].at = "me", time.Now()
	}
	want := []string{
		"a-open lost true one\ntwo\n", "b-open success false none", "c-lost fenced true late\n", "d-lost fenced false late\n",
		"e-lost lost true none", "f-tried lost false none",
	}
	for range 2 { // the first answer was lost
		if settled, err := s.record(t.Context(), ends); err != nil || len(settled) != len(ends) {
			t.Fatalf("%d are settled: %v", len(settled), err)
		}
		got := lines(t, db, `SELECT concat_ws(' ', lease, outcome, again::text, coalesce(log, 'none')) FROM runs ORDER BY lease`)
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("runs (-want +got):\n%s", diff)
		}
	}
}

// What is answered survives a crash of the server, whatever the role's default: a claim, or its tick would
// be claimed twice, and an end, or what is done would be run again.
func TestWhatIsAnsweredIsOnDisk(t *testing.T) {
	t.Parallel()
	db := pgtest.New(t)
	mustExec(t, db, `CREATE TABLE met (what text)`)
	mustExec(t, db, `CREATE FUNCTION meets() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN
		INSERT INTO met VALUES (TG_TABLE_NAME || ' ' || TG_OP || ' ' || current_setting('synchronous_commit')); RETURN NULL; END $$`)
	for _, table := range []string{"runs", "progress"} {
		mustExec(t, db, `CREATE TRIGGER meets AFTER INSERT OR UPDATE ON `+table+` FOR EACH ROW EXECUTE FUNCTION meets()`)
	}
	if off := lines(t, db, `SELECT current_setting('synchronous_commit')`)[0]; off != "off" {
		t.Fatalf("by default it is %s", off)
	}
	token := leads(t, db, "job", "me", 1)
	s := &postgres{db, "me"}
	begins(t, s, token)
	long(t, db)
	c := claims(t, s, ask(token, tick))[token]
	if _, err := s.record(t.Context(), []end{{run: c.run, owner: "me", outcome: success, at: time.Now()}}); err != nil {
		t.Fatal(err)
	}
	want := []string{"progress INSERT on", "progress UPDATE off", "progress UPDATE on", "runs INSERT on", "runs UPDATE on"} // off: the test's own
	if diff := cmp.Diff(want, lines(t, db, `SELECT DISTINCT what FROM met ORDER BY what`)); diff != "" {
		t.Errorf("synchronous_commit (-want +got):\n%s", diff)
	}
}
