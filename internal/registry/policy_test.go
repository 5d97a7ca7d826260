package registry

import (
	"testing"
	"time"
)

func TestPauseBetweenAttemptsDoublesUpToItsBound(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		retry   Retry
		attempt int
		want    time.Duration // 0: none
	}{
		{Retry{}, 1, 0},
		{Retry{Attempts: 1}, 1, 0},
		{Retry{Attempts: 3}, 1, DefaultPause},
		{Retry{Attempts: 3}, 2, 2 * DefaultPause},
		{Retry{Attempts: 3}, 3, 0},
		{Retry{Attempts: 100}, 99, DefaultLongest},
		{Retry{Attempts: 5, Pause: time.Minute, Longest: 3 * time.Minute}, 2, 2 * time.Minute},
		{Retry{Attempts: 5, Pause: time.Minute, Longest: 3 * time.Minute}, 3, 3 * time.Minute},
		{Retry{Attempts: 5, Pause: time.Hour}, 1, time.Hour},
		{Retry{Attempts: 5, Pause: time.Hour}, 4, time.Hour},
	} {
		got, more := c.retry.After(c.attempt)
		if got != c.want || more != (c.want > 0) {
			t.Errorf("%+v after attempt %d: %v, %v; want %v", c.retry, c.attempt, got, more, c.want)
		}
	}
}
