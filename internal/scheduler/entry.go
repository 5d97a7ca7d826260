package scheduler

import (
	"crypto/sha256"
	"encoding/binary"
	"maps"
	"slices"
	"time"

	"rota/internal/fence"
	"rota/internal/registry"
)

// An entry is what is to be claimed for one term. Its fields are the ticker's, under its lock, save
// for fired and what never changes. Times are by the database's clock.
type entry struct {
	token  fence.Token
	job    *registry.Job
	counts *counts
	offset time.Duration   // from each tick to when it is claimed
	fired  chan run        // gets each run; never blocks, for a job never overlaps itself
	end    func(why error) // ends the term

	since    time.Time          // what fell due until then did so while nobody led
	tick     time.Time          // the next of the schedule; zero: none
	lost     []attempt          // further attempts at what earlier terms did not finish
	retries  []retry            // further attempts at what failed, the next first
	requests []attempt          // in the order in which they were made
	served   map[int64]struct{} // requests that this term has claimed
	startAt  time.Time          // when a Continuous job is to be started; zero: it is not to be
	paused   bool               // it was to be started, and its job is paused
	behind   bool               // the clock was set back: its progress is to follow
	ahead    time.Duration      // how far, as was found by asking too early, the estimate of the clock is ahead

	walked *gap // before the tick, found beforehand

	begun        map[int64]<-chan struct{} // runs whose ends may not be on record: closed once they are; nil: under way
	busy         bool                      // a run is under way
	began, ended time.Time                 // of the last one, or of those in a row while catching up
	catchingUp   bool                      // ticks that were due before the run began wait for its end, and all after them

	asking *claim    // under way, or unsure
	flying bool      // it is under way, or the gap before it is walked
	unsure bool      // its answer was lost: the same is claimed again until it is known
	rest   time.Time // not before, since the last claim met a lock or an error
	index  int       // on the heap, or off it
	due    time.Time // as the heap has it
	gone   bool      // the term is over: a claim that comes through yet is lost
	landed chan struct{}
}

// A run is an attempt that was claimed to be run.
type run struct {
	id int64
	attempt
}

// A retry is a further attempt at what failed.
type retry struct {
	attempt
	at time.Time
}

// first reports whether it is the first at a tick of a schedule.
func (r run) first() bool { return r.number == 1 && r.request == 0 }

// atOnce is an instant that has passed.
var atOnce = time.Unix(0, 1)

// off is the index of an entry that is not on the heap.
const off = -1

func newEntry(token fence.Token, j *registry.Job, c *counts, end func(error)) *entry {
	return &entry{
		token: token, job: j, counts: c, offset: offset(token.Lease, j.Jitter), end: end,
		fired: make(chan run, 1), index: off,
	}
}

// offset is the part of a jitter that is a lease's own: the same on every replica and for ever.
func offset(lease string, jitter time.Duration) time.Duration {
	if jitter <= 0 {
		return 0
	}
	sum := sha256.Sum256([]byte(lease))
	return time.Duration(binary.BigEndian.Uint64(sum[:8]) % uint64(jitter)).Truncate(time.Millisecond)
}

// when is the next instant at which there may be something to claim; zero: not before the run has
// ended, or somebody asks for one.
func (e *entry) when() time.Time {
	var at time.Time
	earliest := func(t time.Time) {
		if !t.IsZero() && (at.IsZero() || t.Before(at)) {
			at = t
		}
	}
	switch {
	case e.gone || e.flying || e.landed != nil && e.asking == nil:
		return time.Time{}
	case e.asking != nil || e.behind:
		at = atOnce
	case e.busy && (e.catchingUp || e.job.Overlap == registry.Queue):
	case e.busy:
		earliest(e.tickAt())
	default:
		earliest(e.tickAt())
		earliest(e.startAt)
		if len(e.retries) > 0 {
			earliest(e.retries[0].at)
		}
		if len(e.lost) > 0 || len(e.requests) > 0 {
			at = atOnce
		}
	}
	if !at.IsZero() && at.Before(e.rest) {
		return e.rest
	}
	return at
}

// tickAt is when the next tick is to be claimed; zero: there is none.
func (e *entry) tickAt() time.Time {
	if e.tick.IsZero() {
		return e.tick
	}
	return e.tick.Add(e.offset + e.ahead)
}

// ticked reports whether the next tick is due.
func (e *entry) ticked(now time.Time) bool { return !e.tick.IsZero() && !e.tickAt().After(now) }

// compose is what to claim at an instant; nil: nothing. What was cut short comes first, then what
// was asked for, then the schedule. A tick that falls due ends the tries of the one before it.
func (e *entry) compose(now time.Time) *claim {
	ticked := e.ticked(now)
	c := claim{token: e.token, job: e.job.Name}
	switch {
	case e.asking != nil:
		return e.asking
	case e.behind:
		c.kind = rebase
	case e.busy && ticked:
		c.kind, c.until = scheduled, e.tick
		c.passed = []passed{{first: e.tick, last: e.tick, ticks: 1, outcome: skipped, why: whyOverlap}}
	case e.busy:
		return nil
	case len(e.lost) > 0:
		c.kind, c.run = again, e.lost[0]
	case len(e.requests) > 0:
		c.kind, c.run = requested, e.requests[0]
	case ticked:
		c = e.choose(e.backlog(now))
	case len(e.retries) > 0 && !e.retries[0].at.After(now):
		c.kind, c.run = again, e.retries[0].attempt
	case !e.startAt.IsZero() && !e.startAt.After(now):
		c.kind, c.run = moment, attempt{tick: now.Truncate(time.Microsecond), number: 1}
	default:
		return nil
	}
	return &c
}

