package status

import (
	"context"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"
)

// A Server is what is known of the database itself.
type Server struct {
	AsOf    time.Time     // by its clock
	Offset  time.Duration // its clock less this process's, give or take half of Trip
	Trip    time.Duration // how long it took to ask
	Version string        // PostgreSQL's
	Name    string        // the database
	Search  string        // the schema that the tables are in
	Runs    int64         // kept; see RunsWords

	Migrated, JobsMigrated int64 // the numbers of the newest migrations; zero: they cannot be read
}

const serverSQL = `
SELECT current_setting('server_version'), current_database(), coalesce(current_schema(), ''),
       (SELECT CASE WHEN reltuples > $1::bigint THEN reltuples::bigint ELSE (SELECT count(*) FROM (SELECT FROM runs LIMIT $1::bigint + 1) AS first) END
          FROM pg_class WHERE oid = 'runs'::regclass)`

// mostCounted bounds how many runs are counted one by one. The estimate is none until the table is
// analyzed, and lags behind what is written.
const mostCounted = 10_000

// RunsWords says how many runs are kept, and how well that is known: one more than are counted stands for
// more than that.
func (s Server) RunsWords() string {
	switch {
	case s.Runs <= mostCounted:
		return fmt.Sprint(s.Runs)
	case s.Runs == mostCounted+1:
		return fmt.Sprintf("more than %d", mostCounted)
	}
	return fmt.Sprintf("about %d", s.Runs)
}

// migratedSQL is by the tables in which goose notes what it has applied.
const migratedSQL = `SELECT (SELECT max(version_id) FROM rota_schema), (SELECT max(version_id) FROM rota_jobs_schema)`

// Server reads what is known of the database; it is kept as a snapshot is. Where asking is false it
// returns what is remembered.
func (r *Reader) Server(ctx context.Context, asking bool) (Reading[Server], error) {
	if !asking {
		return r.server.peek()
	}
	return r.server.get(ctx, r.fresh, r.patience, func(ctx context.Context) (Server, error) {
		var s Server
		began := time.Now()
		var err error
		s.AsOf, err = r.ask(ctx, []question{{serverSQL, []any{int64(mostCounted)}}}, func(_ time.Time, res pgx.BatchResults) error {
			return res.QueryRow().Scan(&s.Version, &s.Name, &s.Search, &s.Runs)
		})
		if err != nil {
			return Server{}, fmt.Errorf("ask the database what it is: %w", err)
		}
		s.Trip = time.Since(began)
		s.Offset = s.AsOf.Sub(began.Add(s.Trip / 2))
		// By itself: a program with fewer rights than ours may show this page, and all else of it.
		_, err = r.ask(ctx, []question{{migratedSQL, nil}}, func(_ time.Time, res pgx.BatchResults) error {
			return res.QueryRow().Scan(&s.Migrated, &s.JobsMigrated)
		})
		if err != nil {
			s.Migrated, s.JobsMigrated = 0, 0
		}
		return s, nil
	})
}
