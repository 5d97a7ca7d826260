package registry

import "time"

// A Schedule says when a job is due.
type Schedule struct{ spec, zone string }

// Every is a fixed phase of at least a second.
func Every(d time.Duration) Schedule { panic("written by the registry's own task") }

// Cron is five fields, six with seconds, or a descriptor such as @daily, in UTC.
func Cron(spec string) Schedule { panic("written by the registry's own task") }

// In puts a cron schedule into an IANA zone.
func (s Schedule) In(zone string) Schedule { panic("written by the registry's own task") }

// Next is the first tick after the instant; zero for Continuous and OnDemand.
func (s Schedule) Next(after time.Time) time.Time { panic("written by the registry's own task") }

// Continuous runs a job for the whole of each term; OnDemand only when asked.
var (
	Continuous = Schedule{spec: "continuous"}
	OnDemand   = Schedule{spec: "on demand"}
)
