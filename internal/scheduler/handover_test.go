package scheduler_test

import (
	"context"
	"fmt"
	"log/slog"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/prometheus/client_golang/prometheus"

	"rota/internal/fence"
	"rota/internal/lease"
	"rota/internal/pgtest"
	"rota/internal/registry"
	"rota/internal/scheduler"
)

// A replica is an elector and a scheduler, as serve wires them.
type replica struct {
	owner string
	ended chan struct{}
	stop  context.CancelFunc
}

// begins starts a replica that is stopped, at the latest, when the test ends.
func begins(t *testing.T, db *pgxpool.Pool, jobs []registry.Job) *replica {
	t.Helper()
	owner, metrics := lease.NewOwner("host"), prometheus.NewRegistry()
	leases, err := lease.NewPool(context.Background(), db.Config(), owner)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(leases.Close)
	log := slog.New(slog.NewTextHandler(t.Output(), nil))
	elector, err := lease.New(leases, lease.Config{
		Owner: owner, Version: "test", Lease: 1500 * time.Millisecond, Renew: 500 * time.Millisecond, Log: log, Metrics: metrics,
	})
	if err != nil {
		t.Fatal(err)
	}
	work, err := scheduler.New(scheduler.Config{
		Engine: db, Work: db, Jobs: jobs, Elector: elector, Owner: owner, Log: log, Metrics: metrics,
		Drain: 10 * time.Second, Grace: time.Second,
	})
	if err != nil {
		t.Fatal(err)
	}
	var names []lease.Lease
	for _, j := range jobs {
		names = append(names, lease.Lease{Name: j.Name, Job: j.Name})
	}
	ctx, stop := context.WithCancel(context.Background())
	r := &replica{owner: owner, ended: make(chan struct{}), stop: stop}
	go func() {
		defer close(r.ended)
		working := make(chan struct{})
		go func() {
			defer close(working)
			_ = work.Run(ctx)
		}()
		if err := elector.Run(ctx, names, work.Lead); err != nil {
			t.Error(err)
		}
		<-working
	}()
	t.Cleanup(r.end)
	return r
}

func (r *replica) end() {
	r.stop()
	<-r.ended
}

// eventually polls a query with one text column and one row until it says what is wanted.
func eventually(t *testing.T, db *pgxpool.Pool, want, sql string, args ...any) {
	t.Helper()
	deadline := time.Now().Add(30 * time.Second)
	for {
		var got string
		err := db.QueryRow(t.Context(), sql, args...).Scan(&got)
		if err == nil && got == want {
			return
		}
		if time.Now().After(deadline) {
			t.Fatalf("%s says %q (%v), want %q", sql, got, err, want)
		}
		time.Sleep(20 * time.Millisecond)
	}
}

// P8: a function that reads and closes nothing does not use up, run by run, the connections of all jobs.
func TestRunsThatCloseNothingStarveNoOther(t *testing.T) {
	t.Parallel()
	db := pgtest.New(t)
	begins(t, db, []registry.Job{{Name: "careless", Schedule: registry.Every(time.Second), Run: func(ctx context.Context, run *registry.Run) error {
		for range db.Config().MaxConns - 4 {
			if _, err := run.DB.Query(ctx, "SELECT 1"); err != nil { //nolint:sqlclosecheck // left open on purpose: the run's end has to close it
				return err
			}
		}
		return nil
	}}})
	eventually(t, db, "true", "SELECT (count(*) >= 2)::text FROM runs WHERE outcome = 'success'")
}

