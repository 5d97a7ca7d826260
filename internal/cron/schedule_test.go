package cron

import (
	"strings"
	"testing"
	"time"
)

// at is an instant of RFC 3339.
func at(t *testing.T, s string) time.Time {
	t.Helper()
	instant, err := time.Parse(time.RFC3339Nano, s)
	if err != nil {
		t.Fatal(err)
	}
	return instant
}

func TestNonsenseIsRefusedAndNamed(t *testing.T) {
	t.Parallel()
	for _, c := range []struct{ spec, zone, says string }{
		{"", "", "empty"},
		{"  \t ", "", "empty"},
		{"* * * *", "", "4 fields"},
		{"* * * * * * *", "", "7 fields"},
		{"TZ=", "", "CRON_TZ="},
		{"TZ=0", "", "CRON_TZ="},
		{"TZ=TZ=TZ=", "", "CRON_TZ="},
		{"TZ= * * * * *", "", "CRON_TZ="},
		{"TZ=UTC 0 2 * * *", "", "CRON_TZ="},
		{"CRON_TZ=", "", "no zone after"},
		{"CRON_TZ= 0 2 * * *", "", "no zone after"},
		{"CRON_TZ=America/New_York", "", "empty"},
		{"CRON_TZ=CRON_TZ=UTC 0 2 * * *", "", "IANA"},
		{"cron_tz=UTC 0 2 * * *", "", "cron_tz=UTC"},
		{"CRON_TZ=Asia/Tokyo 0 2 * * *", "UTC", "give one of them"},
		{"CRON_TZ=america/new_york 0 2 * * *", "", "IANA"},
		{"0 2 * * *", "Europe/Atlantis", `"Europe/Atlantis"`},
		{"0 2 * * *", "Local", "IANA"},
		{"0 2 * * *", "localtime", "IANA"},
		{"0 2 * * *", "right/UTC", "IANA"},
		{"0 2 * * *", "../etc/passwd", "IANA"},
		{"@reboot", "", "Continuous"},
		{"@every", "", "use Every"},
		{"@every 5s", "", "use Every"},
		{"@every 500ms", "", "use Every"},
		{"@Daily", "", "@daily"},
		{"@daily @daily", "", "@daily"},
		{"1,,2 * * * *", "", `"1,,2"`},
		{", * * * *", "", `","`},
		{"+1 0 * * *", "", `"+1"`},
		{"-1 0 * * *", "", `"-1"`},
		{"*5 * * * *", "", `"*5"`},
		{"*-5 * * * *", "", `"*-5"`},
		{"１ 0 * * *", "", "１"},
		{"*/0 * * * *", "", "step"},
		{"61 * * * *", "", "61 * * * *"},
		{"99999999999999999999 * * * *", "", "field"},
		{"0-18446744073709551615/18446744073709551615 * * * *", "", "field"},
		{"0 22-2 * * *", "", "beyond end"},
		{"0 0 0 * *", "", "below minimum"},
		{"0 0 * 13 *", "", "above maximum"},
		{"0 0 * * 6-7", "", "above maximum"},
		{"0 0 * * 5#2", "", "5#2"},
		{"0 0 * * MONDAY", "", "MONDAY"},
		{"0 0 L * *", "", `"L"`},
		{"0 0 30 2 *", "", "no date"},
		{"0 0 31 4 *", "", "no date"},
		{"* * * 31 FEB *", "", "no date"},
		{strings.Repeat("0,", 500) + "0 * * * *", "", "1000 bytes"},
	} {
		s, err := Parse(c.spec, c.zone)
		if err == nil {
			t.Errorf("%q in %q was accepted", c.spec, c.zone)
			continue
		}
		if !strings.Contains(err.Error(), c.says) || strings.Contains(err.Error(), "\n") {
			t.Errorf("%q in %q: %q, which does not say %q in one line", c.spec, c.zone, err, c.says)
		}
		if s != (Schedule{}) {
			t.Errorf("%q: an error, and a schedule too", c.spec)
		}
	}
}

