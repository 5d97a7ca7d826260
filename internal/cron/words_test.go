package cron

import (
	"slices"
	"testing"
)

func TestWordsAreThoseOfPeople(t *testing.T) {
	t.Parallel()
	for _, c := range []struct{ spec, zone, want string }{
		{"0 8 * * *", "Europe/Berlin", "daily at 08:00 Europe/Berlin"},
		{"@daily", "", "daily at 00:00 UTC"},
		{"0 8 * * 0-6", "", "daily at 08:00 UTC"},
		{"0 8,20 * * *", "", "daily at 08:00 and 20:00 UTC"},
		{"0,30 8 * * ?", "", "daily at 08:00 and 08:30 UTC"},
		{"0 8-10 * * *", "", "daily at 08:00, 09:00 and 10:00 UTC"},
		{"0 8-11 * * *", "", ""},
		{"0 0,12 * * *", "", "daily at 00:00 and 12:00 UTC"},
		{"30 0 8 * * *", "", ""},
		{"0 0 8 * * *", "", "daily at 08:00 UTC"},

		{"* * * * *", "", "every minute"},
		{"* * * * *", "Asia/Kolkata", "every minute"},
		{"* * * * * *", "", "every second"},
		{"*/10 * * * * *", "", "every 10 seconds"},
		{"*/5 * * * *", "", "every 5 minutes"},
		{"0-59/5 * * * *", "", "every 5 minutes"},
		{"*/30 * * * *", "Asia/Kolkata", "every 30 minutes"},
		{"*/7 * * * *", "", ""},
		{"*/45 * * * *", "", ""},
		{"1-59/5 * * * *", "", ""},
		{"*/5 8 * * *", "", ""},
		{"*/5 * * * MON-FRI", "", ""},
		{"@hourly", "", "hourly at minute 0"},
		{"15 * * * *", "", "hourly at minute 15"},
		{"15 * * * *", "Asia/Kolkata", "hourly at minute 15 Asia/Kolkata"},
		{"15 0-23 * * *", "", ""}, // not hourly where the clock is set back
		{"0 */2 * * *", "", "every 2 hours at minute 0"},
		{"0 */12 * * *", "Europe/Berlin", "every 12 hours at minute 0 Europe/Berlin"},
		{"0 */5 * * *", "", ""},
		{"0 */2 1 * *", "", ""},

		{"0 9 * * MON-FRI", "", "weekdays (Mon-Fri) at 09:00 UTC"},
		{"0 9 * * 0,6", "", "weekends (Sat, Sun) at 09:00 UTC"},
		{"0 9 * 3 MON-FRI", "", ""},
		{"0 9 * * MON", "", "Mondays at 09:00 UTC"},
		{"@weekly", "", "Sundays at 00:00 UTC"},
		{"0 9 * * MON,THU", "", "Mondays and Thursdays at 09:00 UTC"},
		{"0 9 * * */3", "", "Sundays, Wednesdays and Saturdays at 09:00 UTC"},
		{"0 9 * * MON-THU", "", ""},
		{"@monthly", "", "on the 1st of each month at 00:00 UTC"},
		{"0 9 2 * ?", "", "on the 2nd of each month at 09:00 UTC"},
		{"0 9 13 * *", "", "on the 13th of each month at 09:00 UTC"},
		{"0 9 23 * *", "", "on the 23rd of each month at 09:00 UTC"},
		{"0 9 31 * *", "", "on the 31st of each month that has one at 09:00 UTC"},
		{"0 9,21 31 * *", "America/Argentina/ComodRivadavia", ""}, // too long
		{"@yearly", "", "every 1 January at 00:00 UTC"},
		{"0 9 29 2 *", "", "every 29 February at 09:00 UTC"},
		{"0 9 1 * MON-FRI", "", ""}, // the 1st or a weekday
		{"0 9 1 3,6 *", "", ""},
		{"0 9 1,15 * *", "", ""},
		{"0 9 1-31 * MON-FRI", "", ""},
	} {
		s, err := Parse(c.spec, c.zone)
		if err != nil {
			t.Fatal(err)
		}
		if got := s.Words(); got != c.want || len(got) > 80 {
			t.Errorf("%q in %q: %q, want %q", c.spec, c.zone, got, c.want)
		}
	}
	if words := (Schedule{}).Words(); words != "" {
		t.Errorf("the zero schedule has words: %q", words)
	}
}

func TestStepBeyondItsFieldIsWarnedOf(t *testing.T) {
	t.Parallel()
	for spec, want := range map[string][]string{
		"*/90 * * * *":           {"step 90 is beyond the minute field: it fires hourly at minute 0"},
		"*/60 * * * *":           {"step 60 is beyond the minute field: it fires hourly at minute 0"},
		"0/9999 * * * * ?":       {"step 9999 is beyond the second field: it fires every minute"},
		"*/90 * * * * *":         {"step 90 is beyond the second field: it fires every minute"},
		"0 */24 * * *":           {"step 24 is beyond the hour field: it stands for 0 alone"},
		"0 9 */31 * *":           {"step 31 is beyond the day of month field: it fires on the 1st of each month at 09:00 UTC"},
		"0 9 1 MAR-DEC/12 SUN":   {"step 12 is beyond the month field: it stands for MAR alone"},
		"7,10-20/60,3,4 8 * * *": {"step 60 is beyond the minute field: it stands for 10 alone"},
		"*/90 5/30 * * */8":      {"step 90 is beyond the minute field: it stands for 0 alone", "step 30 is beyond the hour field: it stands for 5 alone", "step 8 is beyond the day of week field: it stands for 0 alone"},
		"*/59 */23 */30 * */6":   nil,
		"*/45 * * * *":           nil,
		"0 8 * * *":              nil,
		"@daily":                 nil,
	} {
		s, err := Parse(spec, "")
		if err != nil {
			t.Fatal(err)
		}
		if got := s.Warnings(); !slices.Equal(got, want) {
			t.Errorf("%q: %q, want %q", spec, got, want)
		}
	}
	if warnings := (Schedule{}).Warnings(); warnings != nil {
		t.Errorf("the zero schedule has warnings: %q", warnings)
	}
}
