package registry

import (
	"cmp"
	"errors"
	"fmt"
	"strings"
	"time"

	"rota/internal/cron"
)

// Kind is which of the ways a Schedule was made.
type Kind int

const (
	// Unscheduled is the kind of the zero Schedule, which no job may have.
	Unscheduled Kind = iota
	// Fixed is the kind of Every.
	Fixed
	// Calendar is the kind of Cron.
	Calendar
	// Unbroken is the kind of Continuous.
	Unbroken
	// Asked is the kind of OnDemand.
	Asked
)

// A Schedule says when a job is due. It is a small value that may be compared by ==. Every replica
// computes the same ticks from it: they depend neither on the machine's zone nor on when a process
// started.
type Schedule struct {
	kind     Kind
	every    time.Duration
	spec     string // of Calendar, as given
	zone     string // by In
	cron     cron.Schedule
	misplace string // the zone given to a kind that has none
}

// Continuous runs a job for the whole of each term: its function should return only when its
// context ends or its Draining is closed. One that returns earlier is started again after a pause.
//
// OnDemand never ticks.
var (
	Continuous = Schedule{kind: Unbroken}
	OnDemand   = Schedule{kind: Asked}
)

// shortest is the shortest period of Every.
const shortest = time.Second

// Every ticks at each multiple of d since 1970-01-01 00:00 UTC, so that its phase survives restarts
// and handovers. d is a whole number of seconds.
func Every(d time.Duration) Schedule { return Schedule{kind: Fixed, every: d} }

// Cron ticks where the spec matches: five fields, six with seconds first, or a descriptor such as
// @daily. It is in UTC, unless In puts it elsewhere or the spec begins with CRON_TZ= and a zone.
func Cron(spec string) Schedule { return calendar(spec, "") }

// In puts a Cron schedule into the IANA zone of that exact name, such as "Europe/Berlin".
func (s Schedule) In(zone string) Schedule {
	if s.kind != Calendar || zone == "" {
		s.misplace = fmt.Sprintf("In(%q)", zone)
		return s
	}
	return calendar(s.spec, zone)
}

// ParseSchedule reads what a person writes: "every 5s", "continuous", "on demand", or a cron spec,
// which is in the zone if one is given. Only a cron spec has a zone: for the others it is ignored.
func ParseSchedule(text, zone string) (Schedule, error) {
	text = typed(text)
	period, fixed := strings.CutPrefix(text, "every ")
	switch {
	case text == Continuous.String():
		return Continuous, nil
	case text == OnDemand.String():
		return OnDemand, nil
	case fixed:
		every, err := time.ParseDuration(strings.ReplaceAll(period, " ", ""))
		if err != nil {
			return Schedule{}, fmt.Errorf(`%q: after "every" comes a duration with its unit, such as "every 5s"`, text)
		}
		return Every(every), Every(every).Err()
	}
	s := calendar(text, zone)
	if err := s.Err(); err != nil {
		return Schedule{}, fmt.Errorf(`%w (or else "every 5s", "continuous", "on demand")`, err)
	}
	return s, nil
}

// typed is a text in the form that is read, where it is in the one that is shown: a calendar's zone
// stands behind its spec there.
func typed(text string) string {
	fields := strings.Fields(text)
	if n := len(fields); n > 2 && fields[0] == "cron" {
		zone := fields[n-1]
		if fields = fields[1:]; zone != "Local" && zone[0] >= 'A' {
			if _, err := time.LoadLocation(zone); err == nil {
				fields = append([]string{cron.ZonePrefix + zone}, fields[:n-2]...)
			}
		}
	}
	return strings.Join(fields, " ")
}

// calendar keeps a spec that is wrong, for Err to say so.
func calendar(spec, zone string) Schedule {
	s := Schedule{kind: Calendar, spec: spec, zone: zone}
	s.cron, _ = cron.Parse(spec, zone)
	return s
}

// Kind is which of the ways the schedule was made.
func (s Schedule) Kind() Kind { return s.kind }

