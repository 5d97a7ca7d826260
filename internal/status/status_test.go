package status

import (
	"context"
	"errors"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"rota/internal/pgtest"
	"rota/internal/registry"
)

func run(t *testing.T, db *pgxpool.Pool, sql string, args ...any) {
	t.Helper()
	if _, err := db.Exec(t.Context(), sql, args...); err != nil {
		t.Fatalf("%s: %v", sql, err)
	}
}

// patient returns a reader that gives a slow machine time.
func patient(db *pgxpool.Pool, jobs []registry.Job) *Reader {
	r := New(db, jobs)
	r.patience, r.limit = time.Minute, time.Minute
	return r
}

// look reads a snapshot that is not an earlier one kept.
func look(t *testing.T, r *Reader) Snapshot {
	t.Helper()
	anew(r)
	snap, err := r.Snapshot(t.Context())
	if err != nil {
		t.Fatalf("snapshot: %v", err)
	}
	if snap.Stale {
		t.Fatalf("snapshot is stale: %v", snap.Why)
	}
	return snap
}

func find(t *testing.T, s Snapshot, name string) Lease {
	t.Helper()
	for _, l := range s.Leases {
		if l.Name == name {
			return l
		}
	}
	t.Fatalf("no lease %q in %d leases", name, len(s.Leases))
	return Lease{}
}

// P10: what is said comes from the rows and the database's clock.
func TestRowsAndTheDatabasesClockDecideTheState(t *testing.T) {
	t.Parallel()
	db := pgtest.New(t)
	run(t, db, `INSERT INTO leadership (job_name, owner, expires_at, epoch) VALUES
		('held',     'a/1', clock_timestamp() + interval '1 hour', 3),
		('expired',  'a/1', clock_timestamp() - interval '1 second', 4),
		('fresh',    '',    '-infinity', 0),
		('endless',  'a/1', 'infinity', 5),
		('faraway',  'a/1', '100000-01-01', 6),
		('longgone', 'a/1', '-infinity', 7)`)
	snap := look(t, patient(db, nil))

	got := map[string]State{}
	for _, l := range snap.Leases {
		got[l.Name] = l.State
		if l.CompiledIn {
			t.Errorf("%s: said to be compiled in", l.Name)
		}
		if (l.Left > 0) != (l.State == Held) {
			t.Errorf("%s: %s with %v left", l.Name, l.State, l.Left)
		}
	}
	want := map[string]State{"held": Held, "expired": Free, "fresh": Never, "endless": Held, "faraway": Held, "longgone": Free}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("states (-want +got):\n%s", diff)
	}
	if l := find(t, snap, "endless"); !l.ExpiresAt.IsZero() {
		t.Errorf("infinity became %v", l.ExpiresAt)
	}
	if l := find(t, snap, "held"); l.Left < 59*time.Minute || l.Left > time.Hour || l.Epoch != 3 || l.Owner != "a/1" {
		t.Errorf("held: %+v", l)
	}
	var now time.Time
	if err := db.QueryRow(t.Context(), "SELECT clock_timestamp()").Scan(&now); err != nil {
		t.Fatal(err)
	}
	if d := now.Sub(snap.AsOf); d < 0 || d > time.Minute {
		t.Errorf("as of %v, %v before the database's %v", snap.AsOf, d, now)
	}
}

func TestAJobWithoutARowAndARowWithoutAJobAreBothShown(t *testing.T) {
	t.Parallel()
	db := pgtest.New(t)
	run(t, db, `INSERT INTO leadership (job_name, owner, expires_at, epoch) VALUES
		('both', 'a/1', clock_timestamp(), 1), ('foreign', 'a/1', clock_timestamp(), 1)`)
	jobs := []registry.Job{
		{Name: "both", About: "is both", Schedule: registry.Every(time.Minute)},
		{Name: "new", About: "has no row", Schedule: registry.OnDemand},
	}
	snap := look(t, patient(db, jobs))

	type said struct {
		Name               string
		Registered, CompIn bool
		State              State
	}
	var got []said
	for _, l := range snap.Leases {
		got = append(got, said{l.Name, l.Registered, l.CompiledIn, l.State})
	}
	want := []said{{"both", true, true, Free}, {"foreign", true, false, Free}, {"new", false, true, Never}}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("leases (-want +got):\n%s", diff)
	}
	if l := find(t, snap, "new"); l.About != "has no row" || l.Words == "" || !l.NextTick.IsZero() {
		t.Errorf("new: %+v", l)
	}
}

