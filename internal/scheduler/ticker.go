package scheduler

import (
	"container/heap"
	"context"
	"fmt"
	"log/slog"
	"sync"
	"time"

	"rota/internal/fence"
)

// A ticker claims what is due of all that this replica leads: one heap, and one statement for all
// that is due at once.
type ticker struct {
	store  store
	now    func() time.Time // by the database's clock
	rec    *recorder
	log    *slog.Logger
	settle func(request int64, result string)

	mu      sync.Mutex
	heap    heaped
	entries map[*entry]struct{}
	size    int       // of a claim, in rows
	looked  time.Time // by the database's clock
	flights int       // claims under way
	helped  bool      // there is a second loop, in a rush
	failing bool
	gaps    []*entry // to be walked, by one goroutine while there are any
	walking sync.WaitGroup
	helping sync.WaitGroup
	wake    chan struct{} // has room for one: there is a new earliest entry
}

func newTicker(s store, now func() time.Time, rec *recorder, settle func(int64, string), log *slog.Logger) *ticker {
	return &ticker{
		store: s, now: now, rec: rec, settle: settle, log: log, size: claimSize,
		entries: map[*entry]struct{}{}, wake: make(chan struct{}, 1),
	}
}

// change changes an entry, and puts it where it then belongs on the heap.
func (k *ticker) change(e *entry, f func(now time.Time)) {
	k.mu.Lock()
	defer k.mu.Unlock()
	f(k.now())
	k.place(e)
}

// plan has the entry's ticks claimed, from the first after one that is done with, and before them
// what an earlier term has left unfinished.
func (k *ticker) plan(e *entry, found opened) {
	k.change(e, func(time.Time) {
		k.entries[e] = struct{}{}
		e.since, e.lost, e.tick = found.now, found.again, e.job.Schedule.Next(found.last)
	})
}

// start has a Continuous job started now.
func (k *ticker) start(e *entry) { k.change(e, func(now time.Time) { e.startAt = now }) }

// resume has a Continuous job started whose start a pause was in the way of.
func (k *ticker) resume(e *entry) {
	k.change(e, func(now time.Time) {
		if e.paused {
			e.paused, e.startAt = false, now
		}
	})
}

// request has a run claimed that was asked for.
func (k *ticker) request(e *entry, r attempt) { k.change(e, func(time.Time) { e.request(r) }) }

// done says that the run under way has ended, when that is on record, and whether it is to be tried
// again, and when.
func (k *ticker) done(e *entry, run int64, recorded <-chan struct{}, next *attempt, after time.Duration) {
	k.change(e, func(now time.Time) {
		e.begun[run] = recorded
		e.busy, e.ended = false, now
		if next != nil {
			e.fail(retry{*next, now.Add(after)})
		}
	})
}

// retrying reports whether what has failed is to be tried again.
func (k *ticker) retrying(e *entry) bool {
	k.mu.Lock()
	defer k.mu.Unlock()
	return len(e.retries) > 0
}

// withdraw has nothing further claimed. A claim that is under way may come through yet: the channel
// is closed once that is known, and then fired may hold a run.
func (k *ticker) withdraw(e *entry) (landed <-chan struct{}) {
	k.change(e, func(time.Time) {
		if e.landed == nil {
			e.landed = make(chan struct{})
			if e.asking == nil {
				close(e.landed)
			}
		}
	})
	return e.landed
}

// drop forgets the entry, for its term is over.
func (k *ticker) drop(e *entry) {
	k.change(e, func(time.Time) {
		delete(k.entries, e)
		e.gone = true
		select {
		case r := <-e.fired:
			k.lose(e, r)
		default:
		}
	})
}

// lose closes a run that was claimed too late to be begun.
func (k *ticker) lose(e *entry, r run) {
	k.rec.end(end{
		run: r.id, owner: e.token.Owner, outcome: lost, fault: "its term ended before it began", at: time.Now(),
		again: r.number < tries(e.job),
	})
	e.counts.add(lost, 1)
}