// Period is the time between two ticks of Every; 0 for any other kind.
func (s Schedule) Period() time.Duration {
	if s.kind != Fixed {
		return 0
	}
	return s.every
}

// Err says why no job can be scheduled so, with the way out; nil for a good schedule.
func (s Schedule) Err() error {
	if s.misplace != "" {
		return fmt.Errorf("%s: only a Cron schedule has a zone, and it must be named: Cron(%q).In(%q)", s.misplace, "0 8 * * *", "Europe/Berlin")
	}
	switch s.kind {
	case Unscheduled:
		return errors.New("there is none: give it Every, Cron, Continuous or OnDemand")
	case Fixed:
		switch {
		case s.every < shortest:
			return fmt.Errorf("every %s: it must be at least %v", Span(s.every), shortest)
		case s.every%time.Second != 0:
			return fmt.Errorf("every %s: it must be whole seconds, such as %s", Span(s.every), Span(s.every.Round(time.Second)))
		}
	case Calendar:
		_, err := cron.Parse(s.spec, s.zone)
		return err
	}
	return nil
}

// Next is the first tick after an instant, in UTC and on a whole second. It is the zero time for a
// schedule without ticks: Continuous, OnDemand, and one that Err refuses. A spec was parsed when
// its schedule was made, and is not parsed again here.
func (s Schedule) Next(after time.Time) time.Time {
	switch {
	case s.misplace != "":
	case s.kind == Fixed && s.every >= shortest && s.every%time.Second == 0:
		period := int64(s.every / time.Second)
		since := after.Unix() // rounds down, before 1970 too
		into := (since%period + period) % period
		return time.Unix(since-into+period, 0).UTC()
	case s.kind == Calendar:
		return s.cron.Next(after)
	}
	return time.Time{}
}

// String is the schedule's canonical text, which progress keeps to notice a change: "every 5s",
// "cron 0 8 * * * Europe/Berlin", "continuous", "on demand". Spaces in a spec make no difference to
// it, nor does the way in which the zone was given.
func (s Schedule) String() string {
	switch s.kind {
	case Fixed:
		return "every " + Span(s.every)
	case Calendar:
		spec, zone := s.parts()
		return fmt.Sprintf("cron %s %s", spec, cmp.Or(zone, "UTC"))
	case Unbroken:
		return "continuous"
	case Asked:
		return "on demand"
	}
	return "none"
}

// parts are a Calendar's spec and zone, whichever way the zone was given; empty: none was.
func (s Schedule) parts() (spec, zone string) {
	fields, zone := strings.Fields(s.spec), s.zone
	if zone == "" && len(fields) > 0 && strings.HasPrefix(fields[0], cron.ZonePrefix) {
		zone, fields = strings.TrimPrefix(fields[0], cron.ZonePrefix), fields[1:]
	}
	return strings.Join(fields, " "), zone
}

// Words says the schedule the way people do: "every 5 s", "daily at 08:00 Europe/Berlin"; String
// where there is no clearer way, such as "cron */7 * * * * UTC".
func (s Schedule) Words() string {
	switch s.kind {
	case Fixed:
		return "every " + words(s.every)
	case Calendar:
		if said := s.cron.Words(); said != "" {
			return said
		}
	}
	return s.String()
}

// Warnings say, in a line each, what the schedule can hardly have been meant to say; none for most.
func (s Schedule) Warnings() []string {
	if s.misplace != "" || s.kind != Calendar {
		return []string{}
	}
	return append([]string{}, s.cron.Warnings()...)
}

// words says a duration in its units that are not zero.
func words(d time.Duration) string {
	if d%time.Second != 0 {
		return Span(d)
	}
	var parts []string
	for _, unit := range []struct {
		name string
		is   time.Duration
	}{{"h", time.Hour}, {"min", time.Minute}, {"s", time.Second}} {
		if n := d / unit.is; n != 0 {
			parts = append(parts, fmt.Sprintf("%d %s", n, unit.name))
		}
		d %= unit.is
	}
	return strings.Join(parts, " ")
}
