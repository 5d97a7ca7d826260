package lease

import (
	"time"

	"golang.org/x/sys/unix"
)

// sinceBoot is the time since the machine started, the time that it was suspended included.
//
// Go's monotonic clock stands still while a machine is suspended, and its timers with it, whereas
// the lease runs out all the same (golang/go#24595).
func sinceBoot() time.Duration {
	var ts unix.Timespec
	if err := unix.ClockGettime(unix.CLOCK_BOOTTIME, &ts); err != nil {
		// Only an unknown clock can fail, and every kernel since 2.6.39 has this one.
		panic("read CLOCK_BOOTTIME: " + err.Error())
	}
	return time.Duration(ts.Nano())
}