// place puts the entry where it belongs.
func (k *ticker) place(e *entry) {
	at := e.when()
	switch {
	case at.IsZero() && e.index != off:
		heap.Remove(&k.heap, e.index)
	case at.IsZero():
	case e.index != off:
		e.due = at
		heap.Fix(&k.heap, e.index)
	default:
		e.due = at
		heap.Push(&k.heap, e)
	}
	if len(k.heap) > 0 && k.heap[0] == e {
		select {
		case k.wake <- struct{}{}:
		default:
		}
	}
}

// lookAgain bounds how long the ticker trusts its idea of when the next tick is due: the estimate
// of the database's clock may change.
const lookAgain = time.Second

// run claims until ctx ends. One claim is under way at a time, or two while more is due than one takes;
// each skips what is locked, so that nobody's row holds up another's tick.
func (k *ticker) run(ctx context.Context) {
	defer k.walking.Wait()
	defer k.helping.Wait()
	for ctx.Err() == nil {
		claimed, wait := k.claimDue(ctx)
		if claimed {
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

// claimDue makes one claim of what is due, or says how long to wait for that. An entry of one claim is off
// the heap until its verdict is there, so that no other claim has it.
func (k *ticker) claimDue(ctx context.Context) (claimed bool, wait time.Duration) {
	due, asked, wait := k.take()
	if len(due) == 0 {
		return false, wait
	}
	k.help(ctx)
	found, err := k.store.claim(ctx, asked)
	k.land(due, found, err)
	return true, 0
}

// help has a second loop claim as well while more is due than is claimed already: what this process and
// the database do for a claim takes turns otherwise, and each waits for the other.
func (k *ticker) help(ctx context.Context) {
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.helped || !k.rushed() {
		return
	}
	k.helped = true
	k.helping.Go(func() {
		for more := true; more && ctx.Err() == nil; {
			more, _ = k.claimDue(ctx)
		}
		k.mu.Lock()
		defer k.mu.Unlock()
		k.helped = false
	})
}

// rushed reports whether something was due when the clock was looked at last, and is still to be claimed.
func (k *ticker) rushed() bool { return len(k.heap) > 0 && !k.heap[0].due.After(k.looked) }

// claimSize bounds the rows that one claim makes, but for those of its last lease. The first runs begin once the first claim is through.
const claimSize = 1000

// setBack is how far the clock must have gone back to be said to have been set: an estimate of it
// wavers by part of a round trip.
const setBack = time.Second

// take takes what is due off the heap, or says how long to wait.
func (k *ticker) take() (due []*entry, asked []claim, wait time.Duration) {
	k.mu.Lock()
	defer k.mu.Unlock()
	now := k.now()
	if now.Before(k.looked.Add(-setBack)) {
		k.follow(k.looked.Sub(now))
	}
	k.looked, wait = now, lookAgain
	for rows := 0; len(k.heap) > 0 && rows < k.size; {
		e := k.heap[0]
		if e.due.After(now) {
			wait = min(e.due.Sub(now), lookAgain)
			break
		}
		heap.Pop(&k.heap)
		if g := e.long(now); g != nil {
			e.walked, e.flying = g, true
			if k.gaps = append(k.gaps, e); len(k.gaps) == 1 {
				k.walking.Go(k.walk)
			}
			continue
		}
		c := e.compose(now)
		if c == nil { // it was placed by an earlier idea of the time
			if at := e.when(); at.After(now) {
				e.due = at
				heap.Push(&k.heap, e)
			}
			continue
		}
		e.asking, e.flying = c, true
		due, asked, rows = append(due, e), append(asked, *c), rows+1+len(c.passed)
	}
	switch {
	case len(due) > 0:
		if k.flights++; k.rushed() {
			k.rec.wayTo.rush()
		}
	case k.flights == 0:
		k.rec.wayTo.calm()
	}
	return due, asked, wait
}

// walk finds the backlogs of long gaps, one after the other, while others are claimed.
func (k *ticker) walk() {
	for more := true; more; {
		k.mu.Lock()
		e := k.gaps[0]
		g := e.walked
		k.mu.Unlock()
		found := due(e.job.Schedule, g.from, g.until)
		k.change(e, func(time.Time) {
			g.backlog, e.flying = found, false
			k.gaps = k.gaps[1:]
			more = len(k.gaps) > 0
		})
	}
}

// follow has every entry's progress follow a clock that was set back.
func (k *ticker) follow(by time.Duration) {
	k.log.Warn("the database's clock was set back; the ticks follow it, and none is run twice", "by", by.Round(time.Millisecond))
	for e := range k.entries {
		e.setBack(by)
		k.place(e)
	}
}

// land takes the verdicts. What has none was lost on the way, and is asked again.
func (k *ticker) land(due []*entry, found map[fence.Token]claimed, err error) {
	var over []*entry
	defer func() {
		for _, e := range over { // without the lock
			e.end(fmt.Errorf("%w: the claim of a tick was refused", fence.ErrFenced))
		}
	}()
	k.mu.Lock()
	defer k.mu.Unlock()
	k.flights--
	k.failing = told(k.log, k.failing, err, "ticks cannot be claimed; trying again", "ticks are claimed again")
	now := k.now()
	for _, e := range due {
		e.flying = false
		c, ok := found[e.token]
		switch {
		case !ok:
			e.unsure, e.rest = true, now.Add(soon())
		case c.verdict == fenced:
			e.asking, e.gone = nil, true
			over = append(over, e)
		default:
			k.judge(e, c, now)
		}
		if e.landed != nil && e.asking == nil && !isClosed(e.landed) {
			close(e.landed)
		}
		k.place(e)
	}
}

// judge has the entry judged, and hands out the run that begins.
func (k *ticker) judge(e *entry, c claimed, now time.Time) {
	asked := *e.asking
	if e.knows(c.run) {
		c.verdict, c.run = taken, 0
	}
	r := e.judge(c, now)
	if c.verdict == won || c.verdict == paused {
		for _, p := range asked.passed {
			e.counts.add(p.outcome, p.ticks)
		}
	}
	switch {
	case c.verdict == paused && asked.kind != moment:
		e.counts.add(skipped, 1)
	case asked.kind == requested && c.verdict == won:
		k.settle(asked.run.request, fmt.Sprintf("run %d has begun", c.run))
	case asked.kind == requested && c.verdict == taken:
		k.settle(asked.run.request, "it has been run")
	case c.verdict == taken:
		k.log.Debug("claim was taken", "lease", e.token.Lease, "kind", asked.kind, "tick", asked.run.tick)
	}
	switch {
	case r == nil:
	case e.gone:
		k.lose(e, *r)
	default:
		e.fired <- *r
	}
}

func isClosed(c <-chan struct{}) bool {
	select {
	case <-c:
		return true
	default:
		return false
	}
}

// heaped is the heap, the earliest first.
type heaped []*entry

func (h heaped) Len() int { return len(h) }

// Less has what is due at one instant by name, which is how the database has most of it.
func (h heaped) Less(i, j int) bool {
	if c := h[i].due.Compare(h[j].due); c != 0 {
		return c < 0
	}
	return h[i].token.Lease < h[j].token.Lease
}

func (h heaped) Swap(i, j int) {
	h[i], h[j] = h[j], h[i]
	h[i].index, h[j].index = i, j
}

// Push is heap.Interface's.
func (h *heaped) Push(x any) {
	e := x.(*entry)
	e.index = len(*h)
	*h = append(*h, e)
}

// Pop is heap.Interface's.
func (h *heaped) Pop() any {
	last := len(*h) - 1
	e := (*h)[last]
	(*h)[last] = nil
	*h = (*h)[:last]
	e.index = off
	return e
}
