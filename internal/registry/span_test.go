package registry

import (
	"testing"
	"time"
)

func TestSpanIsAsPeopleWriteIt(t *testing.T) {
	t.Parallel()
	for want, d := range map[string]time.Duration{
		"0s": 0, "10m": 10 * time.Minute, "1h": time.Hour, "720h": 720 * time.Hour, "1h30m": 90 * time.Minute, "1h0m5s": time.Hour + 5*time.Second,
		"10m10s": 610 * time.Second, "1.5s": 1500 * time.Millisecond, "20s": 20 * time.Second, "10m0.5s": 10*time.Minute + 500*time.Millisecond,
		"-10m": -10 * time.Minute, "100h10m": 100*time.Hour + 10*time.Minute, "10ms": 10 * time.Millisecond,
	} {
		if got := Span(d); got != want {
			t.Errorf("%v is said as %s, want %s", d, got, want)
		}
		if back, err := time.ParseDuration(Span(d)); err != nil || back != d {
			t.Errorf("%s is read as %v, %v", Span(d), back, err)
		}
	}
}
