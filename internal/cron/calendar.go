package cron

import (
	"math/bits"
	"time"
)

// A wall is what a clock on the wall shows, with its calendar: as many seconds after midnight of
// 1970-01-01 as it would be in a zone without changes. It is no instant; a zone makes it one.
type wall int64

const day = 24 * 60 * 60

// horizon is how far ahead a date is sought. There are eight years between the leap days around
// 2100, and no date is rarer: a day that must fall on a weekday too is one that a star allows.
const horizon = 9

// after is the first wall time later than w that the fields allow; false where there is none.
func (f fields) after(w wall) (wall, bool) {
	w++
	date := time.Unix(int64(w), 0).UTC()
	midnight := wall(date.Unix() - int64(date.Hour()*3600+date.Minute()*60+date.Second()))
	if has(f.days(date.Year(), date.Month()), date.Day()) {
		if clock, ok := f.clockFrom(date.Clock()); ok {
			return midnight + clock, true
		}
	}
	midnight, ok := f.dateAfter(date)
	return midnight + f.clockAt(next(f.hour, 0), next(f.minute, 0)), ok
}

// dateAfter is the midnight of the first date later than a given one that the fields allow.
func (f fields) dateAfter(date time.Time) (wall, bool) {
	year, month, from := date.Year(), date.Month(), date.Day()+1
	for last := year + horizon; year <= last; {
		if d := next(f.days(year, month), from); d != none {
			return wall(time.Date(year, month, d, 0, 0, 0, 0, time.UTC).Unix()), true
		}
		from = 1
		if month++; month > time.December {
			year, month = year+1, time.January
		}
	}
	return 0, false
}

// days are the days of one month that the fields allow, a bit for each. As with the library, a date
// must suit both day fields if either has a star, and else one of them.
func (f fields) days(year int, month time.Month) uint64 {
	if !has(f.month, int(month)) {
		return 0
	}
	first := time.Date(year, month, 1, 0, 0, 0, 0, time.UTC).Weekday()
	last := time.Date(year, month+1, 0, 0, 0, 0, 0, time.UTC).Day()

	const weeks = 1 | 1<<7 | 1<<14 | 1<<21 | 1<<28
	week := f.dow &^ star
	week = week>>first | week<<(7-first)&(1<<7-1) // from the weekday of the first on
	dow, dom := week*weeks<<1, f.dom&^star

	month31 := uint64(1)<<(last+1) - 2
	if f.dom&star != 0 || f.dow&star != 0 {
		return dom & dow & month31
	}
	return (dom | dow) & month31
}

// clockFrom is the first time of day, from the given one on, that the fields allow.
func (f fields) clockFrom(hour, minute, second int) (wall, bool) {
	if has(f.hour, hour) {
		if has(f.minute, minute) {
			if s := next(f.second, second); s != none {
				return wall(hour*3600 + minute*60 + s), true
			}
		}
		if m := next(f.minute, minute+1); m != none {
			return f.clockAt(hour, m), true
		}
	}
	if h := next(f.hour, hour+1); h != none {
		return f.clockAt(h, next(f.minute, 0)), true
	}
	return 0, false
}

// clockAt is the first time of day within a minute that the fields allow.
func (f fields) clockAt(hour, minute int) wall {
	return wall(hour*3600 + minute*60 + bits.TrailingZeros64(f.second))
}
