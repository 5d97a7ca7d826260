//go:build !linux

package lease

import "time"

var started = time.Now()

// sinceBoot is the time since the process started, by whichever is ahead of the wall clock and the
// monotonic one: the latter may stand still while a machine is suspended. A wall clock set forward
// ends terms early, which is safe; one set back leaves the monotonic clock in charge.
func sinceBoot() time.Duration {
	mono := time.Since(started)
	wall := time.Now().Round(0).Sub(started.Round(0))
	return max(mono, wall)
}
