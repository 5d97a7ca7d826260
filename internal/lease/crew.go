package lease

import (
	"context"
	"iter"
	"maps"
	"slices"

	"rota/internal/fence"
)

// A crew is the leases of one job, as many as this replica would have it have.
type crew struct {
	job     string
	count   int
	seats   []*seat
	inForce int  // the count in force, by the last look; 0: the job never had several leases
	new     bool // this replica has not had its say yet
}

// counted reports whether a count decides who may lead the job's leases.
func (c *crew) counted() bool { return c.count > 1 || c.inForce > 0 }

// out reports whether another count is in force.
func (c *crew) out() bool { return c.inForce > 0 && c.inForce != c.count }

// inForce leaves out the free leases whose count is not in force, which are nobody's to take.
func (e *election) inForce(l look) []string {
	return slices.DeleteFunc(l.free, func(name string) bool {
		job, s := fence.SplitLease(name)
		n := l.counts[job]
		return n > 0 && n != max(1, s.Of)
	})
}

// meetOther looks whether a count has become free for this replica's, where a lease of another
// count was released.
func (e *election) meetOther(name string) {
	if job, _ := fence.SplitLease(name); e.crews[job] != nil {
		e.lookSoon()
	}
}

// resized heeds the counts in force. A replica has its say once, when it has become a member: the
// latest to do so wins, and at every heartbeat two would change it for ever. What it leads under a
// count that is not in force any more it gives up. Where no member has the count in force, since
// those that had it have gone, it puts its own in force.
func (e *election) resized(l look) {
	var asked []resize
	for c := range e.heeding(l) {
		job := c.job
		c.inForce = l.counts[job]
		switch {
		case !c.out():
			if c.inForce == 0 && c.count > 1 {
				e.registered = false // somebody has deleted its row
			}
			c.new = c.new && e.last == 0
			e.begun(c)
		case c.new && e.last != 0:
			asked = append(asked, resize{job: job, count: c.count})
		case c.new:
		case e.orphaned(c):
			asked = append(asked, resize{job: job, count: c.count, orphan: c.inForce})
		case e.company.lead(c.kinInForce()):
			e.disband(c)
		}
	}
	e.resize(asked)
}

// heeding are the crews of which a look may say something: those whose count decides, or did. The rest are
// as they were, once each has been met by this replica as a member.
func (e *election) heeding(l look) iter.Seq[*crew] {
	for job := range l.counts {
		if c := e.crews[job]; c != nil {
			e.counted[c] = struct{}{}
		}
	}
	if !e.met {
		e.met = e.last != 0
		return maps.Values(e.crews)
	}
	return maps.Keys(e.counted)
}

// kinInForce is what the leases of the count in force have in common.
func (c *crew) kinInForce() string { return Leases(c.job, c.inForce, false)[0].kin() }

// orphaned reports whether no member is known to have the count in force, nor may turn out to.
func (e *election) orphaned(c *crew) bool {
	return len(e.company.strange()) == 0 && !e.company.lead(c.kinInForce())
}

// begun makes the series of the leases exist again that are in force again.
func (e *election) begun(c *crew) {
	for _, s := range c.seats {
		if s.stopped {
			s.stopped = false
			s.gauges.show()
		}
	}
}

// disband gives up what is led under a count that is not in force.
func (e *election) disband(c *crew) {
	for _, s := range c.seats {
		e.setBusy(s, 0)
		switch {
		case s.term != nil:
			s.term.ask(Resize)
		case !s.stopped || s.back:
			s.stopped = true
			s.gauges.hide()
		}
	}
}

// resize puts counts in force, one call at a time. What does not come through is asked for again by
// the next look.
func (e *election) resize(asked []resize) {
	if len(asked) == 0 || e.resizing || e.draining {
		return
	}
	e.resizing = true
	e.call(func() func() {
		ctx, cancel := context.WithTimeout(context.Background(), e.cfg.callTimeout())
		defer cancel()
		settled, err := e.store.resize(ctx, asked)
		return func() {
			e.resizing = false
			if err != nil {
				e.log.Warn("counts of shards were not put in force; trying again", "owner", e.cfg.Owner, "jobs", len(asked), "error", err)
				return
			}
			for _, job := range settled {
				e.crews[job].new = false
			}
			e.lookSoon()
		}
	})
}
