package cron

import (
	"fmt"
	"testing"
	"time"
)

// A job with a fixed time runs once on each day of the calendar, be its time skipped or repeated.
func TestFixedTimeRunsOnceADayThroughEveryChange(t *testing.T) {
	t.Parallel()
	for _, night := range []struct {
		zone, date string
		from, to   string // what the clock shows before the change, and at it
	}{
		{"America/New_York", "2026-03-08", "02:00", "03:00"},
		{"America/New_York", "2026-11-01", "02:00", "01:00"},
		{"Europe/Berlin", "2026-03-29", "02:00", "03:00"},
		{"Europe/Berlin", "2026-10-25", "03:00", "02:00"},
		{"Africa/Cairo", "2026-04-24", "00:00", "01:00"},
		{"Africa/Cairo", "2026-10-29", "24:00", "23:00"},
		{"Australia/Lord_Howe", "2026-10-04", "02:00", "02:30"},
		{"Australia/Lord_Howe", "2026-04-05", "02:00", "01:30"},
		{"America/Sao_Paulo", "2018-11-04", "00:00", "01:00"},
		{"America/Sao_Paulo", "2018-02-17", "24:00", "23:00"},
	} {
		t.Run(night.zone+" "+night.date, func(t *testing.T) {
			t.Parallel()
			for _, clock := range timesOfDay() {
				due := clock
				if night.from <= clock && clock < night.to {
					due = night.to
				}
				playNight(t, night.zone, at(t, night.date+"T00:00:00Z"), clock, due)
			}
		})
	}
}

// timesOfDay are every half hour, and some odd minutes.
func timesOfDay() []string {
	var clocks []string
	for hour := range 24 {
		for _, minute := range []int{0, 30} {
			clocks = append(clocks, fmt.Sprintf("%02d:%02d", hour, minute))
		}
	}
	return append(clocks, "00:01", "00:59", "01:29", "01:45", "01:59", "02:01", "02:29", "02:31", "02:59", "03:01", "22:59", "23:01", "23:59")
}

// playNight runs a job that has a fixed time from two days before a date to two days after it. On
// the date itself the clock is to show due when it runs.
func playNight(t *testing.T, zone string, date time.Time, clock, due string) {
	t.Helper()
	s, err := Parse(fmt.Sprintf("%s %s * * *", clock[3:], clock[:2]), zone)
	if err != nil {
		t.Fatal(err)
	}
	after := time.Date(date.Year(), date.Month(), date.Day()-2, 0, 0, 0, 0, s.zone).Add(-1)
	for day := -2; day <= 2; day++ {
		want := date.AddDate(0, 0, day).Format("2006-01-02 ") + clock
		if day == 0 {
			want = date.Format("2006-01-02 ") + due
		}
		after = s.Next(after)
		if got := after.In(s.zone).Format("2006-01-02 15:04"); got != want {
			t.Errorf("the job of %s runs when the clock shows %s, want %s", clock, got, want)
		}
		if earlier := after.Add(-time.Hour).In(s.zone).Format("2006-01-02 15:04"); earlier == want {
			t.Errorf("the job of %s runs when the clock shows %s for the second time", clock, want)
		}
	}
}

// An interval of half an hour is half an hour, whatever the clock does.
func TestWildcardFollowsElapsedTimeThroughEveryChange(t *testing.T) {
	t.Parallel()
	for _, zone := range []string{"America/New_York", "Europe/Berlin", "Africa/Cairo", "Australia/Lord_Howe", "America/Sao_Paulo"} {
		s, err := Parse("*/30 * * * *", zone)
		if err != nil {
			t.Fatal(err)
		}
		after := at(t, "2018-01-01T00:00:00Z")
		for next := s.Next(after); after.Year() < 2019; after, next = next, s.Next(next) {
			if next.Sub(after) != 30*time.Minute {
				t.Fatalf("%s: %v after %v", zone, next.Sub(after), after)
			}
		}
	}
}

// Kwajalein in 1993 and Samoa in 2011 skipped a day of the calendar.
func TestSkippedDayIsNotMadeUp(t *testing.T) {
	t.Parallel()
	for _, c := range []struct{ zone, spec, from, want string }{
		{"Pacific/Kwajalein", "0 12 * * *", "1993-08-20T11:00:00-12:00", "1993-08-20T12:00:00-12:00"},
		{"Pacific/Kwajalein", "0 12 * * *", "1993-08-20T12:00:00-12:00", "1993-08-22T12:00:00+12:00"},
		{"Pacific/Apia", "0 0 * * *", "2011-12-29T00:00:00-10:00", "2011-12-31T00:00:00+14:00"},
		{"Pacific/Apia", "59 23 30 12 *", "2011-01-01T00:00:00-11:00", "2012-12-30T23:59:00+14:00"},
		{"Pacific/Apia", "0 0,12 * * *", "2011-12-29T12:00:00-10:00", "2011-12-31T00:00:00+14:00"},
		{"Antarctica/Casey", "30 2 * * *", "2020-10-03T12:00:00+08:00", "2020-10-04T03:01:00+11:00"}, // three hours are made up
	} {
		s, err := Parse(c.spec, c.zone)
		if err != nil {
			t.Fatal(err)
		}
		if got := s.Next(at(t, c.from)); !got.Equal(at(t, c.want)) {
			t.Errorf("%q in %s after %s: %v, want %s", c.spec, c.zone, c.from, got.In(s.zone), c.want)
		}
	}
}

// Beyond the years that have four digits the promise ends, and Next too.
func TestFarInstantsHaveNoNext(t *testing.T) {
	t.Parallel()
	s, err := Parse("0 0 29 2 *", "America/Santiago")
	if err != nil {
		t.Fatal(err)
	}
	for _, after := range []time.Time{time.Unix(1<<62, 0), time.Unix(-1<<62, 0), time.Date(10000, 1, 1, 0, 0, 0, 0, time.UTC)} {
		if next := s.Next(after); !next.IsZero() {
			t.Errorf("after the year %d comes %v", after.Year(), next)
		}
	}
	for _, after := range []time.Time{{}, time.Date(9999, 12, 31, 23, 59, 59, 0, time.UTC)} {
		if next := s.Next(after); !next.After(after) {
			t.Errorf("after %v comes %v", after, next)
		}
	}
}
