package cron

import (
	"archive/zip"
	_ "embed" // for the zones
	"fmt"
	"io"
	"regexp"
	"strings"
	"sync"
	"time"
)

// The zones are those of Go's own archive, and no file of the machine is ever read: replicas on
// machines of different ages would differ about next year's summer time. For newer data, run
// go generate with a newer Go, and put the version that its lib/time/update.bash names below.
//
//go:generate cp $GOROOT/lib/time/zoneinfo.zip zoneinfo.zip

//go:embed zoneinfo.zip
var zoneinfo string

// tzdata is the version of the data in zoneinfo.zip.
const tzdata = "2025c"

// zonePattern is what the names of zones look like. It leaves out what else is in the archive.
var zonePattern = regexp.MustCompile(`^[A-Z][A-Za-z0-9_+-]*(/[A-Z][A-Za-z0-9_+-]*)*$`)

// zoneFiles are the archive's files by their exact names.
var zoneFiles = sync.OnceValues(func() (map[string]*zip.File, error) {
	archive, err := zip.NewReader(strings.NewReader(zoneinfo), int64(len(zoneinfo)))
	if err != nil {
		return nil, err
	}
	files := make(map[string]*zip.File, len(archive.File))
	for _, file := range archive.File {
		if zonePattern.MatchString(file.Name) && file.Name != "Factory" {
			files[file.Name] = file
		}
	}
	return files, nil
})

// zones are those loaded so far, by name, so that the schedules of one zone share it and are equal.
var zones sync.Map

// location loads a zone by its exact name; the empty name is UTC.
func location(name string) (*time.Location, error) {
	if name == "" || name == "UTC" {
		return time.UTC, nil
	}
	if known, ok := zones.Load(name); ok {
		return known.(*time.Location), nil
	}
	files, err := zoneFiles()
	if err != nil {
		return nil, fmt.Errorf("zone %q: read the embedded zones: %w", name, err)
	}
	file, ok := files[name]
	if !ok {
		return nil, fmt.Errorf("zone %q: there is no such zone in tzdata %s: it must be an exact IANA name such as Europe/Berlin, or UTC", name, tzdata)
	}
	loaded, err := load(name, file)
	if err != nil {
		return nil, fmt.Errorf("zone %q: read it from the embedded zones: %w", name, err)
	}
	shared, _ := zones.LoadOrStore(name, loaded)
	return shared.(*time.Location), nil
}

func load(name string, file *zip.File) (*time.Location, error) {
	data, err := file.Open()
	if err != nil {
		return nil, err
	}
	defer data.Close()
	bytes, err := io.ReadAll(data)
	if err != nil {
		return nil, err
	}
	return time.LoadLocationFromTZData(name, bytes)
}

// forever is later than any instant that has a next one.
const forever = 1 << 60

// span is a stretch of time without a change of the zone's offset, as seconds since 1970. It need
// not reach up to the next change: the next span may have the same offset.
//
// It has no start, because time.Location does not know it well: where a zone goes by its rule for
// all later years, ZoneBounds puts the start where the rule has it, even if the change came on
// another day that year.
func span(in *time.Location, at int64) (offset, end int64) {
	instant := time.Unix(at, 0).In(in)
	_, seconds := instant.Zone()
	_, bound := instant.ZoneBounds()
	switch {
	case bound.IsZero():
		end = forever
	case bound.Unix() > at:
		end = bound.Unix()
	default:
		// ZoneBounds takes a year for 365 days, so that on the last day of a leap year the end is
		// not after the instant.
		end = time.Date(instant.UTC().Year()+1, time.January, 1, 0, 0, 0, 0, time.UTC).Unix()
	}
	return int64(seconds), end
}
