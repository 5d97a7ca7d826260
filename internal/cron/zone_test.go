package cron

import (
	"crypto/sha256"
	"fmt"
	"maps"
	"slices"
	"testing"
	"time"
)

// zoneNames are the names of all zones but UTC itself, in order.
func zoneNames(t *testing.T) []string {
	t.Helper()
	files, err := zoneFiles()
	if err != nil {
		t.Fatal(err)
	}
	return slices.Sorted(maps.Keys(files))
}

// The version is known by the archive alone, which does not have it inside.
func TestVersionIsThatOfTheZones(t *testing.T) {
	t.Parallel()
	const of2025c = "8f55634d05f8bca1f7bc7c69c5933428c69357e0bdf565e5ba224e3f88ff12e8"
	if got := fmt.Sprintf("%x", sha256.Sum256([]byte(zoneinfo))); tzdata != "2025c" || got != of2025c {
		t.Errorf("zoneinfo.zip has the sum %s and is called %s: it was replaced, so set tzdata to the DATA in the new Go's lib/time/update.bash, and put both here", got, tzdata)
	}
}

func TestEveryZoneOfTheArchiveIsReadOnce(t *testing.T) {
	t.Parallel()
	names := zoneNames(t)
	if len(names) < 500 {
		t.Fatalf("there are only %d zones", len(names))
	}
	for _, name := range names {
		in, err := location(name)
		if err != nil || in.String() != name {
			t.Errorf("%s: %v, %v", name, in, err)
		}
		if again, _ := location(name); again != in {
			t.Errorf("%s was loaded twice: equal schedules would differ", name)
		}
	}
	// Coyhaique left Chile's time in 2025.
	in, err := location("America/Coyhaique")
	if err != nil {
		t.Fatal(err)
	}
	if _, offset := time.Date(2026, time.July, 1, 0, 0, 0, 0, in).Zone(); offset != -3*3600 {
		t.Errorf("the zones are old: Coyhaique is at %d s", offset)
	}
}

// The walk begins a search so far before a wall time that no zone's clock can have shown it yet.
func TestNoZoneIsFurtherFromUTCThanTheWalkAssumes(t *testing.T) {
	t.Parallel()
	from, to := time.Date(1800, 1, 1, 0, 0, 0, 0, time.UTC).Unix(), time.Date(2100, 1, 1, 0, 0, 0, 0, time.UTC).Unix()
	for _, name := range zoneNames(t) {
		in, err := location(name)
		if err != nil {
			t.Fatal(err)
		}
		for at := from; at < to; {
			offset, end := span(in, at)
			if max(offset, -offset) >= widest {
				t.Errorf("%s is %d s from UTC at %d", name, offset, at)
			}
			at = end
		}
	}
}

// time.Location has no end of a year of 366 days, and a wrong start for a rule's first year.
func TestSpansEndLaterAndHaveOneOffset(t *testing.T) {
	t.Parallel()
	for _, name := range []string{"America/New_York", "America/Santiago", "Australia/Lord_Howe", "Africa/Casablanca", "UTC"} {
		in, err := location(name)
		if err != nil {
			t.Fatal(err)
		}
		for at := time.Date(2019, 6, 1, 0, 0, 0, 0, time.UTC); at.Year() < 2041; at = at.Add(7 * time.Hour) {
			offset, end := span(in, at.Unix())
			last := time.Unix(min(end, at.Unix()+400*day)-1, 0).In(in)
			if _, there := last.Zone(); end <= at.Unix() || int64(there) != offset {
				t.Fatalf("%s at %v: offset %d up to %d, where it is %d", name, at, offset, end, there)
			}
		}
	}
}