// request adds one that was made, unless it is known. One that was claimed must not be claimed
// again: as long as the end of its run is not on record, it would be won again.
func (e *entry) request(r attempt) {
	if _, served := e.served[r.request]; served {
		return
	}
	if !slices.ContainsFunc(e.requests, func(other attempt) bool { return other.request == r.request }) {
		e.requests = append(e.requests, r)
	}
}

// fail notes that what failed is to be tried again. Something else that failed may wait for that too.
func (e *entry) fail(next retry) {
	e.retries = append(e.retries, next)
	slices.SortStableFunc(e.retries, func(a, b retry) int { return a.at.Compare(b.at) })
}

// pausedRest is how often a Continuous job that is paused asks whether it still is, where nobody says
// that it is resumed.
const pausedRest = 30 * time.Second

// judge takes the verdict on what was asked, and sets what comes next. It returns the run that
// begins, if one does.
func (e *entry) judge(c claimed, now time.Time) *run {
	asked := *e.asking
	switch c.verdict {
	case early: // by the database's clock it is still to come; an older one may be due
		e.asking, e.unsure = nil, false
		e.ahead, e.rest = max(0, now.Sub(c.now)), now.Add(time.Millisecond)
		return nil
	case locked: // where an answer was lost before, it still is
		e.rest = now.Add(soon())
		if !e.unsure {
			e.asking = nil
		}
		return nil
	case rebased: // ticks that are due and not claimed yet are behind the clock that was set back, or are to come again
		e.asking, e.unsure, e.behind = nil, false, false
		e.since, e.tick = earlier(e.since, c.now), e.job.Schedule.Next(earlier(c.last, c.now))
		return nil
	}
	e.asking, e.unsure, e.ahead, e.rest = nil, false, 0, time.Time{}
	e.settle(asked, c, now)
	if c.verdict != won || c.run == 0 {
		return nil
	}
	started := run{id: c.run, attempt: asked.run}
	started.number = c.attempt
	e.begin(c.run, now)
	return &started
}

// knows reports whether a run was begun here before. The database takes a run of this term that has
// not ended for one whose answer was lost; but where the clock was set back, or the end of the run is
// not on record yet, its tick may have fallen due again.
func (e *entry) knows(run int64) bool {
	_, known := e.begun[run]
	return known
}

// begin notes that a run begins. What is due by then did not fall due during it, whether it waited
// for what came first or for the answer to a claim, and is for the job's policy to judge once the run
// has ended.
func (e *entry) begin(run int64, now time.Time) {
	maps.DeleteFunc(e.begun, func(_ int64, recorded <-chan struct{}) bool { return recorded != nil && isClosed(recorded) })
	if e.begun == nil {
		e.begun = map[int64]<-chan struct{}{}
	}
	e.begun[run] = nil
	if !e.catchingUp {
		e.began = now
	}
	e.busy, e.ended = true, time.Time{}
	e.catchingUp = e.ticked(now)
}

// setBack moves what the entry has noted by a clock that has been set back since.
func (e *entry) setBack(by time.Duration) {
	for i := range e.retries {
		e.retries[i].at = e.retries[i].at.Add(-by)
	}
	for _, t := range []*time.Time{&e.startAt, &e.rest, &e.began, &e.ended} {
		if !t.IsZero() {
			*t = t.Add(-by)
		}
	}
	e.behind, e.ahead = !e.tick.IsZero(), max(0, e.ahead-by)
}

// settle takes what was claimed off what is to be claimed.
func (e *entry) settle(asked claim, c claimed, now time.Time) {
	switch asked.kind {
	case scheduled:
		e.retries = nil
		e.tick = e.job.Schedule.Next(later(asked.until, c.last))
		e.catchingUp = e.catchingUp && e.ticked(now)
	case again:
		if len(e.lost) > 0 {
			e.lost = e.lost[1:]
		} else {
			e.retries = slices.DeleteFunc(e.retries, func(r retry) bool {
				return r.request == asked.run.request && r.tick.Equal(asked.run.tick) && r.number == asked.run.number
			})
		}
	case requested:
		if e.served == nil {
			e.served = map[int64]struct{}{}
		}
		e.served[asked.run.request] = struct{}{}
		e.requests = e.requests[1:]
	case moment:
		e.startAt, e.paused = time.Time{}, c.verdict == paused
		switch c.verdict {
		case taken: // this very microsecond was
			e.startAt = now
		case paused:
			e.startAt = now.Add(pausedRest)
		}
	}
}

func later(a, b time.Time) time.Time {
	if b.After(a) {
		return b
	}
	return a
}

func earlier(a, b time.Time) time.Time {
	if b.Before(a) {
		return b
	}
	return a
}
