package status

import (
	"context"
	"encoding/json"
	"errors"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/jackc/pgx/v5/pgxpool"

	"rota/internal/pgtest"
)

// history is runs of two jobs: ids 1 to 9.
func history(t *testing.T) *pgxpool.Pool {
	t.Helper()
	db := pgtest.New(t)
	run(t, db, `INSERT INTO requests (kind, job, lease, run_id, args, key, reason, asked_by, made_at, done_at, result) VALUES
		('run', 'a', 'a', NULL, '{"days": 3}', 'k1', 'a late file', 'ana', '2026-01-01 10:30Z', '2026-01-01 10:31Z', 'run 5'),
		('cancel', 'b', 'b', 9, NULL, NULL, 'stuck', 'bo', '2026-01-01 11:30Z', NULL, NULL)`)
	run(t, db, `INSERT INTO runs (lease, job, tick, attempt, epoch, owner, started_at, ended_at, outcome, error, refused, request_id, first_tick, ticks, log) VALUES
		('a', 'a', '2026-01-01 10:00Z', 1, 1, 'x/1', '2026-01-01 10:00Z', '2026-01-01 10:01Z', 'failed',  'no luck', 0, NULL, NULL, 1, 'first line'),
		('b', 'b', '2026-01-01 10:00Z', 1, 1, 'x/1', '2026-01-01 10:00Z', '2026-01-01 10:01Z', 'success', NULL,      0, NULL, NULL, 1, NULL),
		('a', 'a', '2026-01-01 10:00Z', 2, 1, 'x/1', '2026-01-01 10:02Z', '2026-01-01 10:03Z', 'fenced',  'late',    2, NULL, NULL, 1, NULL),
		('a', 'a', '2026-01-01 10:00Z', 3, 2, 'y/1', '2026-01-01 10:04Z', '2026-01-01 10:05Z', 'success', NULL,      0, NULL, NULL, 1, NULL),
		('a', 'a', '2026-01-01 10:30Z', 1, 2, 'y/1', '2026-01-01 10:30Z', '2026-01-01 10:31Z', 'success', NULL,      0, 1,    NULL, 1, NULL),
		('b', 'b', '2026-01-01 10:59Z', 1, 3, 'y/1', '2026-01-01 11:00Z', '2026-01-01 11:00Z', 'missed', 'nobody led', 0, NULL, '2026-01-01 10:01Z', 59, NULL),
		('b', 'b', '2026-01-01 11:00Z', 1, 3, 'y/1', '2026-01-01 11:00Z', NULL,                NULL,      NULL,      0, NULL, NULL, 1, NULL),
		('b', 'b', '2026-01-01 11:01Z', 1, 3, 'y/1', '2026-01-01 11:01Z', '2026-01-01 11:01Z', 'skipped', 'paused',  0, NULL, NULL, 1, NULL),
		('a', 'a', '2026-01-01 11:00Z', 1, 3, 'y/1', '2026-01-01 11:01Z', NULL,                NULL,      NULL,      0, NULL, NULL, 1, NULL)`)
	pgtest.Note(t, db)
	return db
}

func ids(runs []Run) []int64 {
	all := []int64{}
	for _, r := range runs {
		all = append(all, r.ID)
	}
	return all
}

func TestRunsAreReadNewestFirstAndInPages(t *testing.T) {
	t.Parallel()
	r := patient(history(t), nil)
	for _, tt := range []struct {
		of   RunsOf
		want []int64
		next int64
	}{
		{RunsOf{}, []int64{9, 8, 7, 6, 5, 4, 3, 2, 1}, 0},
		{RunsOf{Limit: 9}, []int64{9, 8, 7, 6, 5, 4, 3, 2, 1}, 0},
		{RunsOf{Limit: 4}, []int64{9, 8, 7, 6}, 6},
		{RunsOf{Limit: 4, Before: 6}, []int64{5, 4, 3, 2}, 2},
		{RunsOf{Limit: 4, Before: 2}, []int64{1}, 0},
		{RunsOf{Job: "b"}, []int64{8, 7, 6, 2}, 0},
		{RunsOf{Job: "b", Limit: 2, Before: 8}, []int64{7, 6}, 6},
		{RunsOf{Outcome: "success"}, []int64{5, 4, 2}, 0},
		{RunsOf{Outcome: "success", Job: "a", Limit: 1}, []int64{5}, 5},
		{RunsOf{Outcome: "fenced"}, []int64{3}, 0},
		{RunsOf{Outcome: "missed", Job: "a"}, []int64{}, 0},
		{RunsOf{Outcome: Running}, []int64{9, 7}, 0},
		{RunsOf{Outcome: Running, Before: 9}, []int64{7}, 0},
		{RunsOf{Outcome: Running, Job: "a"}, []int64{9}, 0},
		{RunsOf{Job: "unknown"}, []int64{}, 0},
	} {
		p, err := r.Runs(t.Context(), tt.of)
		if err != nil {
			t.Fatalf("%+v: %v", tt.of, err)
		}
		if got := ids(p.Runs); !slices.Equal(got, tt.want) || p.Next != tt.next {
			t.Errorf("%+v: runs %v, next %d; want %v, %d", tt.of, got, p.Next, tt.want, tt.next)
		}
	}
	for _, o := range Outcomes {
		if _, err := r.Runs(t.Context(), RunsOf{Outcome: o, Job: "a"}); err != nil {
			t.Errorf("%s: %v", o, err)
		}
	}
}

