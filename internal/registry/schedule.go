package registry

import (
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
// and handovers. d is at least a second.
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

// calendar keeps a spec that is wrong, for Err to say so.
func calendar(spec, zone string) Schedule {
	s := Schedule{kind: Calendar, spec: spec, zone: zone}
	s.cron, _ = cron.Parse(spec, zone)
	return s
}

// Kind is which of the ways the schedule was made.
func (s Schedule) Kind() Kind { return s.kind }

// Err says why no job can be scheduled so, with the way out; nil for a good schedule.
func (s Schedule) Err() error {
	if s.misplace != "" {
		return fmt.Errorf("%s: only a Cron schedule has a zone, and it must be named: Cron(%q).In(%q)", s.misplace, "0 8 * * *", "Europe/Berlin")
	}
	switch s.kind {
	case Unscheduled:
		return errors.New("there is none: give it Every, Cron, Continuous or OnDemand")
	case Fixed:
		if s.every < shortest {
			return fmt.Errorf("every %v: it must be at least %v", s.every, shortest)
		}
	case Calendar:
		_, err := cron.Parse(s.spec, s.zone)
		return err
	}
	return nil
}

// epoch is what the phase of Every is anchored to.
var epoch = time.Unix(0, 0).UTC()

// Next is the first tick after an instant, in UTC. It is the zero time for a schedule without
// ticks: Continuous, OnDemand, and one that Err refuses. Of Every it is right within 292 years
// of 1970.
func (s Schedule) Next(after time.Time) time.Time {
	switch {
	case s.misplace != "":
	case s.kind == Fixed && s.every >= shortest:
		since := after.Sub(epoch)
		into := since % s.every
		if into < 0 {
			into += s.every
		}
		return epoch.Add(since - into + s.every)
	case s.kind == Calendar:
		return s.cron.Next(after)
	}
	return time.Time{}
}

// String is the schedule's canonical text: two schedules with the same ticks by the same rule have
// the same.
func (s Schedule) String() string {
	switch s.kind {
	case Fixed:
		return "every " + s.every.String()
	case Calendar:
		text := strings.Join(strings.Fields(s.spec), " ")
		if s.zone != "" {
			text = cron.ZonePrefix + s.zone + " " + text
		}
		return strings.TrimPrefix(text, cron.ZonePrefix+"UTC ")
	case Unbroken:
		return "continuous"
	case Asked:
		return "on demand"
	}
	return "none"
}

// Words says the schedule the way people do: "every 5 s", "daily at 08:00 Europe/Berlin"; String
// where there is no clearer way.
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

// words says a duration in its units that are not zero.
func words(d time.Duration) string {
	if d%time.Second != 0 {
		return d.String()
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
