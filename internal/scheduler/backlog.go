package scheduler

import (
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

// A backlog is what the schedule has from one tick, which is due, to an instant.
type backlog struct {
	older passed      // ticks that are not listed; none if its count is 0
	ticks []time.Time // the newest, in order; never empty
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

// writeOff makes rows of ticks, in order: skipped where they fell due while the job ran, else missed.
func (e *entry) writeOff(b backlog, ticks []time.Time) []passed {
	var rows []passed
	row := func(p passed) passed {
		switch at := p.last.Add(e.offset); {
		case !at.After(e.since):
			p.outcome, p.why = missed, whyUnled
		case at.After(e.began) && !at.After(e.ended):
			p.outcome, p.why = skipped, whyOverlap
		default:
			p.outcome, p.why = missed, whyLate
		}
		return p
	}
	if b.older.ticks > 0 {
		rows = append(rows, row(b.older))
	}
	for _, t := range ticks {
		rows = append(rows, row(passed{first: t, last: t, ticks: 1}))
	}
	return rows
}

// choose is the claim for a backlog, by the job's policy.
func (e *entry) choose(b backlog) claim {
	c := claim{token: e.token, job: e.job.Name, kind: scheduled}
	run := len(b.ticks) - 1
	switch {
	case e.job.Missed == registry.RunAll:
		run = max(0, len(b.ticks)-registry.MissedBound)
	case e.job.Missed == registry.RunNone && !b.ticks[run].Add(e.offset).After(e.since):
		run++ // none
	}
	c.passed = e.writeOff(b, b.ticks[:run])
	c.until = b.ticks[min(run, len(b.ticks)-1)]
	if run < len(b.ticks) {
		c.run = attempt{tick: b.ticks[run], number: 1}
	}
	return c
}
