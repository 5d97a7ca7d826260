package cron

import (
	"fmt"
	"math/bits"
)

// star is the library's mark for a field that was * or ?.
const star = 1 << 63

// Words says the schedule the way people do, such as "daily at 08:00 Europe/Berlin"; empty where
// the spec itself is the clearest way.
func (s Schedule) Words() string {
	if s.spec.Location == nil || s.spec.Dom&star == 0 || s.spec.Month&star == 0 || s.spec.Dow&star == 0 {
		return ""
	}
	second, atSecond := only(s.spec.Second)
	minute, atMinute := only(s.spec.Minute)
	hour, atHour := only(s.spec.Hour)
	everyMinute, everyHour := s.spec.Minute&star != 0, s.spec.Hour&star != 0
	switch {
	case s.spec.Second&star != 0 && everyMinute && everyHour:
		return "every second"
	case !atSecond || second != 0:
		return ""
	case everyMinute && everyHour:
		return "every minute"
	case atMinute && everyHour:
		return fmt.Sprintf("hourly at minute %d", minute)
	case atMinute && atHour:
		return fmt.Sprintf("daily at %02d:%02d %s", hour, minute, s.spec.Location)
	}
	return ""
}

// only is the one value of a field that has one.
func only(field uint64) (value int, ok bool) {
	return bits.TrailingZeros64(field), bits.OnesCount64(field) == 1
}
