package scheduler

import (
	"container/heap"
	"context"
	"fmt"
	"log/slog"
	"sync"
	"time"

	"rota/internal/fence"
	"rota/internal/registry"
)

// A ticker claims the ticks of all that this replica leads: one heap, and one statement for all
// that are due at once.
type ticker struct {
	store   store
	now     func() time.Time // by the database's clock
	rec     *recorder
	metrics *metrics
	log     *slog.Logger

	mu   sync.Mutex
	heap ticks
	wake chan struct{} // has room for one: there is a new earliest tick
}

func newTicker(s store, now func() time.Time, rec *recorder, m *metrics, log *slog.Logger) *ticker {
	return &ticker{store: s, now: now, rec: rec, metrics: m, log: log, wake: make(chan struct{}, 1)}
}

// An entry is the next tick of one term. Its fields are the ticker's, under its lock, save for
// fired and what never changes.
type entry struct {
	token    fence.Token
	job      string
	schedule registry.Schedule
	fired    chan run        // gets each tick that is to be run; never blocks, for a job never overlaps itself
	end      func(why error) // ends the term

	tick   time.Time
	moment bool      // tick is the moment of a start
	due    time.Time // when to claim it: at the tick, or later where that did not work out
	index  int       // on the heap, or off it
	skip   bool      // it is to be written off
	busy   bool      // a run is under way
	flying bool      // a claim is under way
	unsure bool      // a claim's answer was lost: the same is claimed again until it is known
	gone   bool      // the term is over: a claim that comes through yet is lost
	landed chan struct{}
}

// A run is a tick that was claimed to be run.
type run struct {
	id   int64
	tick time.Time
}

// off is the index of an entry that is not on the heap.
const off = -1

func newEntry(token fence.Token, j registry.Job, end func(error)) *entry {
	return &entry{token: token, job: j.Name, schedule: j.Schedule, end: end, fired: make(chan run, 1), index: off}
}

// plan has a tick claimed when it is due, and after it those that the schedule has.
func (k *ticker) plan(e *entry, tick time.Time) {
	k.mu.Lock()
	defer k.mu.Unlock()
	e.tick, e.due = tick, tick
	k.push(e)
}

// start has this moment claimed, and nothing after it.
func (k *ticker) start(e *entry) {
	k.mu.Lock()
	defer k.mu.Unlock()
	e.moment = true
	e.now(k.now())
	k.push(e)
}

// done says that the run under way has ended.
func (k *ticker) done(e *entry) {
	k.mu.Lock()
	defer k.mu.Unlock()
	e.busy = false
}

// withdraw has no further tick claimed. A claim that is under way may come through yet: the channel
// is closed once that is known, and then fired may hold one.
func (k *ticker) withdraw(e *entry) (landed <-chan struct{}) {
	k.mu.Lock()
	defer k.mu.Unlock()
	if e.landed == nil {
		e.landed = make(chan struct{})
		if !e.flying && !e.unsure {
			k.remove(e)
			close(e.landed)
		}
	}
	return e.landed
}

// drop forgets the entry, for its term is over.
func (k *ticker) drop(e *entry) {
	k.mu.Lock()
	defer k.mu.Unlock()
	e.gone = true
	k.remove(e)
	select {
	case r := <-e.fired:
		k.lose(e, r.id)
	default:
	}
}

// lose closes a run that was claimed too late to be begun.
func (k *ticker) lose(e *entry, run int64) {
	k.rec.end(end{run: run, owner: e.token.Owner, outcome: lost, fault: "its term ended before it began", at: time.Now()})
	k.metrics.unrun(e.job, lost)
}

func (k *ticker) push(e *entry) {
	if e.tick.IsZero() || e.gone {
		return
	}
	heap.Push(&k.heap, e)
	if k.heap[0] == e {
		select {
		case k.wake <- struct{}{}:
		default:
		}
	}
}

func (k *ticker) remove(e *entry) {
	if e.index != off {
		heap.Remove(&k.heap, e.index)
	}
}

// lookAgain bounds how long the ticker trusts its idea of when the next tick is due: the estimate
// of the database's clock may change.
const lookAgain = time.Second

// run claims until ctx ends. One claim is under way at a time; it skips what is locked, so that
// nobody's row holds up another's tick.
func (k *ticker) run(ctx context.Context) {
	failing := false
	for ctx.Err() == nil {
		due, wait := k.take()
		if len(due) > 0 {
			found, err := k.store.claim(ctx, due.claims())
			failing = told(k.log, failing, err, "ticks cannot be claimed; trying again", "ticks are claimed again")
			k.land(due, found, err)
			continue
		}
		timer := time.NewTimer(wait)
		select {
		case <-timer.C:
		case <-k.wake:
		case <-ctx.Done():
		}
		timer.Stop()
	}
}