func TestAQuestionThatMakesNoSenseIsRefused(t *testing.T) {
	t.Parallel()
	r := patient(nil, nil)
	for want, of := range map[string]RunsOf{
		`outcome "' OR true --": it must be one of running, success`: {Outcome: "' OR true --"},
		"limit 1001: it must be 1 to 1000":                           {Limit: 1001},
		"limit -1":                                                   {Limit: -1},
		"before -5":                                                  {Before: -5},
	} {
		if _, err := r.Runs(t.Context(), of); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%+v: %v, want %q", of, err, want)
		}
	}
	if _, err := r.Audit(t.Context(), AuditOf{Limit: -1}); err == nil {
		t.Error("an audit of -1 lines")
	}
}

// P7 and P10: the history says how many ticks a row stands for, and why.
func TestARowForSeveralTicksSaysHowMany(t *testing.T) {
	t.Parallel()
	p, err := patient(history(t), nil).Runs(t.Context(), RunsOf{Outcome: "missed"})
	if err != nil {
		t.Fatal(err)
	}
	at := func(hour, minute int) time.Time { return time.Date(2026, 1, 1, hour, minute, 0, 0, time.UTC) }
	want := []Run{{
		ID: 6, Lease: "b", Job: "b", Tick: at(10, 59), FirstTick: at(10, 1), Ticks: 59, Attempt: 1, Epoch: 3, Owner: "y/1",
		StartedAt: at(11, 0), EndedAt: at(11, 0), Outcome: "missed", Error: "nobody led",
	}}
	if diff := cmp.Diff(want, p.Runs); diff != "" {
		t.Errorf("missed (-want +got):\n%s", diff)
	}
}

func TestARunIsReadWithItsLogItsAttemptsAndWhoAskedForIt(t *testing.T) {
	t.Parallel()
	db := history(t)
	r := patient(db, nil)
	long := strings.Repeat("e", 5000)
	run(t, db, `UPDATE runs SET error = $1 WHERE id = 1`, long)

	rec, err := r.Run(t.Context(), 1)
	if err != nil {
		t.Fatal(err)
	}
	if rec.Run.ID != 1 || rec.Run.Error != long || rec.Log != "first line" || rec.Request != nil || rec.AsOf.IsZero() {
		t.Errorf("run 1: %+v", rec)
	}
	if got := ids(rec.Attempts); !slices.Equal(got, []int64{1, 3, 4}) {
		t.Errorf("attempts %v", got)
	}
	if n := len(rec.Attempts[0].Error); n != 1000 {
		t.Errorf("%d characters of the error in a list", n)
	}
	rec, err = r.Run(t.Context(), 5)
	if err != nil {
		t.Fatal(err)
	}
	want := &Request{
		ID: 1, Kind: "run", Job: "a", Lease: "a", Args: json.RawMessage(`{"days": 3}`), Reason: "a late file", By: "ana",
		MadeAt: time.Date(2026, 1, 1, 10, 30, 0, 0, time.UTC), DoneAt: time.Date(2026, 1, 1, 10, 31, 0, 0, time.UTC), Result: "run 5",
	}
	if diff := cmp.Diff(want, rec.Request); diff != "" {
		t.Errorf("request (-want +got):\n%s", diff)
	}
	if _, err := r.Run(t.Context(), 999); !errors.Is(err, ErrNoRun) || !strings.Contains(err.Error(), "run 999") {
		t.Errorf("run 999: %v", err)
	}
}

