package scheduler

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"rota/internal/pgtest"
	"rota/internal/registry"
)

// P8: what a run has read and not closed holds none of the connections that all jobs share once it is over,
// whether its function has read with its own context or with one that never ends.
func TestAnswersThatARunLeavesOpenAreClosed(t *testing.T) {
	t.Parallel()
	db := pgtest.New(t)
	for name, leave := range map[string]func(r registry.Reader, ctx context.Context) error{
		"rows": func(r registry.Reader, ctx context.Context) error {
			_, err := r.Query(ctx, "SELECT generate_series(1, 100000)") //nolint:sqlclosecheck // left open on purpose: the run's end has to close it
			return err
		},
		"rows half read": func(r registry.Reader, ctx context.Context) error {
			rows, err := r.Query(ctx, "SELECT generate_series(1, 100000)")
			if err == nil && (!rows.Next() || rows.Err() != nil) {
				t.Error("there are no rows: ", rows.Err())
			}
			return err
		},
		"a row": func(r registry.Reader, ctx context.Context) error {
			r.QueryRow(ctx, "SELECT 1")
			return nil
		},
	} {
		for _, own := range []bool{true, false} {
			r := &reads{db: db}
			ctx, end := context.WithCancel(t.Context())
			for range 3 {
				with := ctx
				if !own {
					with = context.Background()
				}
				if err := leave(r, with); err != nil {
					t.Fatal(err)
				}
			}
			end()
			if n := r.close(); n != 3 {
				t.Errorf("%s: %d answers were open, want 3", name, n)
			}
			for start := time.Now(); db.Stat().AcquiredConns() > 0; {
				if time.Since(start) > 10*time.Second {
					t.Fatalf("%s: %d connections are held still", name, db.Stat().AcquiredConns())
				}
				time.Sleep(time.Millisecond)
			}
		}
	}
}

// What is read to its end, or scanned, is as pgx has it, and nothing is left to close.
func TestAnswersOfARunAreThoseOfTheDatabase(t *testing.T) {
	t.Parallel()
	r := &reads{db: pgtest.New(t)}
	rows, err := r.Query(t.Context(), "SELECT n AS a, n * 2 AS b FROM generate_series(1, 3) AS n")
	if err != nil {
		t.Fatal(err)
	}
	type pair struct{ A, B int }
	all, err := pgx.CollectRows(rows, pgx.RowToStructByName[pair])
	if err != nil || len(all) != 3 || all[2] != (pair{3, 6}) {
		t.Errorf("%v, %v", all, err)
	}
	var n int
	if err := r.QueryRow(t.Context(), "SELECT 7").Scan(&n); err != nil || n != 7 {
		t.Errorf("%d, %v", n, err)
	}
	if err := r.QueryRow(t.Context(), "SELECT 7 WHERE false").Scan(&n); !errors.Is(err, pgx.ErrNoRows) {
		t.Errorf("no row: %v", err)
	}
	for _, wrong := range []string{"SELEC 1", "SELECT 1 / (n - 1) FROM generate_series(1, 1) AS n", "SELECT 'x'"} {
		if err := r.QueryRow(t.Context(), wrong).Scan(&n); err == nil {
			t.Errorf("%s: no error", wrong)
		}
	}
	rows, err = r.Query(t.Context(), "SELECT 'x'")
	if err != nil || !rows.Next() || rows.Scan(&n) == nil {
		t.Error("a text is scanned into a number: ", err)
	}
	if open := r.close(); open != 0 {
		t.Errorf("%d answers are open", open)
	}
}