// take takes what is due off the heap, or says how long to wait.
func (k *ticker) take() (due ticks, wait time.Duration) {
	k.mu.Lock()
	defer k.mu.Unlock()
	now := k.now()
	for len(k.heap) > 0 && len(due) < batchSize {
		e := k.heap[0]
		if ahead := e.due.Sub(now); ahead > 0 {
			return due, min(ahead, lookAgain)
		}
		heap.Pop(&k.heap)
		e.flying = true
		if !e.unsure {
			e.skip = e.busy
			if !e.moment {
				e.tick = newest(e.schedule, e.tick, now)
			}
		}
		due = append(due, e)
	}
	return due, lookAgain
}

// newest is the last tick until now, from one that is not after it. It does not count them, for
// there may be millions.
func newest(s registry.Schedule, tick, now time.Time) time.Time {
	for high := now; ; {
		next := s.Next(tick)
		if next.IsZero() || next.After(now) {
			return tick
		}
		middle := next.Add(high.Sub(next) / 2)
		if later := s.Next(middle); later.IsZero() || later.After(now) {
			tick, high = next, middle
		} else {
			tick = later
		}
	}
}

func (t ticks) claims() []claim {
	claims := make([]claim, len(t))
	for i, e := range t {
		claims[i] = claim{token: e.token, job: e.job, tick: e.tick, moment: e.moment, skip: e.skip}
	}
	return claims
}

// land takes the verdicts.
func (k *ticker) land(due ticks, found map[fence.Token]claimed, err error) {
	var ended ticks
	defer func() {
		for _, e := range ended { // without the lock
			e.end(fmt.Errorf("%w: the claim of a tick was refused", fence.ErrFenced))
		}
	}()
	k.mu.Lock()
	defer k.mu.Unlock()
	for _, e := range due {
		e.flying = false
		c, ok := found[e.token]
		switch {
		case err != nil || !ok:
			e.unsure = true
		case c.verdict == fenced:
			e.unsure, e.tick = false, time.Time{}
			ended = append(ended, e)
		default:
			k.judge(e, c)
		}
		switch {
		case e.gone:
		case e.unsure:
			e.due = k.now().Add(again())
			k.push(e)
		case e.landed != nil:
			close(e.landed)
		default:
			k.push(e) // unless there is none to come
		}
	}
}

// judge sets what comes next for the entry.
func (k *ticker) judge(e *entry, c claimed) {
	switch c.verdict {
	case won:
		e.unsure = false
		k.won(e, c)
	case taken:
		e.unsure = false
		k.log.Debug("tick was taken", "lease", e.token.Lease, "tick", e.tick)
		if e.moment {
			e.now(k.now())
		} else {
			e.next(later(e.tick, c.last))
		}
	case early:
		e.due = k.now().Add(e.tick.Sub(c.now) + time.Millisecond)
	case locked: // where the answer was lost before, it still is
		e.due = k.now().Add(again())
	}
}

func (k *ticker) won(e *entry, c claimed) {
	switch {
	case e.skip:
		k.metrics.unrun(e.job, skipped)
	case e.gone:
		k.lose(e, c.run)
	default:
		e.busy = true
		e.fired <- run{c.run, e.tick}
	}
	e.next(e.tick)
}

// next moves on to the tick after one. A start has none.
func (e *entry) next(after time.Time) {
	e.tick = e.schedule.Next(after)
	e.due = e.tick
}

// now makes this moment the tick, as finely as the database keeps it.
func (e *entry) now(now time.Time) {
	e.tick = now.Truncate(time.Microsecond)
	e.due = e.tick
}

func later(a, b time.Time) time.Time {
	if b.After(a) {
		return b
	}
	return a
}

// ticks is the heap, the earliest first.
type ticks []*entry

func (t ticks) Len() int           { return len(t) }
func (t ticks) Less(i, j int) bool { return t[i].due.Before(t[j].due) }

func (t ticks) Swap(i, j int) {
	t[i], t[j] = t[j], t[i]
	t[i].index, t[j].index = i, j
}

// Push is heap.Interface's.
func (t *ticks) Push(x any) {
	e := x.(*entry)
	e.index = len(*t)
	*t = append(*t, e)
}

// Pop is heap.Interface's.
func (t *ticks) Pop() any {
	last := len(*t) - 1
	e := (*t)[last]
	(*t)[last] = nil
	*t = (*t)[:last]
	e.index = off
	return e
}
