package fence

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/jackc/pgx/v5/pgconn"
)

// Callers that upsert few rows of one table at the same time share statements, as transactions share
// a write of the log: while some are under way, those who come wait together, and go together in the next.
// A lone caller never waits.
//
// It is for the sake of the guard. Each statement that is under way at the same time as others of its
// job makes the lock of the lease's epoch one of several transactions, a multixact, and on 32 connections
// these and the guard's lookups made a fenced upsert of one row half as slow again as a bare one.
// Together they take less than bare ones on connections of their own.
//
// All rows of a statement are written or none, so that it may fail because of one caller's. Then nothing
// was written, and each caller's rows go in a statement of their own.
const (
	atOnce   = 2                     // statements that go out before callers wait for company
	fewRows  = 16                    // a caller with more gains nothing by it
	mostRows = 1000                  // of one statement
	longest  = 20 * time.Millisecond // that anybody waits: a statement under way may have met a held row
)

// turns are what is under way and what waits, of one statement.
type turns struct {
	mu      sync.Mutex
	under   int // shared or not
	waiting []*shared
	longest time.Duration // that anything waits
	begin   func(*shared) // sends one that has waited so long
}

// A shared is the rows of callers that go in one statement.
type shared struct {
	// ctx ends when none of the callers waits any more.
	ctx    context.Context
	cancel context.CancelFunc
	timer  *time.Timer
	begun  bool
	calls  [][][]cell // the rows of each caller that waits; what is under way has them all
	rows   int
	left   int // callers that wait

	done chan struct{} // closed once the outcome is set
	outcome
}

// An outcome is what became of rows that were to be sent.
type outcome struct {
	err   error
	sent  bool // the error is that of the statement itself
	apart bool // nothing was written: each caller should try by himself
}

// enter says that it is the caller's turn to send, by nil, or what has his rows now.
func (t *turns) enter(ctx context.Context, rows [][]cell) *shared {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.under < atOnce && len(t.waiting) == 0 {
		t.under++
		return nil
	}
	var b *shared
	if n := len(t.waiting); n > 0 && t.waiting[n-1].rows+len(rows) <= mostRows {
		b = t.waiting[n-1]
	} else {
		b = &shared{done: make(chan struct{})}
		b.ctx, b.cancel = context.WithCancel(context.WithoutCancel(ctx))
		b.timer = time.AfterFunc(t.longest, func() {
			if t.jump(b) {
				t.begin(b)
			}
		})
		t.waiting = append(t.waiting, b)
	}
	b.calls, b.rows, b.left = append(b.calls, rows), b.rows+len(rows), b.left+1
	return b
}

// jump has what still waits begin out of turn.
func (t *turns) jump(b *shared) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	i := slices.Index(t.waiting, b)
	if i < 0 {
		return false
	}
	t.waiting = slices.Delete(t.waiting, i, i+1)
	t.under++
	b.begun = true
	return true
}

// leave ends a turn, and returns whose turn it is next, if anybody's.
func (t *turns) leave() *shared {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.under--
	if t.under >= atOnce || len(t.waiting) == 0 {
		return nil
	}
	b := t.waiting[0]
	t.waiting = slices.Delete(t.waiting, 0, 1)
	t.under++
	b.timer.Stop()
	b.begun = true
	return b
}

// giveUp is for a caller that waits no longer: it says whether his rows were under way by then. If
// nobody else waits for them, they are cut short, and he sees how that ends.
func (t *turns) giveUp(b *shared, rows [][]cell) (under bool) {
	t.mu.Lock()
	b.left--
	last := b.left == 0
	if under = b.begun; !under {
		b.calls = slices.DeleteFunc(b.calls, func(c [][]cell) bool { return &c[0] == &rows[0] })
		b.rows -= len(rows)
		if last {
			b.timer.Stop()
			t.waiting = slices.DeleteFunc(t.waiting, func(other *shared) bool { return other == b })
		}
	}
	t.mu.Unlock()
	if last {
		b.cancel()
		if under {
			<-b.done
		}
	}
	return under
}

// share upserts few rows by a statement that has been prepared, with those of others if it comes to that.
func (w *Writer) share(ctx context.Context, s *statement, rows [][]cell) outcome {
	b := s.turns.enter(ctx, rows)
	if b == nil {
		err, sent := w.exec(ctx, s, rows)
		w.next(s)
		return outcome{err: err, sent: sent, apart: outdated(err)}
	}
	select {
	case <-b.done:
		return b.outcome
	case <-ctx.Done():
	}
	if s.turns.giveUp(b, rows) {
		return outcome{err: fmt.Errorf("the answer was not waited for: %w", ctx.Err()), sent: true}
	}
	return outcome{err: fmt.Errorf("nothing was written: %w", ctx.Err())}
}

// next sends what waits for its turn, if anything. Its callers wait for it to end.
func (w *Writer) next(s *statement) {
	if b := s.turns.leave(); b != nil {
		go w.sendShared(s, b)
	}
}

func (w *Writer) sendShared(s *statement, b *shared) {
	defer b.cancel()
	rows := slices.Concat(b.calls...)
	if slices.SortFunc(rows, s.compareKeys); s.repeated(rows) >= 0 {
		b.apart = true
	} else {
		b.err, b.sent = w.exec(b.ctx, s, rows)
		b.apart = undone(b.err)
	}
	close(b.done)
	w.next(s)
}

// exec sends the rows on a connection of the pool, until the term ends.
func (w *Writer) exec(caller context.Context, s *statement, rows [][]cell) (err error, sent bool) {
	ctx := w.bound(caller)
	defer w.unbound(ctx)
	conn, err := w.db.Acquire(ctx)
	if err != nil {
		return fmt.Errorf("nothing was written: %w", err), false
	}
	defer conn.Release()
	return w.send(ctx, conn.Conn(), s, rows)
}

// undone says whether the server has answered that the statement failed, for another reason than that
// the term has passed.
func undone(err error) bool {
	var pg *pgconn.PgError
	return errors.As(err, &pg) && pg.Code != Refusal && !strings.HasPrefix(pg.Code, "08")
}