// P3, P4, P6, P7: a replica that is stopped in the middle of a run lets it finish under its lease;
// then another leads, above it, and between them each tick has one run at most and none is missing.
func TestHandoverLosesAndDoublesNoTick(t *testing.T) {
	t.Parallel()
	db := pgtest.New(t)
	if _, err := db.Exec(t.Context(), `CREATE TABLE done (tick timestamptz PRIMARY KEY, owner text NOT NULL);
		SELECT fence_protect('done')`); err != nil {
		t.Fatal(err)
	}
	done := fence.Table{Name: "done", Key: []string{"tick"}}
	type row struct {
		Tick  time.Time `db:"tick"`
		Owner string    `db:"owner"`
	}
	entered := make(chan struct{}, 100)
	jobs, err := registry.Check([]registry.Job{{
		Name: "job", Schedule: registry.Every(2 * time.Second), Protects: []fence.Table{done},
		Run: func(ctx context.Context, r *registry.Run) error {
			entered <- struct{}{}
			select { // long enough to be stopped in its middle, and shorter than the schedule's period
			case <-time.After(300 * time.Millisecond):
			case <-ctx.Done():
				return context.Cause(ctx)
			}
			return r.Fence.Upsert(ctx, done, row{r.Tick, fmt.Sprint(r.Fence.Epoch())})
		},
	}})
	if err != nil {
		t.Fatal(err)
	}

	first := begins(t, db, jobs)
	eventually(t, db, "true", `SELECT (count(*) >= 1)::text FROM done WHERE epoch = 1`)
	second := begins(t, db, jobs)
	eventually(t, db, "2", `SELECT count(*)::text FROM replicas`)
	for len(entered) > 0 {
		<-entered
	}
	<-entered
	first.end()
	eventually(t, db, "true", `SELECT (count(*) >= 1)::text FROM done WHERE epoch = 2 AND owner = '2'`)
	second.end()

	rows, err := db.Query(t.Context(), `
		SELECT concat_ws(' ', count(*), count(DISTINCT tick), count(*) FILTER (WHERE outcome = 'success'),
		                 extract(epoch FROM max(tick) - min(tick))::int / 2 + 1) FROM runs`)
	if err != nil {
		t.Fatal(err)
	}
	said, err := pgx.CollectExactlyOneRow(rows, pgx.RowTo[string])
	if err != nil {
		t.Fatal(err)
	}
	n := strings.Fields(said)
	if n[0] != n[1] || n[0] != n[2] || n[0] != n[3] {
		t.Errorf("runs, ticks, successes, and periods that they span: %s", said)
	}
	eventually(t, db, "0", `SELECT count(*)::text FROM runs WHERE ended_at IS NULL`)
	// The first term ended after its last run did, by being given up.
	eventually(t, db, "true drain", `
		SELECT concat_ws(' ', (t.ended_at >= max(r.ended_at))::text, t.end_reason)
		  FROM terms t JOIN runs r ON r.epoch = t.epoch WHERE t.epoch = 1 GROUP BY t.ended_at, t.end_reason`)
}

// P3, P4, P7: a leader that was superseded while its job was at work is refused, its run is on
// record as fenced, with the count, although its successor has closed it as lost before.
func TestSupersededRunIsRecordedAsFenced(t *testing.T) {
	t.Parallel()
	db := pgtest.New(t)
	if _, err := db.Exec(t.Context(), `CREATE TABLE done (id int PRIMARY KEY); SELECT fence_protect('done');
		INSERT INTO done (id) VALUES (1)`); err != nil {
		t.Fatal(err)
	}
	done := fence.Table{Name: "done", Key: []string{"id"}}
	type row struct {
		ID int `db:"id"`
	}
	let, entered := make(chan struct{}), make(chan struct{}, 100)
	jobs, err := registry.Check([]registry.Job{{
		Name: "job", Schedule: registry.Continuous, Protects: []fence.Table{done},
		Run: func(ctx context.Context, r *registry.Run) error {
			entered <- struct{}{}
			select {
			case <-let: // it does not look at its context, as a process that sleeps does not
			case <-r.Draining:
				return nil
			}
			return r.Fence.Upsert(ctx, done, row{1})
		},
	}})
	if err != nil {
		t.Fatal(err)
	}
	begins(t, db, jobs)
	<-entered
	// An operator's takeover, which raises, and closes what it finds open.
	if _, err := db.Exec(t.Context(), `
		UPDATE leadership SET owner = 'other', epoch = 2, expires_at = clock_timestamp() + interval '1 second';
		UPDATE done SET epoch = 2;
		UPDATE runs SET ended_at = clock_timestamp(), outcome = 'lost'`, pgx.QueryExecModeSimpleProtocol); err != nil {
		t.Fatal(err)
	}
	close(let)
	eventually(t, db, "fenced 1", `SELECT concat_ws(' ', outcome, refused) FROM runs WHERE epoch = 1`)
	eventually(t, db, "2", `SELECT epoch::text FROM done`)
}
