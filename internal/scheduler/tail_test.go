package scheduler

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"
	"unicode/utf8"

	"rota/internal/registry"
)

func TestTailKeepsTheLastWholeLines(t *testing.T) {
	t.Parallel()
	line := func(n int) string { return fmt.Sprintf("line %06d %s\n", n, strings.Repeat("x", 83)) } // 96 bytes
	for name, c := range map[string]struct {
		write func(*tail)
		check func(text string) string // what is wrong with it
	}{
		"nothing": {func(*tail) {}, func(text string) string {
			return wrongUnless(text == "", "it is not empty")
		}},
		"a few": {func(k *tail) {
			for n := range 3 {
				fmt.Fprint(k, line(n))
			}
		}, func(text string) string {
			return wrongUnless(text == line(0)+line(1)+line(2), "it is not all there was")
		}},
		"as many as fit": {func(k *tail) {
			for n := range logSize / 96 {
				fmt.Fprint(k, line(n))
			}
		}, func(text string) string {
			return wrongUnless(len(text) == logSize/96*96 && !strings.HasPrefix(text, cutMark), "it is not all there was")
		}},
		"far too many": {func(k *tail) {
			for n := range 20_000 {
				fmt.Fprint(k, line(n))
			}
		}, func(text string) string {
			rest, cut := strings.CutPrefix(text, cutMark)
			return wrongUnless(cut && strings.HasSuffix(rest, line(19_999)) && len(rest)%96 == 0 && strings.HasPrefix(rest, "line ") &&
				len(rest) > logSize-2*96 && len(rest) <= logSize, "it is not the last lines")
		}},
		"one too many": {func(k *tail) {
			for n := range logSize/96 + 1 {
				fmt.Fprint(k, line(n))
			}
		}, func(text string) string {
			rest, cut := strings.CutPrefix(text, cutMark)
			return wrongUnless(cut && strings.HasPrefix(rest, "line 00000"), "it is not the last lines")
		}},
		"a line that is too long": {func(k *tail) {
			fmt.Fprint(k, line(1))
			fmt.Fprint(k, strings.Repeat("ä", logSize), "!\n")
		}, func(text string) string {
			rest, cut := strings.CutPrefix(text, cutMark)
			return wrongUnless(cut && strings.HasSuffix(rest, "ä!\n") && len(rest) > logSize-4 && len(rest) <= logSize &&
				!strings.ContainsRune(rest, utf8.RuneError), "it is not the end of the line")
		}},
		"lines after one that is too long": {func(k *tail) {
			fmt.Fprint(k, strings.Repeat("y", 3*logSize), "\n")
			fmt.Fprint(k, line(1))
		}, func(text string) string {
			return wrongUnless(text == cutMark+line(1), "it is not the last whole line")
		}},
		"what the database refuses": {func(k *tail) { fmt.Fprint(k, "a\x00b\xff\xfec\n") }, func(text string) string {
			return wrongUnless(text == "a\uFFFDb\uFFFDc\n", "it has bytes that are refused, or lacks others")
		}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			k := new(tail)
			c.write(k)
			if wrong := c.check(k.text()); wrong != "" {
				text := k.text()
				t.Errorf("%s: %d bytes, from %.120q to %q", wrong, len(text), text, text[max(0, len(text)-120):])
			}
		})
	}
}

func wrongUnless(good bool, wrong string) string {
	if good {
		return ""
	}
	return wrong
}

// What a tail holds is bounded, whatever is written into it, and by however many at once.
func TestTailThatIsWrittenWithoutEndHoldsLittle(t *testing.T) {
	t.Parallel()
	k := new(tail)
	var writers sync.WaitGroup
	for range 4 {
		writers.Go(func() {
			for n := range 2000 {
				fmt.Fprint(k, strings.Repeat("z", 50*(n%100)), "\n")
			}
			fmt.Fprint(k, strings.Repeat("z", 8<<20), "\n")
			_ = k.text()
		})
	}
	writers.Wait()
	if c := cap(k.buf); c > 8*logSize {
		t.Errorf("it holds %d bytes", c)
	}
}

// What a run logs is on record with its end, whatever became of the run, and whatever the log's level
// is elsewhere; groups and attributes are kept, and the lines go where they went as well.
func TestLogOfARunIsOnRecord(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		end  func() error
		want outcome
	}{
		"success": {func() error { return nil }, success},
		"failed":  {func() error { return errors.New("no") }, failed},
		"panic":   {func() error { panic("no") }, panicked},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				b := newBench(t, job("job", func(_ context.Context, r *registry.Run) error {
					r.Log.Debug("looking", "at", "LP-3")
					log := r.Log.With("bridge", 7).WithGroup("load").With("unit", "t")
					log.Info("weighed", "mass", 40)
					r.Log.Error("bytes", "raw", "a\x00b\xff")
					return c.end()
				}))
				var elsewhere notebook[string]
				b.Scheduler.log = slog.New(slog.NewTextHandler(writer(elsewhere.add), &slog.HandlerOptions{Level: slog.LevelInfo}))
				term := newFakeTerm()
				b.leads(term, "job", 1)
				after(6 * time.Second)
				row := b.store.first()
				for _, part := range []string{"level=DEBUG msg=looking at=LP-3\n", "msg=weighed bridge=7 load.unit=t load.mass=40\n", `raw="a\x00b\xff"`} {
					if !strings.Contains(row.log, part) {
						t.Errorf("the log lacks %q:\n%s", part, row.log)
					}
				}
				if row.outcome != c.want || strings.Count(row.log, "\n") != 3 {
					t.Errorf("the run is %s, its log\n%s", row.outcome, row.log)
				}
				all := strings.Join(elsewhere.read(), "")
				if strings.Contains(all, "looking") || !strings.Contains(all, "job=job") || !strings.Contains(all, "load.mass=40") {
					t.Errorf("elsewhere the log is\n%s", all)
				}
				b.closes(term)
			})
		})
	}
}

// A writer has each line that is written.
type writer func(line string)

func (w writer) Write(line []byte) (int, error) {
	w(string(line))
	return len(line), nil
}
