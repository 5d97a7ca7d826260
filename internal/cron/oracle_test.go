package cron

import (
	"fmt"
	"testing"
	"time"
)

// The oracle is the rule of doc.go in slow and obvious words: it looks at a zone's clock at every
// tick of a stretch of time, and says at which of them an entry is due. It has its own idea of what
// an entry allows, and shares nothing with the walk but Go's account of what the clock shows.

// A reading is what the clock shows at one tick.
type reading struct {
	second, minute, hour, date, month, weekday int

	number int64 // of the ticks from some midnight to what is shown: the next reading has the next number
	again  bool  // the clock has shown it before
	missed []reading
}

// A watch is a zone's clock at each tick of a stretch of time around one of its changes.
type watch struct {
	zone     string
	change   int64 // the instant of the change, as all of them in seconds since 1970
	from     int64 // the instant from which on the watch knows what is due
	begins   int64
	tick     int64 // 60 or 1 seconds
	readings []reading
}

// watchClock looks at a zone's clock from before a change to after it, each in ticks. What is shown
// in the ticks of history, which come earlier still, serves only to know what is shown again.
func watchClock(t *testing.T, zone string, change, tick, history, before, after int64) *watch {
	t.Helper()
	in, err := location(zone)
	if err != nil {
		t.Fatal(err)
	}
	w := &watch{zone: zone, change: change, tick: tick, from: change - before*tick, begins: change - (history+before)*tick}
	w.readings = make([]reading, 0, history+before+after)
	shown := map[int64]bool{}
	for i := range history + before + after {
		r := read(time.Unix(w.begins+i*tick, 0).In(in), tick)
		if i > 0 {
			w.jump(&r, w.readings[i-1].number, shown)
		}
		r.again = shown[r.number]
		shown[r.number] = true
		w.readings = append(w.readings, r)
	}
	return w
}

// jump notes what the clock has skipped since its last reading, if that is to be made up.
func (w *watch) jump(r *reading, last int64, shown map[int64]bool) {
	if r.number-last-1 > 3*3600/w.tick {
		return
	}
	for number := last + 1; number < r.number; number++ {
		if !shown[number] {
			r.missed = append(r.missed, read(time.Unix(number*w.tick, 0).UTC(), w.tick))
		}
	}
}

func read(clock time.Time, tick int64) reading {
	year, month, date := clock.Date()
	hour, minute, second := clock.Clock()
	return reading{
		second: second, minute: minute, hour: hour, date: date, month: int(month), weekday: int(clock.Weekday()),
		number: time.Date(year, month, date, hour, minute, second, 0, time.UTC).Unix() / tick,
	}
}

// due are the instants from w.from on at which an entry is due.
func (w *watch) due(e entry) []int64 {
	var due []int64
	for i, r := range w.readings {
		at := w.begins + int64(i)*w.tick
		if at <= w.from {
			continue
		}
		is := e.allows(r)
		if !e.elapsed() {
			is = is && !r.again
			for _, missed := range r.missed {
				is = is || e.allows(missed)
			}
		}
		if is {
			due = append(due, at)
		}
	}
	return due
}

// ends is the first instant that the watch knows nothing about.
func (w *watch) ends() int64 { return w.begins + int64(len(w.readings))*w.tick }

// A column is one field of an entry.
type column struct {
	text   string
	allows [60]bool
	star   bool // it restricts nothing
}

// An entry is a spec that is known without having been parsed.
type entry struct {
	second, minute, hour, date, month, weekday column
	seconds                                    bool // the spec has six fields
}

func (e entry) String() string {
	spec := fmt.Sprintf("%s %s %s %s %s", e.minute.text, e.hour.text, e.date.text, e.month.text, e.weekday.text)
	if e.seconds {
		return e.second.text + " " + spec
	}
	return spec
}

func (e entry) elapsed() bool {
	for _, text := range []string{e.minute.text, e.hour.text} {
		if text[0] == '*' || text[0] == '?' {
			return true
		}
	}
	return false
}

func (e entry) allows(r reading) bool {
	return e.minute.allows[r.minute] && e.hour.allows[r.hour] && e.second.allows[r.second] && e.allowsDate(r.date, r.month, r.weekday)
}

func (e entry) allowsDate(date, month, weekday int) bool {
	if !e.month.allows[month] {
		return false
	}
	if e.date.star || e.weekday.star {
		return e.date.allows[date] && e.weekday.allows[weekday]
	}
	return e.date.allows[date] || e.weekday.allows[weekday]
}

// allowsSomeDate looks at each day of eight years.
func (e entry) allowsSomeDate() bool {
	for d := time.Date(2024, 1, 1, 0, 0, 0, 0, time.UTC); d.Year() < 2032; d = d.AddDate(0, 0, 1) {
		if e.allowsDate(d.Day(), int(d.Month()), int(d.Weekday())) {
			return true
		}
	}
	return false
}