// P7 and P10: the next tick is the schedule's next on the database's clock, and a tick that is due
// and untaken is said to be so.
func TestNextAndUntakenTicksAreOnTheDatabasesClock(t *testing.T) {
	t.Parallel()
	db := pgtest.New(t)
	every := registry.Every(time.Minute)
	jobs := []registry.Job{
		{Name: "late", Schedule: every},
		{Name: "busy", Schedule: every},
		{Name: "ontime", Schedule: every},
		{Name: "changed", Schedule: every},
	}
	for _, j := range jobs {
		run(t, db, `INSERT INTO leadership (job_name, owner, expires_at, epoch) VALUES ($1, 'a/1', clock_timestamp(), 1)`, j.Name)
	}
	run(t, db, `INSERT INTO progress (lease, last_tick, schedule) VALUES
		('late', clock_timestamp() - interval '10 minutes', $1), ('busy', clock_timestamp() - interval '10 minutes', $1),
		('ontime', clock_timestamp() + interval '1 second', $1), ('changed', clock_timestamp() - interval '1 hour', 'something else')`,
		every.String())
	run(t, db, `INSERT INTO runs (lease, job, tick, epoch, owner) VALUES ('busy', 'busy', clock_timestamp(), 1, 'a/1')`)
	snap := look(t, patient(db, jobs))

	for _, j := range jobs {
		l := find(t, snap, j.Name)
		if want := every.Next(snap.AsOf); !l.NextTick.Equal(want) {
			t.Errorf("%s: next tick %v, want %v", j.Name, l.NextTick, want)
		}
		if late := !l.DueSince.IsZero(); late != (j.Name == "late") {
			t.Errorf("%s: due since %v", j.Name, l.DueSince)
		}
	}
	if l := find(t, snap, "late"); snap.AsOf.Sub(l.DueSince) < 8*time.Minute {
		t.Errorf("late: due since %v at %v: not the oldest untaken tick", l.DueSince, snap.AsOf)
	}
}

