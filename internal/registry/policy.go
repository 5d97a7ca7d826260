package registry

import "time"

// Retry says how often a run is tried again. A try again is a further attempt at the same tick; a
// newer tick, or the end of the term, ends the tries.
type Retry struct {
	// Attempts is how often a tick is tried in all; 0 and 1: once.
	Attempts int
	// Pause is the time before the second attempt; it doubles with each further one, and is varied
	// by up to a quarter. 0: a second.
	Pause time.Duration
	// Longest bounds the pause; 0: five minutes.
	Longest time.Duration
}

// The pauses of a Retry that gives none.
const (
	DefaultPause   = time.Second
	DefaultLongest = 5 * time.Minute
)

// After is the pause after an attempt, counted from 1, before it is varied; false: there is no
// further attempt.
func (r Retry) After(attempt int) (time.Duration, bool) {
	if attempt >= r.Attempts {
		return 0, false
	}
	pause, longest := r.Pause, r.Longest
	if pause == 0 {
		pause = DefaultPause
	}
	if longest == 0 {
		longest = max(DefaultLongest, pause)
	}
	for range attempt - 1 {
		if pause >= longest/2 {
			return longest, true
		}
		pause *= 2
	}
	return min(pause, longest), true
}

// Missed is a policy for ticks that fell due while nobody led. Whatever it is, each of them is on
// record.
type Missed int

const (
	// RunLatest runs the newest of them once, and records the others as missed.
	RunLatest Missed = iota
	// RunAll runs each of them in turn, the newest MissedBound of them at most, and records older ones
	// as missed.
	RunAll
	// RunNone records all of them as missed.
	RunNone
)

// MissedBound is how many missed ticks RunAll makes up for.
const MissedBound = 100

// Overlap is a policy for a tick that falls due during a run. A job never overlaps itself.
type Overlap int

const (
	// Skip records it as skipped.
	Skip Overlap = iota
	// Queue runs it after the run; of several, the newest is run and the others are recorded as skipped.
	Queue
)

// IfLost is a policy for a tick whose run was lost: its replica died or lost its lease, and nobody
// knows how far it came.
type IfLost int

const (
	// RunAgain has the next term run the tick again, as its next attempt; LostBound times at most, or
	// as often as Retry allows where that is more, since a run may be what kills its replica.
	RunAgain IfLost = iota
	// LeaveIt leaves the tick as lost.
	LeaveIt
)

// LostBound is how many attempts a tick gets whose runs are lost.
const LostBound = 3

func (m Missed) String() string  { return word(int(m), "run latest", "run all", "run none") }
func (o Overlap) String() string { return word(int(o), "skip", "queue") }
func (i IfLost) String() string  { return word(int(i), "run again", "leave it") }

func word(i int, words ...string) string {
	if i < 0 || i >= len(words) {
		return "unknown"
	}
	return words[i]
}
