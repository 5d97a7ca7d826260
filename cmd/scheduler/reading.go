package main

import (
	"context"
	"strings"
	"time"
	"unicode"
	"unicode/utf8"

	"rota/internal/registry"
	"rota/internal/status"
)

// reading hands read what a replica's page reads with, over one connection.
func reading(ctx context.Context, cfg Config, env []string, jobs []registry.Job, read func(*status.Reader) error) error {
	if err := reachable(ctx, cfg, env); err != nil {
		return err
	}
	db, err := openPool(ctx, cfg.DatabaseURL, "rota cli", 1)
	if err != nil {
		return err
	}
	defer db.Close()
	return schemaError(read(status.NewPatient(db, jobs, 5*time.Second)))
}

// readStatus reads a snapshot, with what this binary knows of its jobs.
func readStatus(ctx context.Context, cfg Config, env []string) (snap status.Snapshot, err error) {
	jobs, err := registry.Jobs()
	if err != nil {
		return snap, coded(exitUsage, err)
	}
	err = reading(ctx, cfg, env, jobs, func(r *status.Reader) (err error) {
		snap, err = r.Snapshot(ctx)
		return err
	})
	return snap, err
}

// plain is a text from the database for one line of a terminal, at most n characters: what would
// move the cursor, or hide or turn text, is shown as a question mark.
func plain(s string, n int) string {
	s = strings.Map(func(r rune) rune {
		switch {
		case unicode.IsSpace(r):
			return ' '
		case !unicode.IsPrint(r):
			return '?'
		}
		return r
	}, s)
	if utf8.RuneCountInString(s) <= n {
		return s
	}
	return string([]rune(s)[:n-1]) + "…"
}

// dash is a dash for an empty text.
func dash(s string) string {
	if s == "" {
		return "-"
	}
	return s
}

// span is a duration for people.
func span(d time.Duration) string {
	switch {
	case d < 100*time.Microsecond:
		return registry.Span(d.Round(time.Microsecond))
	case d < 10*time.Millisecond:
		return registry.Span(d.Round(100 * time.Microsecond))
	case d < 10*time.Second:
		return registry.Span(d.Round(time.Millisecond))
	}
	return registry.Span(d.Round(time.Second))
}

const asOfLine = "as of %s, by the database's clock\n"