func TestTheLastRunIsTheNewestThatBegan(t *testing.T) {
	t.Parallel()
	db := pgtest.New(t)
	run(t, db, `INSERT INTO leadership (job_name, owner, expires_at, epoch)
		SELECT name, 'a/1', clock_timestamp(), 9 FROM unnest(ARRAY['fails', 'runs', 'idle', 'works']) AS name`)
	run(t, db, `INSERT INTO runs (lease, job, tick, attempt, epoch, owner, started_at, ended_at, outcome, error, refused) VALUES
		('works', 'works', '2026-01-01 10:00Z', 1, 8, 'a/1', '2026-01-01 10:00Z', '2026-01-01 10:01Z', 'failed',  'no luck', 0),
		('works', 'works', '2026-01-01 10:00Z', 2, 8, 'a/1', '2026-01-01 10:02Z', '2026-01-01 10:03Z', 'success', NULL,      0),
		('fails', 'fails', '2026-01-01 10:00Z', 1, 8, 'a/1', '2026-01-01 10:00Z', '2026-01-01 10:01Z', 'success', NULL,      0),
		('fails', 'fails', '2026-01-01 11:00Z', 1, 8, 'b/2', '2026-01-01 11:00Z', '2026-01-01 11:01Z', 'fenced',  'late',    2),
		('fails', 'fails', '2026-01-01 12:00Z', 1, 9, 'a/1', '2026-01-01 12:00Z', '2026-01-01 12:01Z', 'failed',  'again',   3),
		('fails', 'fails', '2026-01-01 13:00Z', 1, 9, 'a/1', '2026-01-01 13:00Z', '2026-01-01 13:00Z', 'missed',  NULL,      0),
		('runs',  'runs',  '2026-01-01 12:00Z', 1, 9, 'a/1', '2026-01-01 12:00Z', NULL,                NULL,      NULL,      0),
		('runs',  'runs',  '2026-01-01 13:00Z', 1, 9, 'a/1', '2026-01-01 13:00Z', '2026-01-01 13:00Z', 'skipped', NULL,      0)`)
	pgtest.Note(t, db)
	snap := look(t, patient(db, nil))

	at := func(hour, minute int) time.Time { return time.Date(2026, 1, 1, hour, minute, 0, 0, time.UTC) }
	type said struct {
		Last    *Run
		Success time.Time
		Refused int64
	}
	of := func(id int64, job string, r Run) *Run {
		r.ID, r.Job, r.Lease, r.Owner, r.Ticks = id, job, job, "a/1", 1
		return &r
	}
	want := map[string]said{
		"works": {of(2, "works", Run{Tick: at(10, 0), Attempt: 2, Epoch: 8, StartedAt: at(10, 2), EndedAt: at(10, 3), Outcome: "success"}), at(10, 3), 0},
		"fails": {of(5, "fails", Run{Tick: at(12, 0), Attempt: 1, Epoch: 9, StartedAt: at(12, 0), EndedAt: at(12, 1), Outcome: "failed", Error: "again", Refused: 3}), at(10, 1), 5},
		"runs":  {of(7, "runs", Run{Tick: at(12, 0), Attempt: 1, Epoch: 9, StartedAt: at(12, 0)}), time.Time{}, 0},
		"idle":  {},
	}
	got := map[string]said{}
	for _, l := range snap.Leases {
		got[l.Name] = said{l.Last, l.LastSuccess, l.Refused}
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("runs (-want +got):\n%s", diff)
	}
}

func TestTheLastSuccessIsFoundHoweverLongAgo(t *testing.T) {
	t.Parallel()
	db := pgtest.New(t)
	run(t, db, `INSERT INTO leadership (job_name, owner, expires_at, epoch)
		SELECT name, 'a/1', clock_timestamp(), 1 FROM unnest(ARRAY['long', 'never']) AS name`)
	for name, first := range map[string]string{"long": "success", "never": "failed"} {
		run(t, db, `INSERT INTO runs (lease, job, tick, epoch, owner, ended_at, outcome)
			SELECT $1, $1, '2026-01-01Z'::timestamptz + make_interval(mins => i), 1, 'a/1', '2026-01-01Z'::timestamptz + make_interval(mins => i),
			       CASE WHEN i IN (0, 1) THEN $2 ELSE 'failed' END FROM generate_series(0, 20 * $3::int) i`, name, first, Window)
	}
	pgtest.Note(t, db)
	snap := look(t, patient(db, nil))
	if got, want := find(t, snap, "long").LastSuccess, time.Date(2026, 1, 1, 0, 1, 0, 0, time.UTC); !got.Equal(want) {
		t.Errorf("last success %v, want the newest, %v", got, want)
	}
	if got := find(t, snap, "never").LastSuccess; !got.IsZero() {
		t.Errorf("a success at %v", got)
	}
}

