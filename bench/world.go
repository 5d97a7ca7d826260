package main

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"
	_ "github.com/jackc/pgx/v5/stdlib" // goose wants database/sql
	"github.com/pressly/goose/v3"

	"rota/internal/devdb"
	"rota/internal/fence"
	"rota/migrations"
)

// A world is a PostgreSQL of a measurement's own, migrated, and as durable as in production.
type world struct {
	cluster  *devdb.Cluster
	database string
	db       *pgxpool.Pool
	short    bool
}

var durable = map[string]string{"fsync": "on", "synchronous_commit": "on", "full_page_writes": "on"}

// protectedSQL makes the table that measurements write to: the article's, with some rows.
const protectedSQL = `
CREATE TABLE bridge_status (bridge_id text PRIMARY KEY, health text NOT NULL, checked_at timestamptz NOT NULL);
SELECT fence_protect('bridge_status');
CREATE EXTENSION IF NOT EXISTS pg_stat_statements`

func inWorld(ctx context.Context, short bool, measure func(context.Context, *world) ([]row, error)) (rows []row, err error) {
	cluster, err := devdb.Start(ctx, devdb.Config{Settings: durable})
	if err != nil {
		return nil, fmt.Errorf("start PostgreSQL: %w", err)
	}
	defer func() { err = errors.Join(err, cluster.Stop()) }()
	if err := migrate(ctx, cluster.URL("postgres")); err != nil {
		return nil, fmt.Errorf("migrate: %w", err)
	}
	w := &world{cluster: cluster, database: "postgres", short: short}
	if w.db, err = w.pool(ctx, 4); err != nil {
		return nil, err
	}
	defer w.db.Close()
	if _, err := w.db.Exec(ctx, protectedSQL); err != nil {
		return nil, fmt.Errorf("make the protected table: %w", err)
	}
	return measure(ctx, w)
}

func (w *world) url() string { return w.cluster.URL(w.database) }

func (w *world) pool(ctx context.Context, conns int32) (*pgxpool.Pool, error) {
	cfg, err := pgxpool.ParseConfig(w.url())
	if err != nil {
		return nil, fmt.Errorf("read the address of PostgreSQL: %w", err)
	}
	cfg.MaxConns, cfg.AfterConnect = conns, fence.Prepare // as a replica does for its jobs
	return pgxpool.NewWithConfig(ctx, cfg)
}

func migrate(ctx context.Context, url string) error {
	db, err := sql.Open("pgx", url)
	if err != nil {
		return err
	}
	defer func() { _ = db.Close() }()
	provider, err := goose.NewProvider(goose.DialectPostgres, db, migrations.FS,
		goose.WithTableName(migrations.VersionTable), goose.WithDisableGlobalRegistry(true))
	if err != nil {
		return err
	}
	_, err = provider.Up(ctx)
	return err
}

// some is n, or a tenth of it in a short run.
func (w *world) some(n int) int {
	if w.short {
		return max(1, n/10)
	}
	return n
}

// quantile is the value below which a share q of all lies; zero of none.
func quantile[T time.Duration | float64](all []T, q float64) T {
	if len(all) == 0 {
		return 0
	}
	s := slices.Clone(all)
	slices.Sort(s)
	return s[min(len(s)-1, int(q*float64(len(s))))]
}
