package cron

import (
	"fmt"
	"math/bits"
	"strings"
	"time"
)

// wordy is the most characters of Words.
const wordy = 80

// Words says the schedule the way people do, in at most 80 characters, such as "daily at 08:00
// Europe/Berlin" or "every 5 minutes"; empty where the spec itself is the clearest way.
func (s Schedule) Words() string {
	if s.zone == nil {
		return ""
	}
	said := s.fields.oftenInWords(s.zone)
	if said == "" {
		said = s.fields.datesInWords(s.zone)
	}
	if len(said) > wordy {
		return ""
	}
	return said
}

const (
	everySecond = 1<<60 - 1
	everyMinute = everySecond
	everyHour   = 1<<24 - 1
	everyMonth  = 1<<13 - 2
	everyWeek   = 1<<7 - 1
)

// oftenInWords is for what runs many times a day, every day alike.
func (f fields) oftenInWords(in *time.Location) string {
	if !f.elapsed || f.month != everyMonth || f.dom&star == 0 || f.dow&star == 0 {
		return "" // with fixed hours a change of the offset makes them irregular
	}
	minute, atMinute := only(f.minute)
	second, atSecond := only(f.second)
	switch {
	case f.hour == everyHour && f.minute == everyMinute && f.second == everySecond:
		return "every second"
	case f.hour == everyHour && f.minute == everyMinute && step(f.second, 60) > 0:
		return fmt.Sprintf("every %d seconds", step(f.second, 60))
	case !atSecond || second != 0:
		return ""
	case f.hour == everyHour && f.minute == everyMinute:
		return "every minute"
	case f.hour == everyHour && step(f.minute, 60) > 0:
		return fmt.Sprintf("every %d minutes", step(f.minute, 60))
	case f.hour == everyHour && atMinute:
		return fmt.Sprintf("hourly at minute %d%s", minute, elsewhere(in))
	case step(f.hour, 24) > 0 && atMinute:
		return fmt.Sprintf("every %d hours at minute %d%s", step(f.hour, 24), minute, elsewhere(in))
	}
	return ""
}

// elsewhere is a zone that need not be named where it is UTC. Others may be half an hour away.
func elsewhere(in *time.Location) string {
	if in == time.UTC {
		return ""
	}
	return " " + in.String()
}

// datesInWords is for fixed times on some days.
func (f fields) datesInWords(in *time.Location) string {
	days, times := f.daysInWords(), f.timesInWords()
	if f.elapsed || days == "" || times == "" {
		return ""
	}
	return fmt.Sprintf("%s at %s %s", days, times, in)
}

func (f fields) daysInWords() string {
	anyDate, anyWeekday := f.dom&star != 0, f.dow&star != 0
	date, atDate := only(f.dom)
	month, atMonth := only(f.month)
	switch {
	case anyDate && anyWeekday && f.month == everyMonth:
		return "daily"
	case anyDate && f.month == everyMonth:
		return weekdaysInWords(f.dow)
	case anyWeekday && atDate && f.month == everyMonth:
		if date > 28 {
			return fmt.Sprintf("on the %s of each month that has one", ordinal(date))
		}
		return fmt.Sprintf("on the %s of each month", ordinal(date))
	case anyWeekday && atDate && atMonth:
		return fmt.Sprintf("every %d %v", date, time.Month(month))
	}
	return ""
}

func weekdaysInWords(days uint64) string {
	const sunday, saturday = 1 << time.Sunday, 1 << time.Saturday
	switch days {
	case everyWeek:
		return "daily"
	case everyWeek &^ (sunday | saturday):
		return "weekdays (Mon-Fri)"
	case sunday | saturday:
		return "weekends (Sat, Sun)"
	}
	if bits.OnesCount64(days) > 3 {
		return ""
	}
	var names []string
	for weekday := next(days, 0); weekday != none; weekday = next(days, weekday+1) {
		names = append(names, time.Weekday(weekday).String()+"s")
	}
	return list(names)
}

// timesInWords are up to three times of day.
func (f fields) timesInWords() string {
	if f.second != 1 || bits.OnesCount64(f.hour)*bits.OnesCount64(f.minute) > 3 {
		return ""
	}
	var times []string
	for hour := next(f.hour, 0); hour != none; hour = next(f.hour, hour+1) {
		for minute := next(f.minute, 0); minute != none; minute = next(f.minute, minute+1) {
			times = append(times, fmt.Sprintf("%02d:%02d", hour, minute))
		}
	}
	return list(times)
}

// list joins words with commas and an "and".
func list(words []string) string {
	last := len(words) - 1
	if last < 1 {
		return strings.Join(words, "")
	}
	return strings.Join(words[:last], ", ") + " and " + words[last]
}

// only is the one value of a field that has one.
func only(field uint64) (value int, ok bool) {
	return bits.TrailingZeros64(field), bits.OnesCount64(field) == 1
}

// step is the distance between the values of a field that has them at 0 and regularly, from one
// round of it to the next too; 0 for any other field, and for one with a single value.
func step(field uint64, size int) int {
	n := bits.OnesCount64(field)
	if n < 2 || n == size || size%n != 0 {
		return 0
	}
	for value := 0; value < size; value += size / n {
		if !has(field, value) {
			return 0
		}
	}
	return size / n
}

func ordinal(n int) string {
	suffix := "th"
	if n/10 != 1 {
		switch n % 10 {
		case 1:
			suffix = "st"
		case 2:
			suffix = "nd"
		case 3:
			suffix = "rd"
		}
	}
	return fmt.Sprintf("%d%s", n, suffix)
}