// P10: a pause is told with the lease that it is for, and changes nothing about who leads it.
func TestAPauseInForceIsToldWithItsLease(t *testing.T) {
	t.Parallel()
	db := pgtest.New(t)
	run(t, db, `INSERT INTO leadership (job_name, owner, expires_at, epoch)
		SELECT name, 'a/1', clock_timestamp() + interval '1 hour', 1 FROM unnest(ARRAY['mine', 'over', 'other', '0-first']) AS name`)
	run(t, db, `INSERT INTO pauses (job, reason, paused_by, paused_at, until) VALUES
		('mine', 'a bad feed', 'ana', '2026-01-01Z', NULL),
		('over', 'was short', 'ana', '2026-01-01Z', clock_timestamp() - interval '1 second'),
		('0-first', 'until later', 'ana', '2026-01-01Z', '2999-01-01Z')`)
	r := patient(db, []registry.Job{{Name: "new", Schedule: registry.OnDemand}})
	said := func(snap Snapshot) map[string]string {
		all := map[string]string{}
		for _, l := range snap.Leases {
			if l.Name != "new" && l.State != Held {
				t.Errorf("%s is %s", l.Name, l.State)
			}
			if l.Paused != nil {
				all[l.Name] = l.Paused.Job + " " + l.Paused.Reason
			}
		}
		return all
	}
	first := look(t, r)
	if diff := cmp.Diff(map[string]string{"mine": "mine a bad feed", "0-first": "0-first until later"}, said(first)); diff != "" {
		t.Errorf("paused (-want +got):\n%s", diff)
	}
	p := find(t, first, "0-first").Paused
	want := Pause{"0-first", "until later", "ana", time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC), time.Date(2999, 1, 1, 0, 0, 0, 0, time.UTC)}
	if diff := cmp.Diff(&want, p); diff != "" {
		t.Errorf("the pause (-want +got):\n%s", diff)
	}
	run(t, db, `INSERT INTO pauses (job, reason, paused_by) VALUES ('*', 'maintenance', 'bo')`)
	second := look(t, r)
	all := map[string]string{
		"mine": "mine a bad feed", "over": "* maintenance", "other": "* maintenance", "new": "* maintenance", "0-first": "0-first until later",
	}
	if diff := cmp.Diff(all, said(second)); diff != "" {
		t.Errorf("with a pause of all (-want +got):\n%s", diff)
	}
	if first.Tag == second.Tag {
		t.Error("a pause does not change the tag")
	}
}

func TestAFreeLeaseSaysHowItsTermEnded(t *testing.T) {
	t.Parallel()
	db := pgtest.New(t)
	run(t, db, `INSERT INTO leadership (job_name, owner, expires_at, epoch) VALUES
		('released', 'a/1', clock_timestamp() + interval '1 hour', 1), ('died', 'a/1', clock_timestamp() - interval '3 seconds', 1),
		('moved', 'a/1', clock_timestamp() + interval '1 hour', 1)`)
	run(t, db, `UPDATE leadership SET expires_at = clock_timestamp() - interval '1 second' WHERE job_name = 'released'`)
	run(t, db, `UPDATE leadership SET owner = 'b/2', epoch = 2 WHERE job_name = 'moved'`)
	snap := look(t, patient(db, nil))
	for name, want := range map[string]string{"released": "released", "died": "expired", "moved": "replaced"} {
		l := find(t, snap, name)
		if l.LastEnd == nil || l.LastEnd.Reason != want || l.LastEnd.Epoch != 1 || l.LastEnd.Owner != "a/1" || l.LastEnd.EndedAt.IsZero() {
			t.Errorf("%s: last end %+v, want %s of epoch 1", name, l.LastEnd, want)
		}
	}
}

