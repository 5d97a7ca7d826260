package main

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"text/tabwriter"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/stdlib"
	"github.com/pressly/goose/v3"
	"github.com/pressly/goose/v3/lock"
	"github.com/spf13/cobra"

	jobmigrations "rota/jobs/migrations"
	"rota/migrations"
)

// What a replica does about the schema at its start.
const (
	migrateAuto  = "auto"
	migrateCheck = "check"
	migrateOff   = "off"
)

// A schema is a series of migrations with a version table of its own.
type schema struct {
	name  string
	table string // where goose notes the versions
	files fs.FS
}

// schemas in the order in which they are applied.
var schemas = []schema{
	{"rota", migrations.VersionTable, migrations.FS},
	{"jobs", jobmigrations.VersionTable, jobmigrations.FS},
}

func migrateCommand(env []string) *cobra.Command {
	cfg := Defaults()
	cmd := group("migrate", "Bring the database's schema up to date, or say what it is", &cobra.Command{
		Use: "up", Short: "Apply what is missing; any number may run at once",
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if err := reachable(cmd.Context(), cfg, env); err != nil {
				return err
			}
			return prepareSchema(cmd.Context(), cfg.DatabaseURL, migrateAuto, cfg.logger(cmd.ErrOrStderr()))
		},
	}, migrateStatusCommand(env, &cfg), migrateSQLCommand(env, &cfg))
	databaseFlag(cmd.PersistentFlags(), &cfg)
	return cmd
}

func migrateStatusCommand(env []string, cfg *Config) *cobra.Command {
	var asJSON bool
	cmd := &cobra.Command{
		Use: "status", Short: "Say which version the database has, and which this binary knows",
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if err := reachable(cmd.Context(), *cfg, env); err != nil {
				return err
			}
			versions, err := readVersions(cmd.Context(), cfg.DatabaseURL)
			if err != nil {
				return err
			}
			if asJSON {
				return printJSON(cmd.OutOrStdout(), map[string]any{"schemas": versions})
			}
			w := tabwriter.NewWriter(cmd.OutOrStdout(), 0, 0, 2, ' ', 0)
			fmt.Fprintln(w, "SCHEMA\tDATABASE\tBINARY\tSTATE")
			for _, v := range versions {
				fmt.Fprintf(w, "%s\t%d\t%d\t%s\n", v.Schema, v.Database, v.Binary, v.State())
			}
			return w.Flush()
		},
	}
	jsonFlag(cmd, &asJSON)
	return cmd
}

// A schemaVersion is how far a database has come, and how far this binary could bring it.
type schemaVersion struct {
	Schema   string `json:"schema"`
	Database int64  `json:"database"`
	Binary   int64  `json:"binary"`
}

// State is "current", "older" or "newer", as seen from this binary.
func (v schemaVersion) State() string {
	switch {
	case v.Database < v.Binary:
		return "older"
	case v.Database > v.Binary:
		return "newer"
	}
	return "current"
}

// prepareSchema does about the schema what the mode says.
func prepareSchema(ctx context.Context, address, mode string, log *slog.Logger) error {
	if mode == migrateOff {
		return nil
	}
	versions, err := readVersions(ctx, address)
	if err != nil {
		return err
	}
	if err := refuseNewer(versions); err != nil {
		return err
	}
	for _, v := range versions {
		switch {
		case v.State() != "older":
		case mode == migrateCheck:
			return coded(exitSchema, fmt.Errorf("the database's schema %s is at version %d and this binary needs %d: run `scheduler migrate up`",
				v.Schema, v.Database, v.Binary))
		default:
			return migrateUp(ctx, address, log)
		}
	}
	return nil
}

func refuseNewer(versions []schemaVersion) error {
	for _, v := range versions {
		if v.State() == "newer" {
			return coded(exitSchema, fmt.Errorf("the database's schema %s is at version %d and this binary knows only %d: run a newer binary",
				v.Schema, v.Database, v.Binary))
		}
	}
	return nil
}

