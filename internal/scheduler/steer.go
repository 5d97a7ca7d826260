package scheduler

import (
	"fmt"
	"slices"
	"sync"

	"rota/internal/control"
	"rota/internal/lease"
	"rota/internal/registry"
)

// StepDown is why a term is given up because an operator asked for that one.
const StepDown lease.Reason = "step down"

// steering is who is to be told what operators want.
type steering struct {
	mu     sync.Mutex
	wanted control.State
	leads  map[string]*lead // by lease
	active map[int64]*active
}

// active is a run under way.
type active struct {
	lead    *lead
	stop    chan<- error // has room for one
	cancels []int64      // requests to be settled once it has ended
}

func newSteering() *steering {
	return &steering{leads: map[string]*lead{}, active: map[int64]*active{}}
}

// Steer does what operators want, as far as it is for this replica: it hands requests for runs to
// the leads of their jobs, ends runs that are to be cancelled and runs of Continuous jobs that are
// paused, and gives up leases. What became of a request is told to Config.Requests. It may be given
// the same request any number of times, and is called by one goroutine.
func (s *Scheduler) Steer(wanted control.State) {
	s.steering.mu.Lock()
	defer s.steering.mu.Unlock()
	s.steering.wanted = wanted
	for _, r := range wanted.Requests {
		switch {
		case r.Kind == control.Drain:
			s.drain(r)
		case s.steering.leads[r.Lease] != nil:
			s.steering.leads[r.Lease].steer(r)
		}
	}
	for _, l := range s.steering.leads {
		l.heedPause(wanted)
	}
}

// drain gives up everything, if it is this replica that should.
func (s *Scheduler) drain(r control.Request) {
	if r.Replica != s.cfg.Owner {
		return
	}
	s.cfg.Elector.Drain()
	s.mu.Lock()
	idle := s.leads == 0
	s.mu.Unlock()
	if idle {
		s.cfg.Requests.Done(r.ID, "it leads nothing any more")
	}
}

// attach has a lead told of what is wanted, from what was wanted last on. A term can be given up
// while it is being prepared: what it waits for may be what an operator wants to get away from.
func (s *Scheduler) attach(l *lead) {
	s.steering.mu.Lock()
	defer s.steering.mu.Unlock()
	s.steering.leads[l.token.Lease] = l
	s.steerAnew(l)
}

// open has a lead take requests for runs.
func (s *Scheduler) open(l *lead) {
	s.steering.mu.Lock()
	defer s.steering.mu.Unlock()
	l.opened = true
	s.steerAnew(l)
}

// steerAnew tells a lead of what was wanted last. The steering's lock is held.
func (s *Scheduler) steerAnew(l *lead) {
	for _, r := range s.steering.wanted.Requests {
		if r.Lease == l.token.Lease {
			l.steer(r)
		}
	}
}

// detach settles what has come to pass by the end of the lead.
func (s *Scheduler) detach(l *lead) {
	s.steering.mu.Lock()
	defer s.steering.mu.Unlock()
	if s.steering.leads[l.token.Lease] == l {
		delete(s.steering.leads, l.token.Lease)
	}
	for _, r := range s.steering.wanted.Requests {
		if r.Kind == control.StepDown && r.Lease == l.token.Lease && r.Epoch == l.token.Epoch {
			s.cfg.Requests.Done(r.ID, over(r.Epoch))
		}
	}
}

// over is what has come of a step down, whoever sees it first.
func over(epoch int64) string { return fmt.Sprintf("the term of epoch %d is over", epoch) }

// steer does one request for the lead's lease. The steering's lock is held.
func (l *lead) steer(r control.Request) {
	switch r.Kind {
	case control.Run:
		if l.opened {
			l.runNow(r)
		}
	case control.Cancel:
		if a := l.steering.active[r.Run]; a != nil {
			a.end(cancelledBy(r.By, r.Reason))
			if !slices.Contains(a.cancels, r.ID) {
				a.cancels = append(a.cancels, r.ID)
			}
		}
	case control.StepDown:
		switch {
		case r.Epoch == l.token.Epoch:
			l.cfg.Elector.GiveUp(r.Lease, StepDown)
		case r.Epoch < l.token.Epoch: // by this request perhaps, before its former leader has said so
			l.cfg.Requests.Done(r.ID, over(r.Epoch))
		}
	}
}

func (l *lead) runNow(r control.Request) {
	if l.job.Schedule.Kind() == registry.Unbroken {
		l.cfg.Requests.Done(r.ID, "refused: a Continuous job runs for the whole of its term")
		return
	}
	if len(r.Args) > 0 {
		if _, err := l.job.WithArgs(r.Args); err != nil {
			l.cfg.Requests.Done(r.ID, "refused: "+err.Error())
			return
		}
	}
	l.ticker.request(l.entry, attempt{tick: r.Made, number: 1, request: r.ID, args: r.Args})
}

// heedPause ends the run of a Continuous job that is paused, and has one started that is resumed; other
// runs come to their end by themselves.
func (l *lead) heedPause(wanted control.State) {
	if l.job.Schedule.Kind() != registry.Unbroken {
		return
	}
	p, paused := wanted.Paused(l.job.Name)
	if !paused {
		l.ticker.resume(l.entry)
		return
	}
	for _, a := range l.steering.active {
		if a.lead == l {
			a.end(fmt.Errorf("%w by %s: %s", ErrPaused, p.By, p.Reason))
		}
	}
}

// end ends a run's context, unless that was asked for before.
func (a *active) end(why error) {
	select {
	case a.stop <- why:
	default:
	}
}

// began takes in a run that can be cancelled.
func (s *steering) began(l *lead, run int64, stop chan<- error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.active[run] = &active{lead: l, stop: stop}
	for _, r := range s.wanted.Requests {
		if r.Kind == control.Cancel && r.Run == run {
			l.steer(r)
		}
	}
}

// ended settles what was asked of a run.
func (s *steering) ended(settle Requests, run int64, o outcome) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, id := range s.active[run].cancels {
		settle.Done(id, fmt.Sprintf("run %d ended: %s", run, o))
	}
	delete(s.active, run)
}
