package control

import (
	"context"
	"log/slog"
	"sync"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"
)

const (
	// Interval is how soon a replica sees what is asked of it even if no hint arrives.
	Interval = 500 * time.Millisecond
	// breath is the least time between two looks, however many hints arrive.
	breath = 10 * time.Millisecond
	// callTimeout bounds one statement. What executes later than that is harmless.
	callTimeout = 4 * time.Second
	// lastCall bounds what is written once the watch has been told to end.
	lastCall = time.Second
)

// A Watch is a replica's eye on what operators want: it reads what they ask for, and writes down
// what became of it. Make one with NewWatch; it runs once.
type Watch struct {
	db    *pgxpool.Pool
	owner string
	log   *slog.Logger
	wake  chan struct{} // has room for one: there may be something new, or something to write down
	every time.Duration // between looks; see Interval

	mu   sync.Mutex
	said map[int64]string // what became of requests, as long as the database does not have it
}

// NewWatch returns the watch of the replica that owner names. db must not be a pool that jobs can
// exhaust.
func NewWatch(db *pgxpool.Pool, owner string, log *slog.Logger) *Watch {
	if log == nil {
		log = slog.New(slog.DiscardHandler)
	}
	return &Watch{db: db, owner: owner, log: log, wake: make(chan struct{}, 1), every: Interval, said: map[int64]string{}}
}

// Wake is a hint that there is something new to see. It never blocks.
func (w *Watch) Wake() {
	select {
	case w.wake <- struct{}{}:
	default:
	}
}

// Done settles a request: what became of it is written down, with a line of the audit. What was
// said first is what counts, here and in the database. It never blocks: Run does the writing.
func (w *Watch) Done(id int64, result string) {
	w.mu.Lock()
	if _, known := w.said[id]; !known {
		w.said[id] = plain(result)
	}
	w.mu.Unlock()
	w.Wake()
}

// Run looks at once, at every hint, and every Interval, until ctx ends. It calls steer after each
// look that came through, never twice at a time. What Done is told is written before each look, and
// again until the database has it; at the end, once more.
func (w *Watch) Run(ctx context.Context, steer func(State)) {
	timer := time.NewTimer(w.every)
	defer timer.Stop()
	defer w.finish(ctx)
	failing := false
	for ctx.Err() == nil {
		err := w.settle(ctx)
		state, lookErr := w.look(ctx)
		if lookErr == nil {
			steer(w.without(state))
		} else {
			err = lookErr
		}
		if ctx.Err() == nil {
			failing = w.told(failing, err)
		}
		pause(ctx, breath)
		timer.Reset(w.every)
		select {
		case <-timer.C:
		case <-w.wake:
		case <-ctx.Done():
		}
	}
}

// finish writes what is left to write, for a moment.
func (w *Watch) finish(ctx context.Context) {
	last, cancel := context.WithTimeout(context.WithoutCancel(ctx), lastCall)
	defer cancel()
	if err := w.settle(last); err != nil {
		w.log.Warn("what became of requests was not written down", "owner", w.owner, "error", err)
	}
}

// without leaves out the requests that are settled but for the writing.
func (w *Watch) without(s State) State {
	w.mu.Lock()
	defer w.mu.Unlock()
	open := s.Requests[:0]
	for _, r := range s.Requests {
		if _, settled := w.said[r.ID]; !settled {
			open = append(open, r)
		}
	}
	s.Requests = open
	return s
}

// told logs the first failure of a row and the first success after it, and returns whether it
// fails now: a database that is away for an hour makes two lines.
func (w *Watch) told(failing bool, err error) bool {
	switch {
	case err != nil && !failing:
		w.log.Warn("what operators ask for cannot be seen; trying again", "owner", w.owner, "error", err)
	case err == nil && failing:
		w.log.Info("what operators ask for is seen again", "owner", w.owner)
	}
	return err != nil
}

func pause(ctx context.Context, d time.Duration) {
	select {
	case <-time.After(d):
	case <-ctx.Done():
	}
}