func readVersions(ctx context.Context, address string) ([]schemaVersion, error) {
	cfg, err := poolConfig(address)
	if err != nil {
		return nil, coded(exitUsage, err)
	}
	conn, err := pgx.ConnectConfig(ctx, cfg.ConnConfig)
	if err != nil {
		return nil, fmt.Errorf("read the schema's version: %w", err)
	}
	defer closeConn(conn)
	return versionsOf(ctx, conn)
}

// querier is what a connection and a pool have in common here.
type querier interface {
	QueryRow(ctx context.Context, sql string, args ...any) pgx.Row
}

func versionsOf(ctx context.Context, db querier) ([]schemaVersion, error) {
	var versions []schemaVersion
	for _, s := range schemas {
		known, err := s.known()
		if err != nil {
			return nil, err
		}
		has, err := s.applied(ctx, db)
		if err != nil {
			return nil, fmt.Errorf("read the version of the schema %s: %w", s.name, err)
		}
		versions = append(versions, schemaVersion{s.name, has, known})
	}
	return versions, nil
}

// known is the newest version that this binary has a migration for.
func (s schema) known() (newest int64, err error) {
	names, err := fs.Glob(s.files, "*.sql")
	if err != nil {
		return 0, fmt.Errorf("list the migrations of %s: %w", s.name, err)
	}
	for _, name := range names {
		version, err := goose.NumericComponent(name)
		if err != nil {
			return 0, fmt.Errorf("migration %s of %s: %w", name, s.name, err)
		}
		newest = max(newest, version)
	}
	return newest, nil
}

// applied is the newest version that the database has; 0 where it has none.
func (s schema) applied(ctx context.Context, db querier) (newest int64, err error) {
	err = db.QueryRow(ctx, "SELECT coalesce(max(version_id), 0) FROM "+s.table+" WHERE is_applied").Scan(&newest)
	var pg *pgconn.PgError
	if errors.As(err, &pg) && pg.Code == "42P01" { // undefined_table
		return 0, nil
	}
	return newest, err
}

// migrateUp applies what is missing, alone among all who try at the same moment.
func migrateUp(ctx context.Context, address string, log *slog.Logger) error {
	cfg, err := poolConfig(address)
	if err != nil {
		return coded(exitUsage, err)
	}
	// Nothing outlives its statement, as a pooler in transaction mode wants it.
	cfg.ConnConfig.DefaultQueryExecMode = pgx.QueryExecModeExec
	db := stdlib.OpenDB(*cfg.ConnConfig)
	defer func() { _ = db.Close() }()
	for _, s := range schemas {
		if err := s.up(ctx, db, log); err != nil {
			return err
		}
	}
	return nil
}

func (s schema) up(ctx context.Context, db *sql.DB, log *slog.Logger) error {
	locker, err := migrationLock()
	if err != nil {
		return err
	}
	provider, err := goose.NewProvider(goose.DialectPostgres, db, s.files,
		goose.WithTableName(s.table), goose.WithDisableGlobalRegistry(true), goose.WithLocker(locker))
	if err != nil {
		return fmt.Errorf("prepare the migrations of %s: %w", s.name, err)
	}
	results, err := provider.Up(ctx)
	if err != nil {
		var pg *pgconn.PgError
		if errors.As(err, &pg) && pg.Code == "42501" { // insufficient_privilege
			return fmt.Errorf("migrate the schema %s: the database user lacks a right: %s; migrate as the schema's owner, and serve with --migrate=check", s.name, pg.Message)
		}
		return fmt.Errorf("migrate the schema %s: %w", s.name, err)
	}
	for _, r := range results {
		log.Info("migration applied", "schema", s.name, "version", r.Source.Version, "took", r.Duration.Round(time.Millisecond).String())
	}
	return nil
}

// migrationLock is a row in a table, so that it works through a pooler too. Its holder renews it,
// and one that died is out of the way after half a minute.
func migrationLock() (lock.Locker, error) {
	locker, err := lock.NewPostgresTableLocker(
		lock.WithTableName("rota_migration_lock"),
		lock.WithTableLockTimeout(200*time.Millisecond, 5*60*5), // five minutes
		lock.WithTableLogger(slog.New(slog.DiscardHandler)),     // what matters comes back as an error
	)
	if err != nil {
		return nil, fmt.Errorf("prepare the migrations' lock: %w", err)
	}
	return locker, nil
}
