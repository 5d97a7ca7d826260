package lease

import (
	"context"
	"sync"
	"time"
)

// An election is one Run of an Elector. Its fields belong to one goroutine, the loop; calls to the
// store run beside it, one of each kind at a time, and hand their answers back as events.
type election struct {
	*Elector
	lead    func(*Term)
	seats   map[string]*seat
	taken   map[*seat]struct{} // those that have a term
	open    map[*seat]struct{} // those that were free by the last look
	stuck   map[*seat]struct{} // those that are busy
	started time.Time
	dog     *watchdog
	running sync.WaitGroup // calls, leads, the listener and the watchdog

	calls    int  // under way
	draining bool // nothing more is to be led
	leaving  bool // and the loop ends once nothing is
	told     bool // the members know that we are draining, or cannot be told

	beatTimer, wakeTimer, retryTimer *time.Timer

	registered bool            // the rows exist, as far as is known
	failing    bool            // the last heartbeat failed
	faults     map[string]bool // of what kinds its failures were since it began to, all of which have been said
	last       time.Duration   // when the last good heartbeat was sent, by sinceBoot; 0: never
	beating    bool
	looking    bool
	lookAgain  bool
	lookAfter  bool // look again after the acquisition under way

	wake     time.Duration      // what wakeTimer is set for, by sinceBoot; 0: it is not
	joined   time.Duration      // since when we have been a member without a break
	chosen   bool               // leases were chosen since then
	phased   bool               // and the heartbeats have a moment of their own within the interval
	can      *ability           // what this replica can lead
	company  company            // the other members, as of the last look
	crews    map[string]*crew   // by job
	counted  map[*crew]struct{} // those whose count decides, or did
	met      bool               // what looks say of counts has been heeded as a member
	resizing bool               // a count is being put in force
	learning bool
	given    []*seat // leases that were released in our favour, to be claimed next
	claiming bool
	barren   bool          // the last acquisition failed, and that has been said
	atOnce   int           // how many leases the next acquisition or release is for
	claims   uint64        // how many acquisitions were begun; a look from before one says nothing of its leases
	left     int           // how many leases the others seemed to have left, by the last choice
	beyond   time.Duration // when more than our share of them was taken last
	doubt    bool          // an acquisition's answer was lost: look for leases that nobody works under
	waiting  string        // the lease that a blocking acquire is waiting for
	releases []release     // to be sent
	kept     []release     // to be sent again
	freeing  bool
	seeking  bool

	chat *chatter

	reachTold bool // whether it has been said if announcements arrive; the listener's own
	over      <-chan struct{}
}

// A seat is one lease as this replica sees it.
type seat struct {
	lease   Lease
	crew    *crew
	term    *Term // led, or ended and not yet returned, or not yet released
	back    bool  // the lead has returned
	stopped bool  // its series are gone, for it is out of force
	locked  bool  // the last renewal or release found the row locked
	worked  int64 // the highest epoch that this process has worked under

	free    time.Duration // since when every look has seen it free, by sinceBoot; 0: it is not
	claimed bool          // an acquisition is under way
	given   bool          // it is in the list of those to be claimed next
	began   time.Duration // when the term was won, by sinceBoot
	to      string        // the member that the term is to be given up for; empty: none in particular
	busy    int           // how often in a row an acquisition found the row locked
	absurd  time.Duration // when its epochs were last found too near their end; 0: they are not

	gauges gauges
}

// led reports whether the lease should be renewed.
func (s *seat) led() bool { return s.term != nil && !s.term.over() && !s.back }

