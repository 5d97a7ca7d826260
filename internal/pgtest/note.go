package pgtest

import (
	"context"
	"testing"

	"github.com/jackc/pgx/v5/pgxpool"
)

// What is open, and the newest success, as claims would have noted them.
const noteSQL = `
INSERT INTO progress (lease, last_tick, schedule, open, success)
SELECT lease, max(tick), 'every 1m', coalesce(array_agg(id) FILTER (WHERE ended_at IS NULL), '{}'), max(id) FILTER (WHERE outcome = 'success')
  FROM runs GROUP BY lease
    ON CONFLICT (lease) DO UPDATE SET open = EXCLUDED.open, success = EXCLUDED.success`

// Note keeps the progress of each lease in step with runs that a test has written by itself.
func Note(t testing.TB, db *pgxpool.Pool) {
	t.Helper()
	if _, err := db.Exec(context.Background(), noteSQL); err != nil {
		t.Fatalf("note the runs in the progress: %v", err)
	}
}
