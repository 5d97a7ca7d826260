package cron

import (
	"strings"
	"testing"
	"time"
)

// What is accepted, whatever it is, has a next instant from any on, and another one after it.
func FuzzWhatIsAcceptedIsASchedule(f *testing.F) {
	for _, c := range []struct{ spec, zone string }{
		{"TZ=", ""},
		{"CRON_TZ=UTC", ""},
		{"TZ=TZ=TZ=", ""},
		{"@every", ""},
		{"@daily", "Africa/Cairo"},
		{"* * * * *", "Australia/Lord_Howe"},
		{"0/9999 * * * * ?", ""},
		{"CRON_TZ=Pacific/Apia */5 0,12 29 2 MON-FRI/2", ""},
		{"* 59 23 31 12 *", "America/Santiago"},
		{"1,,2 +1 *-5 L 5#2", "localtime"},
	} {
		f.Add(c.spec, c.zone, reference.Unix())
	}
	f.Fuzz(func(t *testing.T, spec, zone string, from int64) {
		s, err := Parse(spec, zone)
		if err != nil {
			if s != (Schedule{}) || err.Error() == "" || strings.Contains(err.Error(), "\n") {
				t.Errorf("%q in %q: %v, and %v", spec, zone, s, err)
			}
			return
		}
		if again, _ := Parse(spec, zone); again != s {
			t.Errorf("%q in %q is not equal to itself", spec, zone)
		}
		if len(s.Words()) > wordy || len(s.Warnings()) > len(columns) {
			t.Errorf("%q in %q: %q, %q", spec, zone, s.Words(), s.Warnings())
		}
		const years = 8000 * 366 * day
		after := time.Unix(from%years+years, 0)
		if year := after.UTC().Year(); year < 1 || year > 9900 {
			after = reference
		}
		for range 3 {
			next := s.Next(after)
			if !next.After(after) || s.Next(next.Add(-1)) != next {
				t.Fatalf("%q in %q: after %v comes %v, and just before that %v", spec, zone, after, next, s.Next(next.Add(-1)))
			}
			after = next
		}
	})
}