func newElection(e *Elector, seats map[string]*seat, lead func(*Term)) *election {
	kin := make([]string, 0, len(seats))
	crews := map[string]*crew{}
	for _, s := range seats {
		kin = append(kin, s.lease.kin())
		c := crews[s.lease.Job]
		if c == nil {
			c = &crew{job: s.lease.Job, count: s.lease.count(), new: true}
			crews[s.lease.Job] = c
		}
		c.seats, s.crew = append(c.seats, s), c
	}
	counted := map[*crew]struct{}{}
	for _, c := range crews {
		if c.count > 1 {
			counted[c] = struct{}{}
		}
	}
	can := newAbility(kin)
	return &election{
		Elector: e, lead: lead, seats: seats, crews: crews, counted: counted,
		taken: map[*seat]struct{}{}, open: map[*seat]struct{}{}, stuck: map[*seat]struct{}{},
		started: time.Now(), can: can, company: newCompany(can),
		atOnce: mostAtOnce,
		dog:    newWatchdog(e.sinceBoot, e.cfg.margin()/4),
		chat:   &chatter{log: e.log},
	}
}

// run is the loop.
func (e *election) run(ctx context.Context) {
	background, stop := context.WithCancel(context.WithoutCancel(ctx))
	defer e.running.Wait()
	defer stop()
	e.over = background.Done()
	e.running.Go(func() { e.dog.run(background) })
	e.running.Go(func() { e.store.listen(background, e.cfg.Owner, e.hint, e.reaches) })

	e.beatTimer, e.wakeTimer, e.retryTimer = time.NewTimer(0), stopped(), stopped()
	done, drained := ctx.Done(), e.drained
	leave := func() {
		done = nil
		e.leaving = true
		e.giveUpAll()
	}
	for {
		e.Elector.beat.Store(time.Now().UnixNano())
		select {
		case <-done:
			leave()
		case <-drained:
			drained = nil
			e.log.Info("draining: giving up all leases, and taking none", "owner", e.cfg.Owner)
			e.giveUpAll()
		case f := <-e.events:
			if done != nil && ctx.Err() != nil {
				leave() // first: a lead may have returned for the same reason, and has been drained then
			}
			f()
		case <-e.beatTimer.C:
			e.heartbeat()
		case <-e.wakeTimer.C:
			e.wake = 0
			e.lookSoon()
		case <-e.retryTimer.C:
			e.retry()
		}
		if e.leaving && e.idle() {
			e.leave()
			return
		}
	}
}

func stopped() *time.Timer {
	t := time.NewTimer(time.Hour)
	t.Stop()
	return t
}

// call runs f beside the loop and hands what it returns back to the loop.
func (e *election) call(f func() func()) {
	e.calls++
	e.running.Go(func() {
		then := f()
		e.events <- func() {
			e.calls--
			then()
		}
	})
}

// idle reports whether nothing is led, being released, or under way.
func (e *election) idle() bool {
	return e.calls == 0 && len(e.taken) == 0
}

// giveUpAll asks for every term, and lets none begin. The members are told first, so that the
// standbys count without us when the first release wakes them.
func (e *election) giveUpAll() {
	if e.draining {
		return
	}
	e.draining = true
	for s := range e.taken {
		s.term.ask(Drain)
	}
	e.beatTimer.Reset(0)
}

// leave ends the membership, if the database can be reached; else it runs out.
func (e *election) leave() {
	ctx, cancel := context.WithTimeout(context.Background(), e.cfg.callTimeout())
	defer cancel()
	if err := e.store.leave(ctx, e.cfg.Owner); err != nil {
		e.log.Warn("membership not ended; it will run out", "owner", e.cfg.Owner, "error", err)
	}
}

// jitter is d, give or take a quarter.
func (e *election) jitter(d time.Duration) time.Duration {
	return d*3/4 + time.Duration(e.rand.Int64N(int64(d)/2+1))
}

// timeout bounds a call by the setting, and by what is left of the terms that it is for.
func (e *election) timeout(left time.Duration) time.Duration {
	return max(time.Millisecond, min(e.cfg.callTimeout(), left))
}

// retryLater retries what was locked or busy in a moment, at no set time so that two replicas do not meet again.
func (e *election) retryLater() {
	e.retryTimer.Reset(250*time.Millisecond + time.Duration(e.rand.Int64N(int64(250*time.Millisecond))))
}