func TestNextIsTheFirstInstantAfter(t *testing.T) {
	t.Parallel()
	for _, c := range []struct{ spec, zone, from, want string }{
		{"0 8 * * *", "", "2026-03-01T08:00:00Z", "2026-03-02T08:00:00Z"},
		{"0 8 * * *", "", "2026-03-01T07:59:59.999999999Z", "2026-03-01T08:00:00Z"},
		{"  0  0\t* *  * ", "", "2026-01-01T00:00:00Z", "2026-01-02T00:00:00Z"},
		{"* * * * * *", "", "2026-01-01T00:00:00.5Z", "2026-01-01T00:00:01Z"},
		{"0 8 * * *", "Europe/Berlin", "2026-07-01T00:00:00Z", "2026-07-01T06:00:00Z"},
		{"0 8 * * *", "Europe/Berlin", "2026-01-01T00:00:00Z", "2026-01-01T07:00:00Z"},
		{"CRON_TZ=Asia/Tokyo 0 6 * * *", "", "2026-01-01T00:00:00Z", "2026-01-01T21:00:00Z"},
		{"@daily", "Asia/Kolkata", "2026-02-01T00:00:00Z", "2026-02-01T18:30:00Z"},
		{"0/9999 * * * * ?", "", "2026-01-01T00:00:00Z", "2026-01-01T00:01:00Z"},
		{"0 0 29 2 *", "", "2096-03-01T00:00:00Z", "2104-02-29T00:00:00Z"},
		{"0 12 1 * MON", "", "2026-05-30T00:00:00Z", "2026-06-01T12:00:00Z"},
		{"59 23 28-31 * *", "", "2026-02-28T23:59:00Z", "2026-03-28T23:59:00Z"},
		{"59 59 2 * * *", "America/New_York", "2026-03-08T00:00:00Z", "2026-03-08T07:00:00Z"}, // the last second skipped
		{"* 30 2 * * *", "America/New_York", "2026-03-08T07:00:00Z", "2026-03-09T06:30:00Z"},  // sixty of them, made up by one
		{"30 1 * * *", "America/New_York", "2026-11-01T06:15:00Z", "2026-11-02T06:30:00Z"},    // asked while times repeat
		{"*/30 1 * * *", "America/New_York", "2026-11-01T06:15:00Z", "2026-11-01T06:30:00Z"},  // the same
	} {
		s, err := Parse(c.spec, c.zone)
		if err != nil {
			t.Errorf("%q in %q: %v", c.spec, c.zone, err)
			continue
		}
		got := s.Next(at(t, c.from))
		if !got.Equal(at(t, c.want)) || got.Location() != time.UTC {
			t.Errorf("%q in %q after %s is %v, want %s", c.spec, c.zone, c.from, got, c.want)
		}
	}
}

// P7: replicas whose machines live in different zones agree on every tick.
func TestZoneOfTheInstantDoesNotMatter(t *testing.T) {
	t.Parallel()
	s, err := Parse("0 9 * * *", "")
	if err != nil {
		t.Fatal(err)
	}
	from := at(t, "2026-01-01T22:00:00Z")
	want := s.Next(from)
	for _, zone := range []string{"America/New_York", "Pacific/Apia", "Asia/Kolkata"} {
		in, err := location(zone)
		if err != nil {
			t.Fatal(err)
		}
		if got := s.Next(from.In(in)); got != want {
			t.Errorf("asked in %s: %v, want %v", zone, got, want)
		}
	}
}

func TestSchedulesOfOneSpecAreEqual(t *testing.T) {
	t.Parallel()
	a, errA := Parse("0 8 * * *", "Europe/Berlin")
	b, errB := Parse("CRON_TZ=Europe/Berlin 0  8 * * *", "")
	if errA != nil || errB != nil {
		t.Fatal(errA, errB)
	}
	if a != b {
		t.Error("they differ")
	}
	if next := (Schedule{}).Next(reference); !next.IsZero() {
		t.Errorf("the zero schedule has a next instant: %v", next)
	}
}
