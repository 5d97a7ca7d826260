package status

import (
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"

	"rota/internal/pgtest"
	"rota/internal/registry"
)

// facts are all series of the rows' metrics, by name and labels.
func facts(t *testing.T, f *Facts) map[string]float64 {
	t.Helper()
	reg := prometheus.NewPedanticRegistry()
	reg.MustRegister(f)
	families, err := reg.Gather()
	if err != nil {
		t.Fatal(err)
	}
	if problems, err := testutil.GatherAndLint(reg); err != nil || len(problems) > 0 {
		t.Errorf("the linter says %v, %v", problems, err)
	}
	all := map[string]float64{}
	for _, family := range families {
		for _, m := range family.GetMetric() {
			key := family.GetName()
			for _, l := range m.GetLabel() {
				if l.GetValue() != "" {
					key += " " + l.GetValue()
				}
			}
			all[key] = m.GetGauge().GetValue()
		}
	}
	return all
}

// anew makes the reader read again.
func anew(r *Reader) {
	r.snap.mu.Lock()
	r.snap.due, r.snap.taken, r.snap.took = time.Time{}, r.snap.taken.Add(-2*r.fresh), 0
	r.snap.mu.Unlock()
}

func is(t *testing.T, all map[string]float64, key string, want float64) {
	t.Helper()
	if got, ok := all[key]; !ok || got != want {
		t.Errorf("%s is %v (there: %v), want %v", key, got, ok, want)
	}
}

// isNot fails where there is such a series.
func isNot(t *testing.T, all map[string]float64, key string) {
	t.Helper()
	if got, ok := all[key]; ok {
		t.Errorf("%s is there, with %v", key, got)
	}
}

func jobsForFacts() []registry.Job {
	return []registry.Job{
		{Name: "tides", Schedule: registry.Every(10 * time.Second), Timeout: 4 * time.Second},
		{Name: "daily", Schedule: registry.Cron("0 8 * * 1-5")},
		{Name: "stream", Schedule: registry.Continuous},
		{Name: "off", Schedule: registry.Every(time.Second), Disabled: true},
	}
}

const success = `INSERT INTO runs (lease, job, tick, epoch, owner, started_at, ended_at, outcome)
	VALUES ($1, $1, $2::timestamptz, 1, 'a/1', $2::timestamptz, $2::timestamptz + interval '1 second', 'success')`

func leased(t *testing.T, db *pgxpool.Pool) {
	t.Helper()
	run(t, db, `INSERT INTO leadership (job_name, owner, expires_at, epoch) VALUES
		('tides', 'a/1', clock_timestamp() + interval '1 hour', 3), ('stream', 'a/1', '2026-01-02', 2),
		('daily', '', '-infinity', 0), ('removed', 'a/1', '2026-01-02', 2), ('off', '', '-infinity', 0)`)
}