func TestAHolderThatIsNoMemberIsShown(t *testing.T) {
	t.Parallel()
	db := pgtest.New(t)
	run(t, db, `INSERT INTO replicas (id, host, pid, version, started_at, seen_at, expires_at, clock_offset, draining) VALUES
		('a/1', 'a', 11, 'v1', clock_timestamp(), '2026-01-01Z', clock_timestamp() + interval '15 s', '-00:00:00.25', false),
		('b/2', 'b', 12, 'v1', clock_timestamp(), clock_timestamp(), clock_timestamp() + interval '15 s', '0', true),
		('c/3', 'c', 13, 'v1', clock_timestamp(), clock_timestamp(), clock_timestamp() - interval '15 s', '0', false),
		('d/4', 'd', 14, 'v1', clock_timestamp(), clock_timestamp(), clock_timestamp() - interval '2 hours', '0', false)`)
	run(t, db, `UPDATE replicas SET expires_at = seen_at + interval '100 years' WHERE id = 'a/1'`)
	run(t, db, `INSERT INTO leadership (job_name, owner, expires_at, epoch) VALUES
		('one', 'a/1', clock_timestamp() + interval '1 hour', 1), ('two', 'a/1', clock_timestamp() + interval '1 hour', 1),
		('three', 'psql', clock_timestamp() + interval '1 hour', 1), ('four', 'b/2', clock_timestamp() - interval '1 hour', 1)`)
	snap := look(t, patient(db, nil))

	type said struct {
		ID       string
		Standing Standing
		Leases   int
	}
	var got []said
	for _, r := range snap.Replicas {
		got = append(got, said{r.ID, r.Standing, r.Leases})
	}
	want := []said{{"a/1", Member, 2}, {"b/2", Draining, 0}, {"psql", Outside, 1}, {"c/3", Gone, 0}}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("replicas (-want +got):\n%s", diff)
	}
	if d := snap.Replicas[0].ClockOffset; d != -250*time.Millisecond {
		t.Errorf("clock offset %v", d)
	}
	if l := find(t, snap, "one"); l.Length < 99*365*24*time.Hour {
		t.Errorf("length of the lease %v, want the holder's own", l.Length)
	}
	if l := find(t, snap, "three"); l.Length != 0 {
		t.Errorf("length of an outsider's lease %v", l.Length)
	}
}

func TestTheTagChangesWithTheRowsAlone(t *testing.T) {
	t.Parallel()
	db := pgtest.New(t)
	run(t, db, `INSERT INTO leadership (job_name, owner, expires_at, epoch) VALUES ('one', 'a/1', clock_timestamp() + interval '1 hour', 1)`)
	r := patient(db, nil)
	first, second := look(t, r), look(t, r)
	if first.Tag != second.Tag || first.AsOf.Equal(second.AsOf) {
		t.Errorf("nothing changed: tags %s and %s, as of %v and %v", first.Tag, second.Tag, first.AsOf, second.AsOf)
	}
	if other := look(t, patient(db, nil)); other.Tag != first.Tag {
		t.Error("another replica has another tag for the same rows")
	}
	run(t, db, `UPDATE leadership SET epoch = 2`)
	if third := look(t, r); third.Tag == first.Tag {
		t.Error("the epoch changed and the tag did not")
	}
}

// counter counts statements, and transactions by their begin.
type counter struct{ transactions, statements atomic.Int64 }

func (c *counter) TraceQueryStart(ctx context.Context, _ *pgx.Conn, d pgx.TraceQueryStartData) context.Context {
	if len(d.SQL) > 5 && d.SQL[:5] == "begin" {
		c.transactions.Add(1)
	}
	c.statements.Add(1)
	return ctx
}
func (c *counter) TraceQueryEnd(context.Context, *pgx.Conn, pgx.TraceQueryEndData) {}
func (c *counter) TraceBatchStart(ctx context.Context, _ *pgx.Conn, _ pgx.TraceBatchStartData) context.Context {
	return ctx
}

func (c *counter) TraceBatchQuery(context.Context, *pgx.Conn, pgx.TraceBatchQueryData) {
	c.statements.Add(1)
}
func (c *counter) TraceBatchEnd(context.Context, *pgx.Conn, pgx.TraceBatchEndData) {}

func counted(t *testing.T, db *pgxpool.Pool) (*pgxpool.Pool, *counter) {
	t.Helper()
	c := new(counter)
	cfg := db.Config()
	cfg.ConnConfig.Tracer = c
	pool, err := pgxpool.NewWithConfig(t.Context(), cfg)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(pool.Close)
	return pool, c
}

func TestManyViewersCostOneReading(t *testing.T) {
	t.Parallel()
	db := pgtest.New(t)
	run(t, db, `INSERT INTO leadership (job_name, owner, expires_at, epoch) VALUES ('one', 'a/1', clock_timestamp(), 1)`)
	pool, count := counted(t, db)
	r := patient(pool, nil)
	r.fresh = time.Hour // the machine may be slow
	var wg sync.WaitGroup
	for range 50 {
		wg.Go(func() {
			if snap, err := r.Snapshot(t.Context()); err != nil || snap.Stale || len(snap.Leases) != 1 {
				t.Errorf("snapshot %+v: %v", snap, err)
			}
		})
	}
	wg.Wait()
	if n := count.transactions.Load(); n != 1 {
		t.Errorf("50 viewers cost %d transactions", n)
	}
}