func TestOpenRequestsAndTheAuditAreRead(t *testing.T) {
	t.Parallel()
	db := history(t)
	r := patient(db, nil)
	asked, err := r.Requests(t.Context(), RequestsOf{})
	if err != nil || len(asked.Open) != 1 || asked.Open[0].Kind != "cancel" || asked.Open[0].Run != 9 || asked.Open[0].By != "bo" || asked.AsOf.IsZero() || asked.Next != 0 {
		t.Errorf("open requests: %+v, %v", asked, err)
	}
	run(t, db, `INSERT INTO audit (at, actor, via, action, job, lease, replica, run_id, request_id, reason, detail) VALUES
		('2026-01-01Z', 'ana', 'cli', 'run', 'a', 'a', NULL, 5, 1, 'a late file', '{"args": 1}'),
		('2026-01-02Z', 'x/1', 'replica', 'drain', NULL, NULL, 'x/1', NULL, NULL, '', NULL),
		('2026-01-03Z', 'bo', 'page', 'pause', '*', NULL, NULL, NULL, NULL, 'maintenance', NULL)`)
	p, err := r.Audit(t.Context(), AuditOf{Limit: 2})
	if err != nil {
		t.Fatal(err)
	}
	day := func(d int) time.Time { return time.Date(2026, 1, d, 0, 0, 0, 0, time.UTC) }
	want := []Line{
		{ID: 3, At: day(3), Actor: "bo", Via: "page", Action: "pause", Job: AllJobs, Reason: "maintenance"},
		{ID: 2, At: day(2), Actor: "x/1", Via: "replica", Action: "drain", Replica: "x/1"},
	}
	if diff := cmp.Diff(want, p.Lines); diff != "" || p.Next != 2 {
		t.Errorf("audit, next %d (-want +got):\n%s", p.Next, diff)
	}
	p, err = r.Audit(t.Context(), AuditOf{Job: "a", Before: 2})
	if err != nil {
		t.Fatal(err)
	}
	want = []Line{{
		ID: 1, At: day(1), Actor: "ana", Via: "cli", Action: "run", Job: "a", Lease: "a", Run: 5, Request: 1,
		Reason: "a late file", Detail: json.RawMessage(`{"args": 1}`),
	}}
	if diff := cmp.Diff(want, p.Lines); diff != "" || p.Next != 0 {
		t.Errorf("audit of a, next %d (-want +got):\n%s", p.Next, diff)
	}
}

// P7: the last tick is what progress says, and what became of it is what the history says.
func TestTheLastTickIsToldWithWhatBecameOfIt(t *testing.T) {
	t.Parallel()
	db := history(t)
	r := patient(db, nil)
	for _, tt := range []struct {
		lease, last string
		run         int64
	}{
		{"a", "2026-01-01 11:00Z", 9},
		{"a", "2026-01-01 10:00Z", 4}, // the newest attempt
		{"a", "2026-01-01 10:30Z", 0}, // run for a request, and no tick
		{"b", "2026-01-01 10:59Z", 6},
		{"b", "2026-01-01 10:30Z", 6}, // one of those missed
		{"b", "2026-01-01 11:01Z", 8},
		{"b", "2026-01-02 00:00Z", 0}, // not in the history
	} {
		run(t, db, `INSERT INTO progress (lease, last_tick, schedule) VALUES ($1, $2, 'every 1m')
			ON CONFLICT (lease) DO UPDATE SET last_tick = EXCLUDED.last_tick`, tt.lease, tt.last)
		got, err := r.LastTick(t.Context(), tt.lease)
		if err != nil {
			t.Fatal(err)
		}
		var id int64
		if got.Run != nil {
			id = got.Run.ID
		}
		if got.Tick.Format("2006-01-02 15:04Z") != tt.last || got.Schedule != "every 1m" || id != tt.run || got.AsOf.IsZero() {
			t.Errorf("%s at %s: run %d, want %d; %+v", tt.lease, tt.last, id, tt.run, got)
		}
	}
	if got, err := r.LastTick(t.Context(), "never"); err != nil || !got.Tick.IsZero() || got.Run != nil {
		t.Errorf("a lease that nobody led: %+v, %v", got, err)
	}
}

// P8 and P10: history that cannot be read is said to be so, soon.
func TestHistoryThatIsLockedIsNotWaitedFor(t *testing.T) {
	t.Parallel()
	db := history(t)
	tx, err := db.Begin(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = tx.Rollback(context.Background()) }()
	if _, err := tx.Exec(t.Context(), "LOCK TABLE runs IN ACCESS EXCLUSIVE MODE"); err != nil {
		t.Fatal(err)
	}
	r := New(db, nil)
	began := time.Now()
	if _, err := r.Runs(t.Context(), RunsOf{}); !errors.Is(err, ErrUnread) {
		t.Errorf("runs: %v", err)
	}
	if _, err := r.Run(t.Context(), 1); !errors.Is(err, ErrUnread) {
		t.Errorf("run: %v", err)
	}
	if d := time.Since(began); d > 10*time.Second {
		t.Errorf("took %v", d)
	}
	ctx, cancel := context.WithCancelCause(t.Context())
	cancel(errors.New("gone"))
	if _, err := r.Runs(ctx, RunsOf{}); err == nil || errors.Is(err, ErrUnread) || !strings.Contains(err.Error(), "gone") {
		t.Errorf("for one who left: %v", err)
	}
}
