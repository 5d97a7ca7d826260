package status

import (
	"context"
	"errors"
	"fmt"
	"runtime/debug"
	"sync"
	"time"
)

// A kept value is read by one of those who ask for it, serves all of them for a while, and is
// remembered when it cannot be read anew. The zero value is ready.
type kept[T any] struct {
	mu     sync.Mutex
	last   *T
	taken  time.Time     // when the reading of last began
	passed time.Time     // what was read before this is out of date, as its reader knows
	took   time.Duration // how long it took
	err    error         // how the newest attempt failed
	due    time.Time     // when the next may be made
	flight chan struct{} // closed at the end of the attempt under way; nil: none
}

// A Reading is a value that was read, and how old that is.
type Reading[T any] struct {
	Value T
	Age   time.Duration
	Why   error // what the database has done since instead of answering; nil: it has answered
}

// get returns the value, read at most fresh ago, or a little more where others ask as often (see
// grace): what is as old as that is given out while it is read anew, so that nobody waits for what is
// asked for all the time. Nobody waits longer than patience either; the attempt goes on, and serves whoever asks
// next, for what takes longer than that to read would else never be there. The error is that of the
// only attempt there was, errSlow if that is still under way, or that of a ctx that ends first.
func (k *kept[T]) get(ctx context.Context, fresh, patience time.Duration, read func(context.Context) (T, error)) (Reading[T], error) {
	k.mu.Lock()
	defer k.mu.Unlock()
	now := time.Now()
	if now.Before(k.due) {
		return k.answer()
	}
	for {
		if k.flight == nil {
			go k.begin(fresh, read)(context.WithoutCancel(ctx)) // it serves all who wait, so it does not end with the one who asked
		}
		if k.last != nil && k.err == nil && !k.outdated() && now.Before(k.taken.Add(fresh+k.grace(fresh))) {
			return k.answer()
		}
		err := k.await(ctx, k.flight, patience-time.Since(now))
		if errors.Is(err, errSlow) && k.last != nil {
			return Reading[T]{Value: *k.last, Age: time.Since(k.taken), Why: err}, nil
		}
		if err != nil {
			return Reading[T]{}, err
		}
		if k.err != nil || !k.outdated() { // else it was under way already
			return k.answer()
		}
	}
}

// outdate has whoever asks from now on get what is read from now on.
func (k *kept[T]) outdate() {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.passed, k.due = time.Now(), time.Time{}
}

func (k *kept[T]) outdated() bool { return k.taken.Before(k.passed) }

// grace is how much longer than fresh a value is given out while it is read anew: as long as that
// takes, by the last time and half as much again, and not less than half of fresh.
func (k *kept[T]) grace(fresh time.Duration) time.Duration {
	return max(fresh, 3*k.took) / 2
}

// peek is what is remembered, without asking anybody.
func (k *kept[T]) peek() (Reading[T], error) {
	k.mu.Lock()
	defer k.mu.Unlock()
	return k.answer()
}

// errSlow says that an attempt is still under way.
var errSlow = fmt.Errorf("%w as soon as one waits for it", ErrUnread)

// await waits for an attempt, and no longer than patience. It is called, and returns, with mu held.
func (k *kept[T]) await(ctx context.Context, flight chan struct{}, patience time.Duration) error {
	k.mu.Unlock()
	defer k.mu.Lock()
	timer := time.NewTimer(patience)
	defer timer.Stop()
	select {
	case <-flight:
		return nil
	case <-timer.C:
		return errSlow
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// begin is called with mu held; the attempt that it returns must be made, without.
func (k *kept[T]) begin(fresh time.Duration, read func(context.Context) (T, error)) (attempt func(context.Context)) {
	began, flight := time.Now(), make(chan struct{})
	k.flight = flight
	return func(ctx context.Context) {
		var value T
		var err error
		defer func() {
			if p := recover(); p != nil { // or the page would end the replica that serves it
				err = fmt.Errorf("reading panicked: %v\n%s", p, debug.Stack())
			}
			k.mu.Lock()
			defer k.mu.Unlock()
			k.flight, k.err, k.due = nil, err, time.Now().Add(fresh)
			if err == nil {
				k.last, k.taken, k.took, k.due = &value, began, time.Since(began), began.Add(fresh)
				if k.outdated() {
					k.due = time.Time{}
				}
			}
			close(flight)
		}()
		value, err = read(ctx)
	}
}

var errUnasked = errors.New("it has not been read yet")

func (k *kept[T]) answer() (Reading[T], error) {
	if k.last == nil {
		if k.err == nil {
			return Reading[T]{}, errUnasked
		}
		return Reading[T]{}, k.err
	}
	return Reading[T]{Value: *k.last, Age: time.Since(k.taken), Why: k.err}, nil
}

// A memo keeps the answers to the questions that were asked lately.
type memo[Q comparable, T any] struct {
	mu    sync.Mutex
	all   map[Q]*kept[T]
	asked map[Q]time.Time
}

// mostKept bounds a memo: beyond it, what was asked for the longest ago is forgotten.
const mostKept = 128

func (m *memo[Q, T]) of(q Q) *kept[T] {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.all == nil {
		m.all, m.asked = map[Q]*kept[T]{}, map[Q]time.Time{}
	}
	k := m.all[q]
	if k == nil {
		if len(m.all) >= mostKept {
			m.forget()
		}
		k = new(kept[T])
		m.all[q] = k
	}
	m.asked[q] = time.Now()
	return k
}

func (m *memo[Q, T]) outdate() {
	m.mu.Lock()
	defer m.mu.Unlock()
	for _, k := range m.all {
		k.outdate()
	}
}

func (m *memo[Q, T]) forget() {
	var oldest Q
	var at time.Time
	for q, asked := range m.asked {
		if at.IsZero() || asked.Before(at) {
			oldest, at = q, asked
		}
	}
	delete(m.all, oldest)
	delete(m.asked, oldest)
}
