package lease

import (
	"context"
	"slices"
	"time"

	"rota/internal/fence"
)

// lookSoon looks at the others now, or again once the look under way has come back.
func (e *election) lookSoon() {
	if e.draining {
		return
	}
	if e.looking {
		e.lookAgain = true
		return
	}
	e.looking = true
	sent, claims := e.sinceBoot(), e.claims
	e.call(func() func() {
		ctx, cancel := context.WithTimeout(context.Background(), e.cfg.callTimeout())
		defer cancel()
		l, err := e.store.look(ctx, e.cfg.Owner)
		return func() {
			e.looking = false
			if err == nil {
				e.looked(l, sent, e.sinceBoot(), claims)
			} else {
				e.lookLater()
			}
			if e.lookAgain {
				e.lookAgain = false
				e.lookSoon()
			}
		}
	})
}

// lookLater looks again in a moment, or at the next expiry if that is sooner, for what would else be left
// to the next heartbeat. Where heartbeats fail they come as often, and look.
func (e *election) lookLater() {
	if at := e.sinceBoot() + e.jitter(e.cfg.pause()); !e.failing && (e.wake == 0 || at < e.wake) {
		e.wakeAt(at)
	}
}

// wakeAt sets the alarm for a look.
func (e *election) wakeAt(at time.Duration) {
	e.wake = at
	e.wakeTimer.Reset(at - e.sinceBoot())
}

// lookAfterClaim looks again once no acquisition is under way, if the last look came to nothing or
// was of leases being released one after the other: two standbys that look at different moments may
// leave the same leases to each other.
func (e *election) lookAfterClaim() {
	if e.lookAfter && !e.claiming && len(e.given) == 0 {
		e.lookAfter = false
		e.lookSoon()
	}
}

// looked takes what a look says, and claims what it may.
func (e *election) looked(l look, sent, now time.Duration, claims uint64) {
	e.clock.set(l.received, l.answered, sent, now)
	l.free = e.inForce(l)
	e.company.seen(l, sent)
	e.wakeAtExpiry(l, now)
	e.resized(l)
	if claims != e.claims || e.claiming {
		e.lookAfter = true // an acquisition since then has changed what it says of the leases
		e.lookAfterClaim()
		return
	}
	e.markFree(l.free, sent)
	e.seekStrays(l)
	e.learn()
	if l.all < len(e.seats) {
		e.registered = false // somebody has deleted a row
	}
	if e.draining || e.joined == sent || e.last == 0 {
		return
	}
	chosen := e.choose(l, now)
	e.lookAfter = len(chosen) > 0 && len(chosen) < len(l.free)
	e.claim(chosen)
	if e.leaves(now) {
		e.lookLater()
	}
}

// leaves reports whether there is a lease that this replica leaves to the others, and that has not been
// free for long enough yet to be anybody's. The others may reckon otherwise, from what they have seen.
func (e *election) leaves(now time.Duration) bool {
	for s := range e.open {
		if s.free > 0 && now-s.free < e.cfg.Renew && !s.claimed && !s.given && s.busy == 0 && !s.crew.out() && !e.rests(s, now) {
			return true
		}
	}
	return false
}

// wakeAtExpiry sets the alarm for just after the first lease of another runs out, so that a
// takeover does not wait for the next heartbeat.
func (e *election) wakeAtExpiry(l look, now time.Duration) {
	var first time.Time
	for _, o := range l.owners {
		if o.owner != e.cfg.Owner && (first.IsZero() || o.earliest.Before(first)) {
			first = o.earliest
		}
	}
	if first.IsZero() {
		e.wake = 0
		e.wakeTimer.Stop()
		return
	}
	e.wakeAt(now + max(0, first.Sub(e.clock.now(now))) + time.Millisecond)
}

// markFree notes since when each lease has been seen free.
func (e *election) markFree(names []string, sent time.Duration) {
	open := make(map[*seat]struct{}, len(names))
	for _, n := range names {
		if s := e.seats[n]; s != nil && s.term == nil {
			open[s] = struct{}{}
			if s.free == 0 {
				s.free = sent
			}
		}
	}
	for s := range e.open {
		if _, still := open[s]; !still {
			s.free = 0
		}
	}
	e.open = open
}

