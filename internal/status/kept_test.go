package status

import (
	"context"
	"errors"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"
)

// P10: what takes longer to be read than anybody waits is read all the same, and is there for whoever
// asks next; who asks meanwhile gets what there was, marked with why.
func TestWhatTakesLongToBeReadComesAllTheSame(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var k kept[int]
		var reads atomic.Int64
		ask := func() (Reading[int], time.Duration, error) {
			began := time.Now()
			got, err := k.get(t.Context(), time.Second, 800*time.Millisecond, func(context.Context) (int, error) {
				n := reads.Add(1)
				time.Sleep(2 * time.Second)
				return int(n), nil
			})
			return got, time.Since(began), err
		}
		if _, took, err := ask(); !errors.Is(err, errSlow) || took != 800*time.Millisecond {
			t.Errorf("the first answer after %v: %v", took, err)
		}
		time.Sleep(1300 * time.Millisecond)
		// Nobody waits for what takes as long as that each time, and whoever asks is told how old it is.
		if got, took, err := ask(); err != nil || got.Value != 1 || took != 0 || got.Why != nil || got.Age != 2100*time.Millisecond {
			t.Errorf("the second answer after %v: %+v, %v", took, got, err)
		}
		time.Sleep(2200 * time.Millisecond)
		if got, _, err := ask(); err != nil || got.Value != 2 && got.Value != 1 {
			t.Errorf("the third answer: %+v, %v", got, err)
		}
		// Beyond what it took before, it may never come: then they wait, and are told why it is old.
		time.Sleep(10 * time.Second)
		if got, took, err := ask(); err != nil || took != 800*time.Millisecond || !errors.Is(got.Why, errSlow) {
			t.Errorf("the last answer after %v: %+v, %v", took, got, err)
		}
		time.Sleep(5 * time.Second)
		if n := reads.Load(); n > 4 {
			t.Errorf("it was read %d times", n)
		}
	})
}

// Who has changed something gets what was read after that, be it that another has just read, or is
// reading; and nobody waits longer for it than for anything else.
func TestWhatIsOutOfDateIsReadAnew(t *testing.T) {
	t.Parallel()
	for name, since := range map[string]time.Duration{
		"read a moment ago":    1100 * time.Millisecond,
		"being read":           500 * time.Millisecond,
		"given out once more":  2100 * time.Millisecond,
		"read a long time ago": time.Minute,
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				var k kept[int]
				var truth atomic.Int64
				truth.Store(1)
				ask := func(patience time.Duration) (Reading[int], error) {
					return k.get(t.Context(), time.Second, patience, func(context.Context) (int, error) {
						n := truth.Load()
						time.Sleep(time.Second)
						return int(n), nil
					})
				}
				go func() { _, _ = ask(time.Hour) }()
				time.Sleep(since)
				if since > time.Second { // as someone may just have had it read again
					go func() { _, _ = ask(time.Hour) }()
					synctest.Wait()
				}
				truth.Store(2)
				time.Sleep(time.Millisecond)
				k.outdate()
				if got, err := ask(time.Hour); err != nil || got.Value != 2 || got.Why != nil {
					t.Errorf("%+v, %v", got, err)
				}
				began := time.Now()
				k.outdate()
				if got, err := ask(time.Millisecond); err != nil || got.Value != 2 || !errors.Is(got.Why, errSlow) || time.Since(began) != time.Millisecond {
					t.Errorf("without patience: %+v, %v", got, err)
				}
				time.Sleep(time.Hour)
			})
		})
	}
}

func TestPanicOfAReadingIsItsError(t *testing.T) {
	t.Parallel()
	var k kept[int]
	_, err := k.get(t.Context(), time.Second, time.Minute, func(context.Context) (int, error) { panic("no such row") })
	if err == nil || !strings.Contains(err.Error(), "no such row") {
		t.Errorf("the error is %v", err)
	}
}
