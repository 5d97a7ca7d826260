package registry

import (
	"testing"
	"time"
)

// P7: the phase of Every belongs to the schedule, so that neither a restart nor a handover moves it.
func TestEveryTicksAtMultiplesSinceTheEpoch(t *testing.T) {
	t.Parallel()
	base := time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)
	for _, c := range []struct {
		every       time.Duration
		after, want time.Time
	}{
		{5 * time.Second, base, base.Add(5 * time.Second)},
		{5 * time.Second, base.Add(1), base.Add(5 * time.Second)},
		{5 * time.Second, base.Add(-1), base},
		{7 * time.Hour, time.Unix(0, 0), time.Unix(0, 0).Add(7 * time.Hour)},
		{7 * time.Hour, time.Unix(-1, 0), time.Unix(0, 0)},
		{7 * time.Hour, time.Unix(-7*3600, 0), time.Unix(0, 0)},
		{7 * time.Hour, time.Unix(7*3600, 0).Add(-1), time.Unix(7*3600, 0)},
		{time.Minute, time.Time{}, time.Time{}.Add(time.Minute)},
		{time.Minute, time.Date(9999, 1, 1, 0, 0, 30, 0, time.UTC), time.Date(9999, 1, 1, 0, 1, 0, 0, time.UTC)},
		{90 * time.Minute, base, base.Add(90 * time.Minute)},
	} {
		in := time.FixedZone("elsewhere", 12345)
		got := Every(c.every).Next(c.after.In(in))
		if !got.Equal(c.want) || got.Location() != time.UTC {
			t.Errorf("every %v after %v: %v, want %v", c.every, c.after, got, c.want)
		}
	}
}

func TestSchedulesWithoutTicksHaveNoNext(t *testing.T) {
	t.Parallel()
	for _, s := range []Schedule{
		{}, Continuous, OnDemand, Every(0), Every(-time.Hour), Every(1500 * time.Millisecond), Cron("61 * * * *"), Cron("0 0 30 2 *"), Every(time.Hour).In("UTC"),
	} {
		if next := s.Next(time.Now()); !next.IsZero() {
			t.Errorf("%v: %v", s, next)
		}
	}
}

func TestTextsOfSchedules(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		s             Schedule
		kind          Kind
		string, words string
	}{
		{Every(5 * time.Second), Fixed, "every 5s", "every 5 s"},
		{Every(90 * time.Minute), Fixed, "every 1h30m", "every 1 h 30 min"},
		{Every(1500 * time.Millisecond), Fixed, "every 1.5s", "every 1.5s"},
		{Cron(" 0  8 * * * "), Calendar, "cron 0 8 * * * UTC", "daily at 08:00 UTC"},
		{Cron("0 8 * * *").In("UTC"), Calendar, "cron 0 8 * * * UTC", "daily at 08:00 UTC"},
		{Cron("0 8 * * *").In("Europe/Berlin"), Calendar, "cron 0 8 * * * Europe/Berlin", "daily at 08:00 Europe/Berlin"},
		{Cron("CRON_TZ=Europe/Berlin 0 8 * * *"), Calendar, "cron 0 8 * * * Europe/Berlin", "daily at 08:00 Europe/Berlin"},
		{Cron("0 8 * * MON"), Calendar, "cron 0 8 * * MON UTC", "Mondays at 08:00 UTC"},
		{Cron("*/7 * * * *"), Calendar, "cron */7 * * * * UTC", "cron */7 * * * * UTC"},
		{Cron("* * * * *"), Calendar, "cron * * * * * UTC", "every minute"},
		{Continuous, Unbroken, "continuous", "continuous"},
		{OnDemand, Asked, "on demand", "on demand"},
		{Schedule{}, Unscheduled, "none", "none"},
	} {
		if c.s.Kind() != c.kind || c.s.String() != c.string || c.s.Words() != c.words {
			t.Errorf("kind %d, %q, %q; want %d, %q, %q", c.s.Kind(), c.s, c.s.Words(), c.kind, c.string, c.words)
		}
	}
	one, other := Cron("0 8 * * *").In("Europe/Berlin"), Cron("0 8 * * *").In("Europe/Berlin")
	if one != other {
		t.Error("equal schedules compare as different")
	}
}
