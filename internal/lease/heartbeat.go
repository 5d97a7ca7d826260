package lease

import (
	"context"
	"errors"
	"slices"
	"time"

	"github.com/jackc/pgx/v5/pgconn"
)

// heartbeat renews all that is led, in one round trip, and looks at the rest.
func (e *election) heartbeat() {
	if e.beating {
		e.beatTimer.Reset(e.cfg.pause()) // it has overrun its time, and answers any moment
		return
	}
	e.beating = true
	e.chat.breathe()
	sent := e.sinceBoot()
	held, seats, left := e.holdings(sent)
	self, names := e.self(e.started, e.draining, e.can.id), e.unregistered()
	claims := e.claims
	e.beatTimer.Reset(e.cfg.Renew)
	e.call(func() func() {
		ctx, cancel := context.WithTimeout(context.Background(), e.timeout(left))
		defer cancel()
		if names != nil {
			if err := e.store.register(ctx, names, *e.can); err != nil {
				return func() { e.beaten(self, sent, nil, nil, look{}, err, claims) }
			}
		}
		verdicts, l, err := e.store.beat(ctx, self, held)
		return func() {
			e.registered = true
			e.beaten(self, sent, seats, verdicts, l, err, claims)
		}
	})
}

// unregistered is the names to register first, or nil.
func (e *election) unregistered() []string {
	if e.registered {
		return nil
	}
	names := make([]string, 0, len(e.seats))
	for name := range e.seats {
		names = append(names, name)
	}
	slices.Sort(names) // all replicas register the same parts
	return names
}

// holdings is what should be renewed, with the time left of the term that has the most left. A term
// with less is not the measure: it alone would make every other term's renewal time out.
func (e *election) holdings(now time.Duration) (held []holding, seats []*seat, left time.Duration) {
	left = e.cfg.callTimeout()
	first := true
	for s := range e.taken {
		if !s.led() {
			continue
		}
		held = append(held, holding{s.lease.Name, s.term.Token.Epoch})
		seats = append(seats, s)
		if d, _ := s.term.due(); first || d-now > left {
			left, first = d-now, false
		}
	}
	return held, seats, left
}

// beaten takes the answer of a heartbeat.
func (e *election) beaten(self member, sent time.Duration, seats []*seat, verdicts []verdict, l look, err error, claims uint64) {
	e.beating = false
	now := e.sinceBoot()
	e.metrics.beaten(now-sent, err)
	e.applyVerdicts(seats, verdicts, sent, now)
	if err != nil {
		e.beatFailed(err)
	} else {
		e.beatCame(sent)
		e.looked(l, sent, now, claims)
		e.balance(l, sent)
	}
	if e.draining && !e.told {
		// Whether or not it came through: the leases must not wait for it twice.
		e.told = self.draining
		e.beatTimer.Reset(0)
	}
	e.giveBack()
}

func (e *election) beatFailed(err error) {
	e.beatTimer.Reset(e.jitter(e.cfg.pause()))
	if !e.failing {
		e.failing, e.faults = true, map[string]bool{}
	}
	if kind := kindOf(err); !e.faults[kind] {
		e.faults[kind] = true
		e.log.Warn("heartbeat failed, trying again", "owner", e.cfg.Owner, "error", err)
	}
}

// kindOf tells errors apart as far as each is worth a line of its own: by the server's code, if it has
// answered. A connection that was cut may be followed by one to a server that is read-only by now.
func kindOf(err error) string {
	var answer *pgconn.PgError
	if errors.As(err, &answer) {
		return answer.Code
	}
	return ""
}

func (e *election) beatCame(sent time.Duration) {
	if e.failing {
		e.failing = false
		e.log.Info("heartbeat came through again", "owner", e.cfg.Owner)
	}
	switch {
	case e.last == 0 || sent-e.last >= e.cfg.Lease-e.cfg.margin():
		// The others have not been seen as members, nor we by them: count again before claiming,
		// or whoever is first after an outage takes everything.
		e.joined, e.chosen, e.phased = sent, false, false
		e.beatTimer.Reset(e.jitter(e.cfg.settle()))
	case !e.phased:
		// All that were started together, or waited for the same outage to end, would beat together
		// from now on, and each wait for the others' renewals.
		e.phased = true
		e.beatTimer.Reset(e.cfg.Renew/4 + time.Duration(e.rand.Int64N(int64(e.cfg.Renew*3/4))))
	}
	e.last = sent
}

// applyVerdicts takes the answer of a renewal that was sent then.
func (e *election) applyVerdicts(seats []*seat, verdicts []verdict, sent, now time.Duration) {
	again := false
	for i, v := range verdicts {
		s := seats[i]
		if !s.led() {
			continue // it ended, or was given back, while the renewal was under way
		}
		s.locked = v == locked
		switch v {
		case renewed:
			s.term.extend(now, sent+e.cfg.Lease-e.cfg.margin())
		case locked:
			again = true
		case lost:
			s.term.End(ErrLost)
			e.registered = false // the row may have been deleted
		}
	}
	if again {
		e.retryLater()
	}
}

// retry renews what was locked, and claims what was busy, until it comes through or its deadline
// passes. A row that somebody holds costs its own lease alone.
func (e *election) retry() {
	now := e.sinceBoot()
	var held []holding
	var seats []*seat
	var claims []*seat
	var left time.Duration
	for s := range e.taken {
		if s.led() && s.locked {
			d, _ := s.term.due()
			left = max(left, d-now)
			held, seats = append(held, holding{s.lease.Name, s.term.Token.Epoch}), append(seats, s)
		}
	}
	for s := range e.stuck {
		switch {
		case s.crew.out():
			e.setBusy(s, 0) // else nobody would try it again once its count is in force
		case s.term == nil && !s.claimed:
			claims = append(claims, s)
		}
	}
	if len(claims) > 0 && e.claiming {
		e.retryLater()
	}
	e.claim(claims)
	e.releases, e.kept = append(e.releases, e.kept...), nil
	e.giveBack()
	if len(held) == 0 {
		return
	}
	e.call(func() func() {
		ctx, cancel := context.WithTimeout(context.Background(), e.timeout(left))
		defer cancel()
		verdicts, err := e.store.renew(ctx, e.cfg.Owner, e.cfg.Lease, held)
		return func() {
			if err != nil {
				e.retryLater()
				return
			}
			e.applyVerdicts(seats, verdicts, now, e.sinceBoot())
		}
	})
}
