package scheduler

import (
	"context"
	"errors"
	"log/slog"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/jackc/pgx/v5/pgxpool"

	"rota/internal/pgtest"
	"rota/internal/registry"
)

// prunes runs the job once, in batches of two so that there are many.
func prunes(ctx context.Context, db *pgxpool.Pool, keep Keep, draining <-chan struct{}) error {
	p := pruner{db: db, batch: 2, keep: keep}
	return p.run(ctx, &registry.Run{Log: slog.New(slog.DiscardHandler), Draining: draining})
}

var month = Keep{Age: 30 * 24 * time.Hour, Runs: 1000, Terms: 1000}

// ran adds runs of a lease, the last of them now, each an hour after the one before.
func ran(t testing.TB, db *pgxpool.Pool, lease string, outcomes ...string) {
	t.Helper()
	mustExec(t, db, `INSERT INTO runs (lease, job, tick, epoch, owner, started_at, ended_at, outcome, error)
		SELECT $1, $1, at, 1, 'me', at, CASE WHEN outcome <> 'open' THEN at END, nullif(outcome, 'open'), $1 || n
		  FROM unnest($2::text[]) WITH ORDINALITY AS o(outcome, n),
		       LATERAL (SELECT clock_timestamp() - make_interval(hours => cardinality($2) - n::int) AS at) t`, lease, outcomes)
	pgtest.Note(t, db)
}

const leftSQL = `SELECT error FROM runs ORDER BY lease, tick`

func TestRunsArePrunedByAgeButForTheNewestAndTheNewestSuccess(t *testing.T) {
	t.Parallel()
	db := pgtest.New(t)
	ran(t, db, "a", "success", "success", "failed", "success", "failed", "skipped")
	ran(t, db, "b", "failed", "open", "failed", "failed")
	ran(t, db, "c", "success", "success", "success")
	ran(t, db, "d", "lost", "failed", "success")
	mustExec(t, db, `UPDATE runs SET started_at = started_at - interval '40 days', ended_at = ended_at - interval '40 days' WHERE lease <> 'c'`)
	mustExec(t, db, `UPDATE runs SET started_at = started_at - interval '40 days', ended_at = ended_at - interval '40 days' WHERE error IN ('c1', 'c2')`)
	mustExec(t, db, `UPDATE runs SET ended_at = clock_timestamp() WHERE error = 'c2'`) // it began long ago, and took long
	mustExec(t, db, `UPDATE runs SET again = true WHERE error = 'd1'`)
	if err := prunes(t.Context(), db, month, nil); err != nil {
		t.Fatal(err)
	}
	want := []string{"a4", "a6", "b2", "b4", "c2", "c3", "d1", "d3"}
	if diff := cmp.Diff(want, lines(t, db, leftSQL)); diff != "" {
		t.Errorf("left (-want +got):\n%s", diff)
	}
	if err := prunes(t.Context(), db, month, nil); err != nil || len(lines(t, db, leftSQL)) != len(want) {
		t.Errorf("the second time it prunes more: %v", err)
	}
}

func TestRunsArePrunedByNumberForEachJob(t *testing.T) {
	t.Parallel()
	db := pgtest.New(t)
	ran(t, db, "many", "success", "open", "failed", "failed", "failed", "failed", "failed", "skipped", "skipped")
	ran(t, db, "few", "failed", "failed", "failed")
	ran(t, db, "good", "success", "success", "success", "success", "success")
	keep := month
	keep.Runs = 3
	if err := prunes(t.Context(), db, keep, nil); err != nil {
		t.Fatal(err)
	}
	want := []string{"few1", "few2", "few3", "good3", "good4", "good5", "many1", "many2", "many7", "many8", "many9"}
	if diff := cmp.Diff(want, lines(t, db, leftSQL)); diff != "" {
		t.Errorf("left (-want +got):\n%s", diff)
	}
}

