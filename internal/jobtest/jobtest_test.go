package jobtest_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"

	"rota/internal/fence"
	"rota/internal/jobtest"
	"rota/internal/pgtest"
	"rota/internal/registry"
)

var marks = fence.Table{Name: "marks", Key: []string{"id"}}

type mark struct {
	ID   int    `db:"id"`
	Text string `db:"text"`
}

type markArgs struct{ Text string }

var marker = registry.Job{
	Name: "marker", Schedule: registry.Every(time.Second), Protects: []fence.Table{marks}, Args: markArgs{"mark"},
	Run: func(ctx context.Context, r *registry.Run) error {
		return r.Fence.Upsert(ctx, marks, mark{1, r.Args.(markArgs).Text})
	},
}

func init() { registry.Register(marker) }

func table(t *testing.T) *pgxpool.Pool {
	t.Helper()
	db := pgtest.New(t)
	if _, err := db.Exec(t.Context(), `CREATE TABLE marks (id int PRIMARY KEY, text text NOT NULL); SELECT fence_protect('marks')`); err != nil {
		t.Fatal(err)
	}
	return db
}

func read(t *testing.T, db *pgxpool.Pool) string {
	t.Helper()
	var row string
	if err := db.QueryRow(t.Context(), `SELECT concat_ws(' ', text, epoch) FROM marks`).Scan(&row); err != nil {
		t.Fatal(err)
	}
	return row
}

// P3: what a test of a job rests on.
func TestSupersededLeaderIsFenced(t *testing.T) {
	t.Parallel()
	db := table(t)
	leader := jobtest.Lead(t, db, "marker")
	if err := leader.Do(); err != nil {
		t.Fatal(err)
	}
	if got := read(t, db); got != "mark 1" {
		t.Errorf("the leader left %q", got)
	}
	successor := leader.Successor()
	if got := read(t, db); got != "mark 2" {
		t.Errorf("once the successor has raised there is %q", got)
	}
	if err := leader.WithArgs(markArgs{"late"}).Do(); !errors.Is(err, fence.ErrFenced) {
		t.Errorf("the superseded leader got %v", err)
	}
	if err := successor.WithArgs(markArgs{"next"}).Do(); err != nil {
		t.Error(err)
	}
	if got := read(t, db); got != "next 2" {
		t.Errorf("in the end there is %q", got)
	}
}

// P3, P4: a takeover alone fences, before any row is raised; work raises first.
func TestLeaderIsFencedBeforeItsSuccessorHasRaised(t *testing.T) {
	t.Parallel()
	db := table(t)
	leader := jobtest.LeadJob(t, db, marker)
	if err := leader.Do(); err != nil {
		t.Fatal(err)
	}
	next := leader.Takeover()
	if err := leader.Do(); !errors.Is(err, fence.ErrFenced) {
		t.Errorf("the superseded leader got %v", err)
	}
	if got := read(t, db); got != "mark 1" {
		t.Errorf("there is %q", got)
	}
	if err := next.Do(); err != nil {
		t.Error(err)
	}
	if got := read(t, db); got != "mark 2" || next.Token().Epoch != 2 {
		t.Errorf("there is %q, by %v", got, next.Token())
	}
}

// A job of the day before, by the calendar of Berlin.
func TestDateLogicIsTestedWithTheClockSet(t *testing.T) {
	t.Parallel()
	j := marker
	j.Run = func(ctx context.Context, r *registry.Run) error {
		berlin, err := time.LoadLocation("Europe/Berlin")
		if err != nil {
			return err
		}
		day := r.Tick.In(berlin).AddDate(0, 0, -1).Format(time.DateOnly)
		return r.Fence.Upsert(ctx, marks, mark{1, fmt.Sprintf("%s, attempt %d", day, r.Attempt)})
	}
	db := table(t)
	leader := jobtest.LeadJob(t, db, j)
	for _, c := range []struct {
		leader *jobtest.Leader
		want   string
	}{
		{leader.At(time.Date(2026, 3, 1, 6, 0, 0, 5, time.UTC)), "2026-02-28, attempt 1 1"},
		{leader.At(time.Date(2026, 12, 31, 23, 30, 0, 0, time.UTC)), "2026-12-31, attempt 1 1"},
		{leader.At(time.Date(2028, 3, 1, 6, 0, 0, 0, time.UTC)).Attempt(2), "2028-02-29, attempt 2 1"},
	} {
		if err := c.leader.Do(); err != nil {
			t.Fatal(err)
		}
		if got := read(t, db); got != c.want {
			t.Errorf("the job left %q, want %q", got, c.want)
		}
	}
}

func TestTickIsThePresentSecondUnlessTheClockIsSet(t *testing.T) {
	t.Parallel()
	var tick time.Time
	j := marker
	j.Protects = nil
	j.Run = func(_ context.Context, r *registry.Run) error {
		tick = r.Tick
		return nil
	}
	leader := jobtest.LeadJob(t, pgtest.New(t), j)
	for _, c := range []struct {
		leader    *jobtest.Leader
		from, til time.Time
	}{
		{leader, time.Now().Add(-time.Second), time.Now().Add(time.Minute)},
		{leader.At(time.Unix(1e9, 5).In(time.FixedZone("elsewhere", 3600))), time.Unix(1e9, 0), time.Unix(1e9, 0)},
	} {
		if err := c.leader.Do(); err != nil {
			t.Fatal(err)
		}
		if tick.Before(c.from) || tick.After(c.til) || tick.Nanosecond() != 0 || tick.Location() != time.UTC {
			t.Errorf("the tick is %v, want one from %v to %v", tick, c.from, c.til)
		}
	}
}

func TestJobThatIsAskedToEndEarly(t *testing.T) {
	t.Parallel()
	began := make(chan struct{}, 2)
	j := marker
	j.Protects = nil
	j.Run = func(ctx context.Context, r *registry.Run) error {
		began <- struct{}{}
		select {
		case <-r.Draining:
			return nil
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
	leader := jobtest.LeadJob(t, pgtest.New(t), j)
	go func() {
		<-began
		leader.Drain()
		leader.Drain()
	}()
	if err := leader.At(time.Unix(0, 0)).Do(); err != nil {
		t.Error(err)
	}
	if err := leader.Do(); err != nil { // the term is draining for good
		t.Error(err)
	}
}

func TestPanicIsAnError(t *testing.T) {
	t.Parallel()
	j := marker
	j.Protects = nil
	j.Run = func(context.Context, *registry.Run) error { panic("no such bridge") }
	err := jobtest.LeadJob(t, pgtest.New(t), j).Do()
	if err == nil || !strings.Contains(err.Error(), "no such bridge") {
		t.Errorf("it got %v", err)
	}
}
