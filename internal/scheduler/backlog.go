package scheduler

import (
	"slices"
	"time"

	"rota/internal/registry"
)

// Bounds on what one claim writes off. Of a longer gap the newest ticks have rows of their own, and
// the older ones share one, so that a job of every second that nobody led for a year does not take
// a year's rows before it runs again.
const (
	listedAll    = 1200
	listedNewest = registry.MissedBound
	countedTicks = 10_000
)

// longGap is from how many ticks on a backlog is found apart from the ticker's turn, for that of a year
// takes milliseconds.
const longGap = 128

// A backlog is what the schedule has from one tick, which is due, to an instant.
type backlog struct {
	older passed      // ticks that are not listed; none if its count is 0
	ticks []time.Time // the newest, in order; never empty
}

// A gap is a backlog that was found beforehand, from a tick on.
type gap struct {
	from, until time.Time
	backlog
}

// long is the gap that is to be walked before the entry can be claimed; nil: it can be.
func (e *entry) long(now time.Time) *gap {
	if e.asking != nil || e.behind || e.busy || len(e.lost) > 0 || len(e.requests) > 0 || !e.ticked(now) {
		return nil
	}
	if e.walked != nil && e.walked.from.Equal(e.tick) {
		return nil
	}
	g := &gap{from: e.tick, until: now.Add(-e.offset - e.ahead)}
	if len(walk(e.job.Schedule, g.from, g.until, longGap)) < longGap {
		return nil
	}
	return g
}

// backlog is what is due at an instant, or was when it was walked: what has come since is for the next
// claim. It is used once, for the clock may have been set back meanwhile.
func (e *entry) backlog(now time.Time) backlog {
	walked := e.walked
	e.walked = nil
	if walked != nil && walked.from.Equal(e.tick) {
		return walked.backlog
	}
	return due(e.job.Schedule, e.tick, now.Add(-e.offset-e.ahead))
}

// due finds the backlog of a schedule.
func due(s registry.Schedule, from, until time.Time) backlog {
	ticks := walk(s, from, until, listedAll)
	if len(ticks) < listedAll {
		return backlog{ticks: ticks}
	}
	ticks = newest(s, from, until, listedNewest)
	last := newest(s, from, ticks[0].Add(-time.Nanosecond), 1)[0]
	return backlog{older: passed{first: from, last: last, ticks: count(s, from, last)}, ticks: ticks}
}

// walk is a tick and those after it, until an instant, a bounded number of them.
func walk(s registry.Schedule, from, until time.Time, bound int) (ticks []time.Time) {
	for t := from; !t.IsZero() && !t.After(until) && len(ticks) < bound; t = s.Next(t) {
		ticks = append(ticks, t)
	}
	return ticks
}

// newest are the last n ticks until an instant, from one that is not after it; fewer if there are
// not so many. It does not count them, for there may be millions: it looks for an instant after
// which there are as many as wanted.
func newest(s registry.Schedule, from, until time.Time, n int) []time.Time {
	found := walk(s, from, until, n+1)
	low, high := from, until
	for len(found) > n && high.Sub(low) > 0 {
		middle := low.Add(high.Sub(low) / 2)
		ticks := walk(s, s.Next(middle), until, n+1)
		switch {
		case len(ticks) > n:
			low = middle.Add(1)
		case len(ticks) < n:
			high = middle
		default:
			found = ticks
		}
	}
	return found
}

// count is how many ticks there are from one to another, or a bound that is not above it.
func count(s registry.Schedule, from, last time.Time) int64 {
	if period := s.Period(); period > 0 {
		return int64(last.Sub(from)/period) + 1
	}
	return int64(len(walk(s, from, last, countedTicks)))
}

// Why ticks pass without a run, as their rows say it.
const (
	whyUnled   = "it fell due while nobody led"
	whyLate    = "it fell due while the database could not be asked, and a newer one was run"
	whyOverlap = "the job was still running"
)

// unled reports whether a tick fell due while nobody led.
func (e *entry) unled(tick time.Time) bool { return !tick.Add(e.offset).After(e.since) }

// overlapped reports whether a tick fell due during the last run.
func (e *entry) overlapped(tick time.Time) bool {
	at := tick.Add(e.offset)
	return at.After(e.began) && !at.After(e.ended)
}

// choose is the claim for a backlog, by the job's policies. With RunAll it goes up to the tick that it
// runs, and the others are for the next claims; else it is all there is.
func (e *entry) choose(b backlog) claim {
	c := claim{token: e.token, job: e.job.Name, kind: scheduled, until: b.ticks[len(b.ticks)-1]}
	run := e.newest(b.ticks)
	if e.job.Missed == registry.RunAll {
		run = e.oldest(b.ticks)
	}
	rest := b.ticks
	if run < len(b.ticks) {
		c.run = attempt{tick: b.ticks[run], number: 1}
		if e.job.Missed == registry.RunAll {
			c.until, rest = c.run.tick, b.ticks[:run]
		}
	}
	if b.older.ticks > 0 {
		c.passed = append(c.passed, e.writeOff(b.older))
	}
	for i, t := range rest {
		if i != run {
			c.passed = append(c.passed, e.writeOff(passed{first: t, last: t, ticks: 1}))
		}
	}
	return c
}

// newest is the index of the newest tick that may be run; len(ticks): none.
func (e *entry) newest(ticks []time.Time) int {
	for i, t := range slices.Backward(ticks) {
		skip := e.job.Overlap == registry.Skip && e.overlapped(t)
		if !skip && (e.job.Missed != registry.RunNone || !e.unled(t)) {
			return i
		}
	}
	return len(ticks)
}

// oldest is the index of the oldest tick that RunAll runs. What fell due during a run is by Overlap's
// policy, unless that run was to catch up: then it is one of those that are to be caught up with.
func (e *entry) oldest(ticks []time.Time) int {
	run := max(0, len(ticks)-registry.MissedBound)
	if e.catchingUp {
		return run
	}
	for i, t := range slices.Backward(ticks) {
		if e.overlapped(t) {
			if e.job.Overlap == registry.Skip {
				i++
			}
			return max(run, i)
		}
	}
	return run
}

// writeOff says why ticks pass: skipped where they fell due while the job ran, else missed.
func (e *entry) writeOff(p passed) passed {
	switch {
	case e.unled(p.last):
		p.outcome, p.why = missed, whyUnled
	case e.overlapped(p.last):
		p.outcome, p.why = skipped, whyOverlap
	default:
		p.outcome, p.why = missed, whyLate
	}
	return p
}