// choose picks from the free leases: what is this replica's by the reckoning that all members make,
// and what has been free for a whole heartbeat, which the others have left. The first time it takes
// no more than its share of all, rounded down, or of several replicas that start together the first
// two would lead everything.
func (e *election) choose(l look, now time.Duration) []*seat {
	room := len(e.seats)
	if !e.chosen {
		e.chosen = true
		room = max(1, len(e.seats)/len(e.standings())) - e.seated()
	}
	members := e.standings()
	to := assign(leasesOf(l.free), members)
	var fresh, left []*seat
	for s := range e.open {
		switch {
		case s.term != nil || s.free == 0 || s.claimed || s.busy > 0 || s.crew.out() || e.rests(s, now):
		case to[s.lease.Name] == e.cfg.Owner:
			fresh = append(fresh, s)
		case now-s.free >= e.cfg.Renew:
			left = append(left, s)
		}
	}
	left = left[:min(len(left), e.mayTake(len(left), len(members), now))]
	return append(left, fresh[:min(len(fresh), max(0, room-len(left)))]...)
}

// rests reports whether a lease's epochs were found absurd less than a heartbeat ago. Each look would
// claim it again until they are set back by hand, and that is soon enough.
func (e *election) rests(s *seat, now time.Duration) bool {
	return s.absurd > 0 && now-s.absurd < e.cfg.Renew
}

// mayTake is how many of those leases that the others seem to have left this replica may claim. Where
// they are very many, the others may be at work on them still, as is seen by their getting fewer. So
// beyond its share it takes some only when they do not, and then waits for a heartbeat. They cannot get
// fewer for ever, and which ones it takes is left to chance: none stays free for good.
func (e *election) mayTake(left, members int, now time.Duration) int {
	fewer := left < e.left
	e.left = left
	seated := e.seated()
	share := max(0, len(e.seats)/max(1, members)-seated)
	if left <= share || fewer || now-e.beyond < e.cfg.Renew {
		return share
	}
	e.beyond = now
	return max(share, mostMoves(seated))
}

// mostAtOnce is how many leases one acquisition or release is for at most, so that it is done long
// before its caller gives up, whatever the number of leases; leastAtOnce is how many that is where it
// takes long. Renewals are cheaper, and are never divided.
const mostAtOnce, leastAtOnce = 2000, 100

// paced adapts how many leases one acquisition or release is for to how long the last one took: what
// the server cannot do in the time that a call has would be undone and tried again for ever.
func (e *election) paced(n int, took time.Duration, err error) {
	switch {
	case err != nil:
		e.atOnce = max(leastAtOnce, min(e.atOnce, n/2))
	case n >= e.atOnce && took < e.cfg.callTimeout()/8:
		e.atOnce = min(2*e.atOnce, mostAtOnce)
	}
}

// claim acquires the leases, if no acquisition is under way; else a later look will, or a retry.
func (e *election) claim(seats []*seat) {
	if len(seats) == 0 || e.claiming || e.draining {
		return
	}
	e.claiming = true
	seats, rest := seats[:min(len(seats), e.atOnce)], seats[min(len(seats), e.atOnce):]
	sent, claims := e.beginClaim(seats)
	e.call(func() func() {
		ctx, cancel := context.WithTimeout(context.Background(), e.cfg.callTimeout())
		defer cancel()
		grants, err := e.store.acquire(ctx, e.cfg.Owner, e.cfg.Lease, claims, false)
		return func() {
			e.claiming = false
			e.paced(len(seats), e.sinceBoot()-sent, err)
			e.granted(sent, seats, grants, err)
			if err == nil { // else a later look chooses again
				for _, s := range rest {
					if s.busy > 0 {
						e.retryLater() // it is not given, and no look will choose it
					}
					e.give(s)
				}
			}
			e.claimGiven()
			e.lookAfterClaim()
		}
	})
}

func (e *election) beginClaim(seats []*seat) (sent time.Duration, claims []claim) {
	e.claims++
	e.mu.Lock()
	defer e.mu.Unlock()
	for _, s := range seats {
		s.claimed = true
		claims = append(claims, claim{s.lease.Name, max(s.worked, e.seen[s.lease.Job]), s.crew.counted()})
	}
	return e.sinceBoot(), claims
}

