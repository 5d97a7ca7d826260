package control

import (
	"context"
	"log/slog"

	"github.com/jackc/pgx/v5/pgxpool"
)

// A Watch is a replica's eye on what operators want.
type Watch struct {
	db    *pgxpool.Pool
	owner string
	log   *slog.Logger
	wake  chan struct{}
}

// NewWatch returns the watch of a replica, which reads and writes over db.
func NewWatch(db *pgxpool.Pool, owner string, log *slog.Logger) *Watch {
	return &Watch{db: db, owner: owner, log: log, wake: make(chan struct{}, 1)}
}

// Wake is a hint that there is something new to see. It never blocks.
func (w *Watch) Wake() {
	select {
	case w.wake <- struct{}{}:
	default:
	}
}

// Run looks until ctx ends, and calls steer after each look that came through, never twice at once.
func (w *Watch) Run(ctx context.Context, steer func(State)) {
	_ = steer
	<-ctx.Done()
}

// Done settles a request.
func (w *Watch) Done(id int64, result string) { _, _ = id, result }
