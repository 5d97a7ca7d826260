package cron

import (
	"errors"
	"fmt"
	"regexp"
	"strings"
	"time"

	robfig "github.com/robfig/cron/v3"
)

// A Schedule is a parsed spec in its zone. It is a small value that may be compared by ==; two that
// come from the same spec and zone are equal.
type Schedule struct{ spec robfig.SpecSchedule }

// reference is where Parse begins to look for an instant at all. It is a fixed one, so that what is
// accepted does not depend on the day, and there is a 29 February within the year.
var reference = time.Date(2024, time.January, 1, 0, 0, 0, 0, time.UTC)

// ZonePrefix may stand before a spec, with the zone's name and a space: "CRON_TZ=Asia/Tokyo 0 6 * * *".
const ZonePrefix = "CRON_TZ="

// Parse returns the schedule of a spec in the zone of that name. An empty zone is UTC, unless the
// spec itself begins with ZonePrefix; giving it both ways is an error.
func Parse(spec, zone string) (Schedule, error) {
	fields := strings.Fields(spec)
	if len(fields) > 0 && strings.HasPrefix(fields[0], ZonePrefix) {
		if zone != "" {
			return Schedule{}, fmt.Errorf("%q has a zone of its own, and %q is given beside it: give one of them", spec, zone)
		}
		if zone = strings.TrimPrefix(fields[0], ZonePrefix); zone == "" {
			return Schedule{}, fmt.Errorf("%q: there is no zone after %s", spec, ZonePrefix)
		}
		fields = fields[1:]
	}
	in, err := location(zone)
	if err != nil {
		return Schedule{}, err
	}
	if err := check(fields); err != nil {
		return Schedule{}, fmt.Errorf("%q: %w", spec, err)
	}
	parsed, err := parse(fields)
	if err != nil {
		return Schedule{}, fmt.Errorf("%q: %w", spec, err)
	}
	parsed.Location = in
	s := Schedule{parsed}
	if s.Next(reference).IsZero() {
		return Schedule{}, fmt.Errorf("%q: no date ever matches: look at the day and the month", spec)
	}
	return s, nil
}

var descriptors = map[string]bool{
	"@yearly": true, "@annually": true, "@monthly": true, "@weekly": true, "@daily": true, "@midnight": true, "@hourly": true,
}

// fieldPattern is a list of *, ?, values and ranges, each with a step or without. The parser checks
// the values; it would take signs and empty parts too.
var fieldPattern = func() *regexp.Regexp {
	const value = `(?:[0-9]{1,2}|[A-Za-z]{3})`
	const part = `(?:[*?]|` + value + `(?:-` + value + `)?)(?:/[0-9]{1,4})?`
	return regexp.MustCompile(`^` + part + `(?:,` + part + `)*$`)
}()

// check is stricter than the parser.
func check(fields []string) error {
	if len(fields) == 0 {
		return errors.New("it is empty: give it five fields, six with seconds, or @daily and the like")
	}
	if first := fields[0]; strings.HasPrefix(first, "@") {
		switch {
		case first == "@reboot":
			return errors.New("@reboot has no meaning where leaders change: use Continuous, or a time")
		case first == "@every":
			return errors.New("@every is not a cron schedule here: use Every")
		case !descriptors[first] || len(fields) > 1:
			return errors.New("the descriptors are @yearly, @annually, @monthly, @weekly, @daily, @midnight and @hourly, alone and in small letters")
		}
		return nil
	}
	if strings.HasPrefix(fields[0], "TZ=") {
		return errors.New("a zone is given by CRON_TZ=")
	}
	if n := len(fields); n != 5 && n != 6 {
		return fmt.Errorf("it has %d fields: it must have five (minute, hour, day, month, weekday), or six with seconds first", n)
	}
	for _, field := range fields {
		if !fieldPattern.MatchString(field) {
			return fmt.Errorf("field %q: it must be numbers, names of three letters, ranges and steps such as 5, 1-5, */10 or MON,WED", field)
		}
	}
	return nil
}

const standard = robfig.Minute | robfig.Hour | robfig.Dom | robfig.Month | robfig.Dow | robfig.Descriptor

// parse calls the library's parser, which has panicked before on what nobody had thought of.
func parse(fields []string) (_ robfig.SpecSchedule, err error) {
	defer func() {
		if p := recover(); p != nil {
			err = fmt.Errorf("the parser cannot read it: %v", p)
		}
	}()
	options := standard
	if len(fields) == 6 {
		options |= robfig.Second
	}
	parsed, err := robfig.NewParser(options).Parse(strings.Join(fields, " "))
	if err != nil {
		return robfig.SpecSchedule{}, err
	}
	s, ok := parsed.(*robfig.SpecSchedule)
	if !ok {
		return robfig.SpecSchedule{}, fmt.Errorf("it is a %T", parsed)
	}
	return *s, nil
}

// Next is the first instant after the given one, in UTC and on a whole second. It is the zero time
// only for the zero Schedule.
func (s Schedule) Next(after time.Time) time.Time {
	if s.spec.Location == nil {
		return time.Time{}
	}
	// The library gives up after five years; two leap days may be eight years apart.
	for from, tries := after.In(s.spec.Location), 0; tries < 3; from, tries = from.AddDate(4, 0, 0), tries+1 {
		if next := s.spec.Next(from); next.After(after) {
			return next.UTC()
		}
	}
	return time.Time{}
}
