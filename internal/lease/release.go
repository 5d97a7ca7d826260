package lease

import (
	"context"
	"errors"
	"time"
)

// A release is a term to be ended in the database. It names the epoch, so that it cannot end a
// later term however late it executes.
type release struct {
	holding
	reason string
	until  time.Duration // by when the lease has run out by itself, and there is nothing to release
	seat   *seat         // whose term it was; nil where no term was begun
}

// returned takes the return of a lead. Only from here on may the lease be given up.
func (e *election) returned(s *seat, t *Term) {
	t.End(ErrReturned)
	e.mu.Lock()
	delete(e.terms, s.lease.Name)
	e.mu.Unlock()

	cause := context.Cause(t.Context())
	e.chat.say("term over", "lease", s.lease.Name, "epoch", t.Token.Epoch, "owner", e.cfg.Owner, "cause", cause, "reason", t.reason())
	if errors.Is(cause, ErrLost) {
		e.vacate(s)
		return
	}
	s.back = true
	deadline, _ := t.due()
	e.giveBack(release{
		holding: holding{s.lease.Name, t.Token.Epoch}, reason: t.reason(),
		until: deadline + e.cfg.margin(), seat: s,
	})
}

// vacate makes a seat compete again.
func (e *election) vacate(s *seat) {
	delete(e.taken, s)
	s.term, s.back, s.locked, s.free, s.to = nil, false, false, 0, ""
}

// giveBack releases the given terms and those that wait, those of one reason in one statement, or in
// several where they are many.
func (e *election) giveBack(more ...release) {
	e.releases = append(e.releases, more...)
	if e.freeing || len(e.releases) == 0 || e.draining && !e.told {
		return
	}
	e.freeing = true
	batch, rest := sameReason(e.releases, e.atOnce)
	e.releases = rest
	held := make([]holding, len(batch))
	for i, r := range batch {
		held[i] = r.holding
	}
	to, sent := e.successors(batch), e.sinceBoot()
	e.call(func() func() {
		ctx, cancel := context.WithTimeout(context.Background(), e.cfg.callTimeout())
		defer cancel()
		verdicts, err := e.store.release(ctx, e.cfg.Owner, batch[0].reason, held, to)
		return func() {
			e.freeing = false
			e.paced(len(batch), e.sinceBoot()-sent, err)
			e.released(batch, verdicts, err)
			e.giveBack()
		}
	})
}

// sameReason takes those from the list that have the reason of its first, so many at most.
func sameReason(all []release, most int) (same, rest []release) {
	for _, r := range all {
		if r.reason == all[0].reason && len(same) < most {
			same = append(same, r)
		} else {
			rest = append(rest, r)
		}
	}
	return same, rest
}

// released takes the answer of a release. What did not come through is tried again until the lease
// has run out by itself.
func (e *election) released(batch []release, verdicts []verdict, err error) {
	now := e.sinceBoot()
	for i, r := range batch {
		if now < r.until && (err != nil || verdicts[i] == locked) {
			e.kept = append(e.kept, r)
			continue
		}
		if r.seat != nil {
			e.vacate(r.seat)
		}
	}
	if len(e.kept) > 0 {
		e.retryLater()
	}
}

// seekStrays looks for leases that are ours in the database without our working under them: an
// acquisition came through whose answer was lost. They are released, and acquired anew under a
// higher epoch: to adopt one would give two terms one epoch, if it had already been lost and won
// back by another such acquisition.
func (e *election) seekStrays(l look) {
	if e.seeking || e.waiting != "" || e.leaving || !e.doubt && e.load(l) <= e.seated() {
		return
	}
	e.seeking = true
	claims := e.claims
	e.call(func() func() {
		ctx, cancel := context.WithTimeout(context.Background(), e.cfg.callTimeout())
		defer cancel()
		mine, err := e.store.mine(ctx, e.cfg.Owner)
		return func() {
			e.seeking = false
			if err != nil || claims != e.claims || e.claiming || e.waiting != "" {
				return // a later look asks again
			}
			e.doubt = false
			e.giveBack(e.strays(mine)...)
		}
	})
}

func (e *election) load(l look) int {
	for _, o := range l.owners {
		if o.owner == e.cfg.Owner {
			return o.leases
		}
	}
	return 0
}

// seated is how many terms of ours are not over, or not released yet.
func (e *election) seated() int { return len(e.taken) }

func (e *election) strays(mine []holding) (strays []release) {
	for _, h := range mine {
		s := e.seats[h.name]
		if s == nil || s.term != nil && s.term.Token.Epoch == h.epoch {
			continue
		}
		strays = append(strays, release{holding: h, reason: "not begun", until: e.sinceBoot() + e.cfg.Lease})
	}
	return strays
}
