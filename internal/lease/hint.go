package lease

// steer is announced when an operator asks for something. It might be the name of a lease as well.
const steer = "steer"

// hint takes the announcement of a release: with names, those are claimed without a look.
func (e *election) hint(names []string) {
	if e.cfg.Steer != nil && len(names) == 1 && names[0] == steer {
		e.cfg.Steer()
	}
	select {
	case e.events <- func() { e.hinted(names) }:
	case <-e.over:
	}
}

// hinted takes the names of leases that have been released. Each is claimed by one member alone:
// the one that it was released for, or else the one that it is assigned to by what was seen last.
// What that one leaves, if it has died or sees it otherwise, goes to anyone a heartbeat later.
func (e *election) hinted(names []string) {
	if e.draining || e.last == 0 {
		return
	}
	if len(names) == 0 { // too many to be named
		e.lookSoon()
		return
	}
	var open []Lease
	member := ""
	for _, n := range names {
		if m, ok := memberOf(n); ok {
			member = m
			continue
		}
		s := e.seats[n]
		switch {
		case s == nil:
			e.meetOther(n)
		case s.led():
			e.beatTimer.Reset(0) // an operator may have ended the term: ask the database
		case member == "":
			open = append(open, leasesOf([]string{n})...)
		case member == forMember(e.cfg.Owner):
			e.give(s)
		}
	}
	if len(open) > 0 { // to count what everybody leads takes a while where leases are many
		for name, owner := range assign(open, e.standings()) {
			if owner == e.cfg.Owner {
				e.give(e.seats[name])
			}
		}
	}
	e.claimGiven()
}

// give notes that a lease is this replica's to claim.
func (e *election) give(s *seat) {
	if s != nil && s.term == nil && !s.claimed && s.busy == 0 && !s.given && !s.crew.out() && !e.rests(s, e.sinceBoot()) {
		s.given = true
		e.given = append(e.given, s)
	}
}

// claimGiven claims what was given, now or once the acquisition under way has come back.
func (e *election) claimGiven() {
	if e.claiming {
		return
	}
	var seats []*seat
	for _, s := range e.given {
		s.given = false
		if s.term == nil && !s.claimed {
			seats = append(seats, s)
		}
	}
	e.given = nil
	e.claim(seats)
}

// reaches notes whether announcements arrive, and says so when that changes. The listener alone
// calls it.
func (e *election) reaches(yes bool, why error) {
	if e.hints.Swap(yes) == yes && e.reachTold {
		return
	}
	e.reachTold = true
	if yes {
		e.log.Info("releases are announced to this replica", "owner", e.cfg.Owner)
	} else {
		e.log.Warn("releases are not announced to this replica, it learns of them by polling", "owner", e.cfg.Owner, "error", why)
	}
}
