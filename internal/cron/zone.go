package cron

import (
	"fmt"
	"regexp"
	"sync"
	"time"
	_ "time/tzdata" // for machines without zone files
)

// zonePattern is what the names of zones look like. It leaves out what else lies beside the zones'
// files, and what a file system that ignores case would let pass.
var zonePattern = regexp.MustCompile(`^[A-Z][A-Za-z0-9_+-]*(/[A-Z][A-Za-z0-9_+-]*)*$`)

// zones are those loaded so far, by name, so that the schedules of one zone share it.
var zones sync.Map

// location loads a zone by its exact name; the empty name is UTC.
func location(name string) (*time.Location, error) {
	if name == "" || name == "UTC" {
		return time.UTC, nil
	}
	if known, ok := zones.Load(name); ok {
		return known.(*time.Location), nil
	}
	if !zonePattern.MatchString(name) || name == "Local" || name == "Factory" {
		return nil, fmt.Errorf("zone %q: it must be an exact IANA name such as Europe/Berlin, or UTC", name)
	}
	loaded, err := time.LoadLocation(name)
	if err != nil {
		return nil, fmt.Errorf("zone %q: there is no such zone: it must be an exact IANA name such as Europe/Berlin, or UTC", name)
	}
	shared, _ := zones.LoadOrStore(name, loaded)
	return shared.(*time.Location), nil
}
