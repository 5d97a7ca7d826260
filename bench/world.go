package main

import (
	"bytes"
	"context"
	"database/sql"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"
	_ "github.com/jackc/pgx/v5/stdlib"
	"github.com/pressly/goose/v3"

	"rota/internal/devdb"
	"rota/migrations"
)

// A world is a PostgreSQL of a measurement's own, migrated, and as durable as in production.
type world struct {
	cluster *devdb.Cluster
	db      *pgxpool.Pool
	short   bool
}

func inWorld(ctx context.Context, short bool, f func(context.Context, *world) ([]row, error)) (rows []row, err error) {
	cluster, err := devdb.Start(ctx, devdb.Config{Log: io.Discard, Settings: map[string]string{"max_connections": "200"}})
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, cluster.Stop()) }()
	if err := migrate(ctx, cluster.URL("postgres")); err != nil {
		return nil, fmt.Errorf("migrate: %w", err)
	}
	cfg, err := pgxpool.ParseConfig(cluster.URL("postgres"))
	if err != nil {
		return nil, err
	}
	cfg.MaxConns = 40
	db, err := pgxpool.NewWithConfig(ctx, cfg)
	if err != nil {
		return nil, err
	}
	defer db.Close()
	return f(ctx, &world{cluster: cluster, db: db, short: short})
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

// cpu is what all processes of the server that live now have used so far.
func (w *world) cpu() (time.Duration, error) {
	stats, err := filepath.Glob("/proc/[0-9]*/stat")
	if err != nil {
		return 0, err
	}
	const perSecond = 100 // USER_HZ of every Linux that Go runs on
	var ticks int64
	for _, stat := range stats {
		b, err := os.ReadFile(stat)
		if err != nil {
			continue // it has ended
		}
		// The command's name, in brackets, may itself have blanks and brackets.
		fields := bytes.Fields(b[bytes.LastIndexByte(b, ')')+1:])
		if parent, _ := strconv.Atoi(string(fields[1])); parent != w.cluster.PID() {
			continue
		}
		user, _ := strconv.ParseInt(string(fields[11]), 10, 64)
		system, _ := strconv.ParseInt(string(fields[12]), 10, 64)
		ticks += user + system
	}
	return time.Duration(ticks) * time.Second / perSecond, nil
}

// quantile is the value below which a share q of the durations lies.
func quantile(d []time.Duration, q float64) time.Duration {
	if len(d) == 0 {
		return 0
	}
	s := slices.Clone(d)
	slices.Sort(s)
	return s[min(len(s)-1, int(q*float64(len(s))))]
}

func ms(d time.Duration) string { return fmt.Sprintf("%.2f ms", float64(d.Microseconds())/1000) }
