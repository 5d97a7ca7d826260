// Package registry holds the jobs compiled into this binary.
package registry

import (
	"context"
	"log/slog"
	"time"

	"github.com/jackc/pgx/v5"

	"rota/internal/fence"
)

// A Job is a named unit of work.
type Job struct {
	Name     string
	About    string
	Runbook  string
	Schedule Schedule
	Run      func(ctx context.Context, run *Run) error
	Protects []fence.Table
	Args     any
	Timeout  time.Duration

	Source string // file:line of its registration
}

// A Reader reads the database.
type Reader interface {
	Query(ctx context.Context, sql string, args ...any) (pgx.Rows, error)
	QueryRow(ctx context.Context, sql string, args ...any) pgx.Row
}

// A Run is one attempt at a tick.
type Run struct {
	Job      string
	Tick     time.Time
	Attempt  int
	Args     any
	DB       Reader
	Fence    *fence.Writer
	Log      *slog.Logger
	Draining <-chan struct{}
}

// Register stores a job, to be checked by Jobs. It never panics.
func Register(j Job) { panic("written by the registry's own task") }

// Jobs returns every registered job, sorted by name, or every reason why they cannot be served.
func Jobs() ([]Job, error) { panic("written by the registry's own task") }
