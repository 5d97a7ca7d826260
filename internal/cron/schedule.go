package cron

import (
	"fmt"
	"strings"
	"time"
)

// A Schedule is a parsed spec in its zone. It is a small value that may be compared by ==; two that
// come from the same spec and zone are equal.
type Schedule struct {
	fields fields
	zone   *time.Location // nil only in the zero Schedule
	text   string         // the fields as they were given, with a space between them
}

// ZonePrefix may stand before a spec, with the zone's name and a space: "CRON_TZ=Asia/Tokyo 0 6 * * *".
const ZonePrefix = "CRON_TZ="

// longest is the most bytes of a spec; five full lists fit. It keeps errors and pages readable.
const longest = 1000

// reference is where Parse begins to look for a date at all. It is a fixed one, so that what is
// accepted does not depend on the day.
var reference = time.Date(2024, time.January, 1, 0, 0, 0, 0, time.UTC)

// Parse returns the schedule of a spec of five or six fields, or of a descriptor, in the zone of
// that name. An empty zone is UTC, unless the spec itself begins with ZonePrefix; giving it both
// ways is an error. So is a spec that no date ever matches. An error is one line, and says what to
// give instead.
func Parse(spec, zone string) (Schedule, error) { return parse(spec, zone, 5, 6) }

// parse is Parse for specs of as many fields as one of counts says.
func parse(spec, zone string, counts ...int) (Schedule, error) {
	if len(spec) > longest {
		return Schedule{}, fmt.Errorf("the spec is longer than %d bytes: give ranges and steps instead of lists", longest)
	}
	texts := strings.Fields(spec)
	if len(texts) > 0 && strings.HasPrefix(texts[0], ZonePrefix) {
		if zone != "" {
			return Schedule{}, fmt.Errorf("%q has a zone of its own, and %q is given beside it: give one of them", spec, zone)
		}
		if zone = strings.TrimPrefix(texts[0], ZonePrefix); zone == "" {
			return Schedule{}, fmt.Errorf("%q: there is no zone after %s", spec, ZonePrefix)
		}
		texts = texts[1:]
	}
	in, err := location(zone)
	if err != nil {
		return Schedule{}, err
	}
	if err := check(texts, counts); err != nil {
		return Schedule{}, fmt.Errorf("%q: %w", spec, err)
	}
	parsed, err := parseFields(texts)
	if err != nil {
		return Schedule{}, fmt.Errorf("%q: %w", spec, err)
	}
	if _, ok := parsed.after(wall(reference.Unix())); !ok {
		return Schedule{}, fmt.Errorf("%q: no date ever matches: look at the day and the month", spec)
	}
	return Schedule{fields: parsed, zone: in, text: strings.Join(texts, " ")}, nil
}

// Next is the first instant after the given one, in UTC and on a whole second. It depends on the
// spec, the zone's name and the instant alone, takes microseconds, and is the zero time only for
// the zero Schedule and beyond the years 1 to 9999.
func (s Schedule) Next(after time.Time) time.Time {
	if year := after.UTC().Year(); s.zone == nil || year < 1 || year > 9999 {
		return time.Time{}
	}
	walk := nextOnWall
	if s.fields.elapsed {
		walk = nextElapsed
	}
	at, ok := walk(s.fields, s.zone, after.Unix())
	if !ok {
		return time.Time{}
	}
	return time.Unix(at, 0).UTC()
}