// P2: acquisitions count from the highest epoch in the history, which is never pruned.
func TestTermsArePrunedButForTheNewest(t *testing.T) {
	t.Parallel()
	db := pgtest.New(t)
	mustExec(t, db, `INSERT INTO terms (job_name, epoch, owner, acquired_at, ended_at, end_reason)
		SELECT name, i, 'me', clock_timestamp(), CASE WHEN i <> 2 THEN clock_timestamp() END, CASE WHEN i <> 2 THEN 'released' END
		  FROM unnest(ARRAY['a', 'b']) AS name, generate_series(1, 9) i WHERE name = 'a' OR i <= 2`)
	const left = `SELECT job_name || epoch FROM terms ORDER BY job_name, epoch`
	for _, tt := range []struct {
		keep int
		want string
	}{{3, "a2 a7 a8 a9 b1 b2"}, {1, "a2 a9 b2"}} {
		if err := prunes(t.Context(), db, Keep{Age: month.Age, Runs: month.Runs, Terms: tt.keep}, nil); err != nil {
			t.Fatal(err)
		}
		if got := strings.Join(lines(t, db, left), " "); got != tt.want {
			t.Errorf("of %d terms to keep, left are %s, want %s", tt.keep, got, tt.want)
		}
	}
}

func TestSettledRequestsArePrunedByAge(t *testing.T) {
	t.Parallel()
	db := pgtest.New(t)
	mustExec(t, db, `INSERT INTO requests (kind, job, lease, reason, asked_by, made_at, done_at, result)
		SELECT 'run', 'a', 'a', 'r' || i, 'ana', clock_timestamp() - make_interval(days => 40 - 5 * i),
		       CASE WHEN i <> 1 THEN clock_timestamp() END, CASE WHEN i <> 1 THEN 'run' END
		  FROM generate_series(0, 6) i`)
	if err := prunes(t.Context(), db, month, nil); err != nil {
		t.Fatal(err)
	}
	if got, want := strings.Join(lines(t, db, `SELECT reason FROM requests ORDER BY id`), " "), "r1 r3 r4 r5 r6"; got != want {
		t.Errorf("left are %s, want %s", got, want)
	}
}

// P8: a row that somebody has locked is left alone, and costs nothing but itself.
func TestPruningSkipsWhatIsLocked(t *testing.T) {
	t.Parallel()
	db := pgtest.New(t)
	ran(t, db, "a", "failed", "failed", "failed", "failed")
	mustExec(t, db, `UPDATE runs SET started_at = started_at - interval '40 days', ended_at = ended_at - interval '40 days'`)
	tx, err := db.Begin(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = tx.Rollback(context.Background()) }()
	if _, err := tx.Exec(t.Context(), `SELECT 1 FROM runs WHERE error = 'a2' FOR UPDATE`); err != nil {
		t.Fatal(err)
	}
	if err := prunes(t.Context(), db, month, nil); err != nil {
		t.Fatal(err)
	}
	if got := strings.Join(lines(t, db, leftSQL), " "); got != "a2 a4" {
		t.Errorf("left are %s, want a2 a4", got)
	}
}

// P5 and P6: pruning ends with its context, with the reason, and early where its lease is wanted.
func TestPruningStopsBetweenBatches(t *testing.T) {
	t.Parallel()
	db := pgtest.New(t)
	ran(t, db, "a", "failed", "failed", "failed", "failed", "failed", "failed")
	mustExec(t, db, `UPDATE runs SET started_at = started_at - interval '40 days', ended_at = ended_at - interval '40 days'`)
	asked := make(chan struct{})
	close(asked)
	if err := prunes(t.Context(), db, month, asked); err != nil {
		t.Errorf("asked to hand over: %v", err)
	}
	if got := strings.Join(lines(t, db, leftSQL), " "); got != "a3 a4 a5 a6" {
		t.Errorf("after one batch, left are %s", got)
	}
	ctx, cancel := context.WithCancelCause(t.Context())
	over := errors.New("the term is over")
	cancel(over)
	if err := prunes(ctx, db, month, nil); err == nil {
		t.Error("no error though the context had ended")
	}
	if got := len(lines(t, db, leftSQL)); got != 4 {
		t.Errorf("it pruned without a context: %d left", got)
	}
}

func TestTheJobThatPrunesIsAWellFormedOne(t *testing.T) {
	t.Parallel()
	db := pgtest.New(t)
	jobs, err := registry.Check([]registry.Job{History(db, Keep{})})
	if err != nil {
		t.Fatal(err)
	}
	ran(t, db, "a", "failed", "failed", "success")
	mustExec(t, db, `UPDATE runs SET started_at = started_at - interval '31 days', ended_at = ended_at - interval '31 days' WHERE error <> 'a3'`)
	if err := jobs[0].Run(t.Context(), &registry.Run{Log: slog.New(slog.DiscardHandler)}); err != nil {
		t.Fatal(err)
	}
	if got := strings.Join(lines(t, db, leftSQL), " "); got != "a3" {
		t.Errorf("by default, left are %s", got)
	}
}