func TestStatementsDoNotGrowWithJobs(t *testing.T) {
	t.Parallel()
	db := pgtest.New(t)
	pool, count := counted(t, db)
	r := patient(pool, nil)
	look(t, r)
	few := count.statements.Swap(0)
	run(t, db, `INSERT INTO leadership (job_name, owner, expires_at, epoch) SELECT 'job' || i, 'a/1', clock_timestamp(), 1 FROM generate_series(1, 300) i`)
	if snap := look(t, r); len(snap.Leases) != 300 {
		t.Errorf("%d leases", len(snap.Leases))
	}
	if many := count.statements.Load(); many != few {
		t.Errorf("%d statements for no lease, %d for 300", few, many)
	}
}

func TestAViewerWhoLeavesDoesNotEndTheReadingForOthers(t *testing.T) {
	t.Parallel()
	db := pgtest.New(t)
	r := patient(db, nil)
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := r.Snapshot(ctx); err != nil && !errors.Is(err, context.Canceled) {
		t.Errorf("snapshot for one who left: %v", err)
	}
	r.snap.mu.Lock()
	flight := r.snap.flight
	r.snap.mu.Unlock()
	if flight != nil {
		<-flight
	}
	if r.snap.last == nil {
		t.Errorf("nothing was read: %v", r.snap.err)
	}
}

// P10: a snapshot that is old says so, and how old it is.
func TestWithoutADatabaseTheLastSnapshotIsReturnedAsStale(t *testing.T) {
	t.Parallel()
	db := pgtest.New(t)
	run(t, db, `INSERT INTO leadership (job_name, owner, expires_at, epoch) VALUES ('one', 'a/1', clock_timestamp() + interval '1 hour', 1)`)
	pool, _ := counted(t, db)
	r := patient(pool, nil)
	good := look(t, r)
	pool.Close()
	anew(r)

	stale, err := r.Snapshot(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if !stale.Stale || stale.Why == nil {
		t.Error("not marked as stale")
	}
	if !stale.AsOf.Equal(good.AsOf) || len(stale.Leases) != 1 {
		t.Errorf("not the last snapshot: %+v", stale)
	}
	if later, _ := r.Snapshot(t.Context()); later.Age <= stale.Age {
		t.Errorf("age %v, then %v", stale.Age, later.Age)
	}
	if _, err := patient(pool, nil).Snapshot(t.Context()); !errors.Is(err, ErrNothingYet) {
		t.Errorf("without any snapshot: %v", err)
	}
}

// P8 and P10: a table that somebody has locked does not hang the page.
func TestAHungDatabaseIsNotWaitedFor(t *testing.T) {
	t.Parallel()
	db := pgtest.New(t)
	r := patient(db, nil)
	look(t, r)
	tx, err := db.Begin(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = tx.Rollback(context.Background()) }()
	if _, err := tx.Exec(t.Context(), "LOCK TABLE leadership IN ACCESS EXCLUSIVE MODE"); err != nil {
		t.Fatal(err)
	}
	r.snap.due, r.snap.taken, r.patience, r.limit = time.Time{}, time.Time{}, 800*time.Millisecond, 2*time.Second
	began := time.Now()
	snap, err := r.Snapshot(t.Context())
	if err != nil || !snap.Stale {
		t.Errorf("snapshot stale %v: %v", snap.Stale, err)
	}
	if d := time.Since(began); d > 5*time.Second {
		t.Errorf("took %v", d)
	}
	if err := tx.Rollback(t.Context()); err != nil {
		t.Fatal(err)
	}
	r.patience, r.limit = time.Minute, time.Minute
	look(t, r) // it recovers
}
