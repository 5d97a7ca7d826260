package jobtest_test

import (
	"context"
	"errors"
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
