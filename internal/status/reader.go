package status

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"

	"rota/internal/registry"
)

// ErrNothingYet says that the database has not answered since this process started, so that there
// is nothing to show, not even something old. It wraps the reason.
var ErrNothingYet = errors.New("the database has not been read yet")

// A Reader reads snapshots and keeps the last one. It may be used by many goroutines.
type Reader struct {
	db   *pgxpool.Pool
	jobs []registry.Job

	fresh    time.Duration // how long a snapshot serves all who ask
	patience time.Duration // how long the database may take over one

	mu     sync.Mutex
	last   *Snapshot
	taken  time.Time     // when the reading of last began
	err    error         // how the newest attempt failed
	due    time.Time     // when the next may be made
	flight chan struct{} // closed at the end of the attempt under way; nil: none
}

// New returns a reader of db that knows the jobs compiled into this binary.
func New(db *pgxpool.Pool, jobs []registry.Job) *Reader {
	return &Reader{db: db, jobs: jobs, fresh: time.Second, patience: 800 * time.Millisecond}
}

// NewPatient returns a reader for a command, which gives the database longer than a page can: it
// connects first, and nobody else waits.
func NewPatient(db *pgxpool.Pool, jobs []registry.Job, patience time.Duration) *Reader {
	r := New(db, jobs)
	r.patience = patience
	return r
}

// Snapshot returns what the rows say, at most a second old, within 800 ms. However many ask, one
// reads. When the database does not answer, it returns the last snapshot, marked Stale; the error
// is ErrNothingYet if there has never been one, or that of a ctx that ends first.
func (r *Reader) Snapshot(ctx context.Context) (Snapshot, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if flight := r.flight; flight != nil {
		if err := r.await(ctx, flight); err != nil {
			return Snapshot{}, err
		}
	} else if !time.Now().Before(r.due) {
		r.refresh(ctx)
	}
	return r.answer()
}

// await waits for another's attempt. It is called, and returns, with mu held.
func (r *Reader) await(ctx context.Context, flight chan struct{}) error {
	r.mu.Unlock()
	defer r.mu.Lock()
	select {
	case <-flight:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// refresh makes one attempt. It is called, and returns, with mu held. The attempt serves all who
// wait, so it does not end with the one who happens to make it.
func (r *Reader) refresh(ctx context.Context) {
	began := time.Now()
	flight := make(chan struct{})
	r.flight = flight
	r.mu.Unlock()

	snap, err := (*Snapshot)(nil), errors.New("reading panicked")
	defer func() {
		r.mu.Lock()
		r.flight, r.err, r.due = nil, err, time.Now().Add(r.fresh)
		if err == nil {
			r.last, r.taken, r.due = snap, began, began.Add(r.fresh)
		}
		close(flight)
	}()
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), r.patience)
	defer cancel()
	snap, err = r.read(ctx)
}

func (r *Reader) answer() (Snapshot, error) {
	if r.last == nil {
		return Snapshot{}, fmt.Errorf("%w: %w", ErrNothingYet, r.err)
	}
	snap := *r.last
	snap.Age = time.Since(r.taken)
	snap.Stale, snap.Why = r.err != nil, r.err
	return snap, nil
}
