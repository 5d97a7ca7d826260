package pgtest

import (
	"context"
	"crypto/sha256"
	"database/sql"
	"encoding/hex"
	"fmt"
	"io/fs"
	"sync"
	"testing"

	"github.com/jackc/pgx/v5"
	_ "github.com/jackc/pgx/v5/stdlib" // goose wants database/sql
	"github.com/pressly/goose/v3"

	jobmigrations "rota/jobs/migrations"
	"rota/migrations"
)

// templateLock is the advisory lock under which a template is made, so that of
// the packages that start at once one migrates and the others wait for it.
const templateLock = 7_682_001

var template struct {
	sync.Mutex
	name string // set once it is known to be there
}

// ensureTemplate returns the name of the migrated template on the server.
func ensureTemplate(ctx context.Context, server string) (string, error) {
	template.Lock()
	defer template.Unlock()
	if template.name != "" {
		return template.name, nil
	}
	name, err := templateName()
	if err != nil {
		return "", err
	}
	if err := makeTemplate(ctx, server, name); err != nil {
		return "", err
	}
	template.name = name
	return name, nil
}

// templateName is one for each content of all migrations.
func templateName() (string, error) {
	sum := sha256.New()
	for _, fsys := range []fs.FS{migrations.FS, jobmigrations.FS} {
		names, err := fs.Glob(fsys, "*.sql")
		if err != nil {
			return "", fmt.Errorf("list the migrations: %w", err)
		}
		for _, name := range names {
			body, err := fs.ReadFile(fsys, name)
			if err != nil {
				return "", fmt.Errorf("read a migration: %w", err)
			}
			fmt.Fprintf(sum, "%s %d\n%s", name, len(body), body)
		}
	}
	return "rota_template_" + hex.EncodeToString(sum.Sum(nil)[:8]), nil
}

const (
	templateExistsSQL = `SELECT EXISTS (SELECT FROM pg_database WHERE datname = $1 AND datistemplate)`
	lockTemplateSQL   = `SELECT pg_advisory_lock($1)`
)

// makeTemplate migrates a new database and marks it as a template as the last
// step: one without the mark was left half made by a process that died.
func makeTemplate(ctx context.Context, server, name string) error {
	conn, err := pgx.Connect(ctx, server)
	if err != nil {
		return fmt.Errorf("connect: %w", err)
	}
	defer func() { _ = conn.Close(ctx) }() // which frees the lock
	if _, err := conn.Exec(ctx, lockTemplateSQL, templateLock); err != nil {
		return fmt.Errorf("lock the making of it: %w", err)
	}
	var exists bool
	if err := conn.QueryRow(ctx, templateExistsSQL, name).Scan(&exists); err != nil {
		return fmt.Errorf("look for it: %w", err)
	}
	if exists {
		return nil
	}
	for _, statement := range []string{
		"DROP DATABASE IF EXISTS " + ident(name) + " WITH (FORCE)",
		"CREATE DATABASE " + ident(name) + " TEMPLATE template0",
	} {
		if _, err := conn.Exec(ctx, statement); err != nil {
			return fmt.Errorf("make an empty database: %w", err)
		}
	}
	if err := migrate(ctx, withDatabase(server, name)); err != nil {
		return err
	}
	// Nobody may connect: a template with a session cannot be cloned.
	if _, err := conn.Exec(ctx, "ALTER DATABASE "+ident(name)+" WITH IS_TEMPLATE true ALLOW_CONNECTIONS false"); err != nil {
		return fmt.Errorf("mark it as a template: %w", err)
	}
	return nil
}

// Migrate brings the database at url to the newest schema, the jobs' own tables
// included, for tests that have a Cluster of their own.
func Migrate(t testing.TB, url string) {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	if err := migrate(ctx, url); err != nil {
		t.Fatalf("migrate: %v", err)
	}
}

func migrate(ctx context.Context, url string) error {
	db, err := sql.Open("pgx", url)
	if err != nil {
		return fmt.Errorf("open the database: %w", err)
	}
	defer func() { _ = db.Close() }()
	if err := up(ctx, db, migrations.FS, migrations.VersionTable); err != nil {
		return fmt.Errorf("migrate rota's own schema: %w", err)
	}
	if err := up(ctx, db, jobmigrations.FS, jobmigrations.VersionTable); err != nil {
		return fmt.Errorf("migrate the jobs' tables: %w", err)
	}
	return nil
}

func up(ctx context.Context, db *sql.DB, fsys fs.FS, versionTable string) error {
	provider, err := goose.NewProvider(goose.DialectPostgres, db, fsys,
		goose.WithTableName(versionTable), goose.WithDisableGlobalRegistry(true))
	if err != nil {
		return err
	}
	_, err = provider.Up(ctx)
	return err
}