// P10: the facts are those of the rows, whichever replica is asked.
func TestFactsOfTheRowsAreMetrics(t *testing.T) {
	t.Parallel()
	db := pgtest.New(t)
	leased(t, db)
	run(t, db, `INSERT INTO replicas (id, host, pid, version, started_at, seen_at, expires_at, draining)
		SELECT n, 'h', 1, 'v', now(), now(), clock_timestamp() + at, n = 'c/3'
		  FROM (VALUES ('b/2', interval '1 hour'), ('c/3', '1 hour'), ('d/4', '-1 minute')) r (n, at)`)
	friday := time.Date(2026, 11, 27, 8, 0, 0, 0, time.UTC)
	run(t, db, success, "daily", friday)
	run(t, db, success, "tides", friday)
	run(t, db, `INSERT INTO runs (lease, job, tick, epoch, owner, started_at) VALUES ('tides', 'tides', now(), 3, 'a/1', '2026-11-29 10:00Z')`)
	pgtest.Note(t, db)

	all := facts(t, NewFacts(patient(db, jobsForFacts())))
	is(t, all, "rota_lease_held tides", 1)
	is(t, all, "rota_lease_held daily", 0)
	is(t, all, "rota_lease_held stream", 0)
	is(t, all, "rota_lease_expires_timestamp_seconds stream", 1767312000)
	isNot(t, all, "rota_lease_expires_timestamp_seconds daily")
	is(t, all, "rota_replicas member", 1)
	is(t, all, "rota_replicas draining", 1)
	is(t, all, "rota_replicas gone", 1)
	is(t, all, "rota_replicas outside", 1)
	is(t, all, "rota_last_success_timestamp_seconds daily", float64(friday.Add(time.Second).Unix()))
	is(t, all, "rota_last_success_timestamp_seconds stream", 0)
	is(t, all, "rota_run_started_timestamp_seconds tides", 1795946400)
	isNot(t, all, "rota_run_started_timestamp_seconds daily")
	is(t, all, "rota_paused daily", 0)
	for _, key := range []string{
		"rota_lease_held removed", "rota_lease_held off", "rota_paused off", // nobody should miss them
		"rota_next_tick_timestamp_seconds stream", "rota_success_due_timestamp_seconds stream",
	} {
		isNot(t, all, key)
	}
	// A weekend is no reason for an alarm: after Friday's success the second tick is Tuesday's. The last
	// run took a second.
	is(t, all, "rota_success_due_timestamp_seconds daily", float64(friday.AddDate(0, 0, 4).Unix()+2))
	// The second tick after 8:00:01, and the timeout.
	is(t, all, "rota_success_due_timestamp_seconds tides", float64(friday.Add(24*time.Second).Unix()))
}

func TestSuccessIsDueFromTheEndOfAPause(t *testing.T) {
	t.Parallel()
	db := pgtest.New(t)
	leased(t, db)
	run(t, db, success, "tides", time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC))
	pgtest.Note(t, db)
	run(t, db, `INSERT INTO pauses (job, reason, paused_by) VALUES ('*', 'a reason', 'somebody')`)
	reader := patient(db, jobsForFacts())
	f := NewFacts(reader)
	all := facts(t, f)
	is(t, all, "rota_paused tides", 1)
	due := all["rota_success_due_timestamp_seconds tides"]
	if ahead := due - all["rota_status_timestamp_seconds"]; ahead < 10 || ahead > 24 {
		t.Errorf("while it is paused a success is due in %v s, want two ticks and the timeout", ahead)
	}
	run(t, db, `DELETE FROM pauses`)
	anew(reader)
	all = facts(t, f)
	is(t, all, "rota_paused tides", 0)
	if again := all["rota_success_due_timestamp_seconds tides"]; again < due {
		t.Errorf("the end of the pause moves the due success back by %v s", due-again)
	}
}

func TestJobThatNeverSucceededIsDueFromTheStart(t *testing.T) {
	t.Parallel()
	db := pgtest.New(t)
	leased(t, db)
	f := NewFacts(patient(db, jobsForFacts()))
	all := facts(t, f)
	is(t, all, "rota_success_due_timestamp_seconds tides", float64(f.since.Unix()/10*10+20+4))
}

// One replica that is cut off must not cover up what the others see.
func TestOldFactsAreLeftOut(t *testing.T) {
	t.Parallel()
	db := pgtest.New(t)
	leased(t, db)
	reader := patient(db, jobsForFacts())
	f := NewFacts(reader)
	before := facts(t, f)
	is(t, before, "rota_lease_held tides", 1)
	db.Close()
	anew(reader)
	is(t, facts(t, f), "rota_lease_held tides", 1)
	reader.snap.mu.Lock()
	reader.snap.taken = reader.snap.taken.Add(-tooOld)
	reader.snap.mu.Unlock()
	all := facts(t, f)
	isNot(t, all, "rota_lease_held tides")
	is(t, all, "rota_status_timestamp_seconds", before["rota_status_timestamp_seconds"])
}

func TestWithoutADatabaseThereAreNoFacts(t *testing.T) {
	t.Parallel()
	db := pgtest.New(t)
	reader := New(db, jobsForFacts())
	db.Close()
	if all := facts(t, NewFacts(reader)); len(all) > 0 {
		t.Errorf("%d series are told of rows that were never read", len(all))
	}
}