// granted takes the answer of an acquisition that was sent then.
func (e *election) granted(sent time.Duration, seats []*seat, grants []grant, err error) {
	e.claims++
	for _, s := range seats {
		s.claimed = false
	}
	if err != nil {
		// It may have come through. A later look shows what is ours without our working under it.
		e.doubt = true
		if !e.barren && !e.failing { // else the heartbeat has said so
			e.barren = true
			e.log.Warn("acquisition failed, trying again", "owner", e.cfg.Owner, "leases", len(seats), "error", err)
		}
		e.lookLater()
		if slices.ContainsFunc(seats, func(s *seat) bool { return s.busy > 0 }) {
			e.retryLater() // for no look will choose them
		}
		return
	}
	if e.barren {
		e.barren = false
		e.log.Info("acquisition came through again", "owner", e.cfg.Owner)
	}
	for i, g := range grants {
		s := seats[i]
		s.free = 0
		if g.outcome == busy {
			e.setBusy(s, s.busy+1)
			e.retryLater()
			e.waitFor(s)
			continue
		}
		e.setBusy(s, 0)
		switch g.outcome {
		case won:
			e.begin(s, g, sent)
		case held:
			s.absurd = 0
			if s.crew.counted() {
				e.lookAfter = false // leases of another count are led yet, and their release will say so
			}
		case absurd:
			told := s.absurd > 0
			if s.absurd = sent; told {
				continue
			}
			e.log.Error("epochs near the end of what a bigint holds, the lease is left alone; set leadership.epoch and the protected rows back by hand",
				"lease", s.lease.Name, "epoch", g.epoch)
		}
	}
}

// setBusy notes how often in a row an acquisition found the row locked.
func (e *election) setBusy(s *seat, times int) {
	if s.busy = times; times > 0 {
		e.stuck[s] = struct{}{}
	} else {
		delete(e.stuck, s)
	}
}

// begin starts a term that was won, unless it is over before it could begin.
func (e *election) begin(s *seat, g grant, sent time.Duration) {
	now, deadline := e.sinceBoot(), sent+e.cfg.Lease-e.cfg.margin()
	t := newTerm(fence.Token{Lease: s.lease.Name, Owner: e.cfg.Owner, Epoch: g.epoch}, s.lease.Job, deadline)
	if e.draining || now >= deadline || g.epoch <= s.worked {
		// The last cannot happen with the statements of this package. If another program brings it
		// about, the lease is given back, and the next epoch is above.
		e.giveBack(release{holding: holding{s.lease.Name, g.epoch}, reason: "not begun", until: deadline})
		return
	}
	s.worked, s.term, s.back, s.locked, s.began, s.to, s.absurd = g.epoch, t, false, false, now, "", 0
	e.taken[s] = struct{}{}
	t.long = s.lease.Unbroken
	t.onEnd = e.metrics.begin(s, g.epoch)
	t.ready = e.metrics.handover(g, now, e.sinceBoot)
	e.mu.Lock()
	e.terms[s.lease.Name] = t
	e.mu.Unlock()
	e.running.Go(func() {
		e.lead(t)
		e.events <- func() { e.returned(s, t) }
	})
	e.dog.watch(t)
	e.chat.say("lease acquired", "lease", s.lease.Name, "epoch", g.epoch, "owner", e.cfg.Owner)
}

// waitFor makes a lease that has stayed busy wait in the row's queue, one at a time.
func (e *election) waitFor(s *seat) {
	if s.busy < 3 || e.waiting != "" || e.draining {
		return
	}
	e.waiting = s.lease.Name
	seats := []*seat{s}
	sent, claims := e.beginClaim(seats)
	e.call(func() func() {
		ctx, cancel := context.WithTimeout(context.Background(), e.cfg.callTimeout())
		defer cancel()
		grants, err := e.store.acquire(ctx, e.cfg.Owner, e.cfg.Lease, claims, true)
		return func() {
			e.waiting = ""
			e.granted(sent, seats, grants, err)
		}
	})
}
