package lease

import (
	"context"
	"time"
)

// A watchdog ends each term at its local deadline. It needs neither the database nor the elector's
// loop, so that a call that hangs cannot stretch a term.
type watchdog struct {
	now  func() time.Duration // sinceBoot
	poll time.Duration        // how soon a suspension is noticed after it has ended
	add  chan *Term
}

func newWatchdog(now func() time.Duration, poll time.Duration) *watchdog {
	return &watchdog{now: now, poll: poll, add: make(chan *Term)}
}

// watch puts a term under watch until it has ended.
func (w *watchdog) watch(t *Term) { w.add <- t }

// run watches until ctx ends. Deadlines only ever move away, so the earliest one is a bound that
// holds until it is reached, and a turn costs one look at the clock.
func (w *watchdog) run(ctx context.Context) {
	terms := map[*Term]struct{}{}
	earliest := time.Duration(1<<63 - 1)
	timer := time.NewTimer(w.poll)
	defer timer.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case t := <-w.add:
			terms[t] = struct{}{}
			if d, live := t.due(); live {
				earliest = min(earliest, d)
			}
		case <-timer.C:
		}
		if now := w.now(); now >= earliest {
			earliest = endOverdue(terms, now)
		}
		// The timer's clock stops in a suspension and sinceBoot does not, hence the poll.
		timer.Reset(min(w.poll, max(0, earliest-w.now())))
	}
}

// endOverdue ends what is overdue, forgets what has ended, and returns the next deadline.
func endOverdue(terms map[*Term]struct{}, now time.Duration) time.Duration {
	next := time.Duration(1<<63 - 1)
	for t := range terms {
		d, live := t.due()
		if live && now >= d {
			t.End(ErrDeadline)
			live = false
		}
		if !live {
			delete(terms, t)
			continue
		}
		next = min(next, d)
	}
	return next
}
