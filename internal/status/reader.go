package status

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"

	"rota/internal/registry"
)

// ErrNothingYet says that the database has not answered since this process started, so that there
// is nothing to show, not even something old. It wraps the reason.
var ErrNothingYet = errors.New("the database has not been read yet")

// A Reader reads snapshots and parts of the history, and keeps what it read last. It may be used by
// many goroutines.
type Reader struct {
	db   *pgxpool.Pool
	jobs []registry.Job

	fresh    time.Duration // how long what was read serves all who ask
	patience time.Duration // how long whoever asks waits
	limit    time.Duration // how long the database may take over one question

	snap     kept[*Snapshot]
	outcomes memo[string, Past]
	jobsKept memo[JobOf, JobHistory]
	records  memo[int64, *RunRecord]
	events   memo[EventsOf, EventsPage]
	server   kept[Server]
}

// New returns a reader of db that knows the jobs compiled into this binary.
func New(db *pgxpool.Pool, jobs []registry.Job) *Reader {
	return &Reader{db: db, jobs: jobs, fresh: time.Second, patience: 800 * time.Millisecond, limit: 5 * time.Second}
}

// NewPatient returns a reader for a command, which gives the database longer than a page can: it
// connects first, and nobody else waits.
func NewPatient(db *pgxpool.Pool, jobs []registry.Job, patience time.Duration) *Reader {
	r := New(db, jobs)
	r.patience, r.limit = patience, patience
	return r
}

// Outdate has whoever asks from now on get what is read from now on: who has just changed something
// would else be shown, and offered, what was there before.
func (r *Reader) Outdate() {
	r.snap.outdate()
	r.outcomes.outdate()
	r.jobsKept.outdate()
	r.records.outdate()
	r.events.outdate()
}

// Remembered returns the last snapshot without asking the database, as stale: it is for one who has
// found out that it does not answer. The error is ErrNothingYet.
func (r *Reader) Remembered() (Snapshot, error) {
	got, err := r.snap.peek()
	if err != nil {
		return Snapshot{}, fmt.Errorf("%w: %w", ErrNothingYet, err)
	}
	snap := *got.Value
	snap.Age, snap.Stale, snap.Why = got.Age, true, cmp.Or(got.Why, errSlow)
	return snap, nil
}

// Snapshot returns what the rows say, at most a second old, or by what a reading takes older where
// many ask, within 800 ms. However many ask, one reads, for up to 5 s. When the database does not answer, it returns the last snapshot,
// marked Stale; the error is ErrNothingYet if there has never been one, or that of a ctx that ends first.
func (r *Reader) Snapshot(ctx context.Context) (Snapshot, error) {
	got, err := r.snap.get(ctx, r.fresh, r.patience, r.read)
	if err != nil {
		if ctx.Err() != nil {
			return Snapshot{}, context.Cause(ctx)
		}
		return Snapshot{}, fmt.Errorf("%w: %w", ErrNothingYet, err)
	}
	snap := *got.Value
	snap.Age, snap.Stale, snap.Why = got.Age, got.Why != nil, got.Why
	return snap, nil
}
