//go:build race

package jobs

import "runtime"

// One thread, for the race detector's sake: the runtime gives all timers of a synctest bubble one
// context of the detector, and two threads that run two of them at once crash it (seen with Go
// 1.26.8 about once in thirty runs: SIGSEGV in __tsan::TraceSwitchPart under time.sendTime). Races
// are still found, since the detector goes by the order of events and not by their coincidence.
func init() { runtime.GOMAXPROCS(1) }
