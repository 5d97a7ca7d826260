package cron

import "time"

const (
	// made is the longest jump of the wall clock whose skipped times are made up, as with cron: a
	// longer one is a change of the calendar, such as Samoa's over the date line, and not of summer
	// time.
	made = 3 * 60 * 60

	// widest is more than any zone is or was away from UTC.
	widest = 16 * 60 * 60
)

// nextOnWall is the next instant of a schedule with fixed times. Each of them is due when the
// zone's wall clock first shows it or, if it jumps over it, when it jumps. A clock that is set back
// thus makes nothing due again, and one that jumps makes due at once all that it skipped.
//
// Wall times are due in their own order, so that the first one that the clock has never reached is
// the next one due.
func nextOnWall(f fields, in *time.Location, after int64) (int64, bool) {
	for w := furthest(in, after); ; {
		var ok bool
		if w, ok = f.after(w); !ok {
			return 0, false
		}
		at, jumped := reached(in, w)
		if jumped <= made {
			return at, true
		}
		offset, _ := span(in, at)
		w = wall(at+offset) - 1 // what was skipped is lost, and what the clock shows now is not
	}
}

// furthest is the latest wall time that the zone's clock has shown up to an instant.
func furthest(in *time.Location, until int64) wall {
	latest := wall(-forever)
	for at := until - 2*widest; at <= until; {
		offset, end := span(in, at)
		latest = max(latest, wall(min(end-1, until)+offset))
		at = end
	}
	return latest
}

// reached is the first instant at which the zone's clock shows a wall time or a later one, and by
// how much the clock jumps at that instant to get past it; 0 where it shows the time itself.
func reached(in *time.Location, w wall) (at, jumped int64) {
	at = int64(w) - widest
	before, end := span(in, at)
	for offset := before; ; offset, end = span(in, at) {
		exactly := int64(w) - offset
		if exactly < at {
			return at, offset - before
		}
		if exactly < end {
			return exactly, 0
		}
		before, at = offset, end
	}
}

// nextElapsed is the next instant of a schedule that follows elapsed time: any at which the zone's
// wall clock shows a time that the fields allow, be it for the second time.
func nextElapsed(f fields, in *time.Location, after int64) (int64, bool) {
	// A time that is skipped in one year is not in all, and until a date comes round it is eight years.
	for at, last := after+1, after+4*horizon*366*day; at < last; {
		offset, end := span(in, at)
		w, ok := f.after(wall(at + offset - 1))
		if !ok {
			return 0, false
		}
		if at = int64(w) - offset; at < end {
			return at, true
		}
		at = end
	}
	return 0, false
}
