package scheduler

import (
	"bytes"
	"context"
	"errors"
	"log/slog"
	"sync"
	"unicode/utf8"
)

// logSize bounds what is kept of a run's log, in bytes.
const logSize = 64 << 10

// A tail keeps the last lines of a log, however long that is.
type tail struct {
	mu      sync.Mutex
	buf     []byte
	dropped bool
}

// Write takes whole lines. What is beyond the bound is thrown away from the front, a bound at a time,
// so that a run that logs without end copies each line about once. Of a line that is longer than the
// bound, the end alone is ever held.
func (t *tail) Write(line []byte) (int, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	n := len(line)
	if n > logSize {
		line, t.dropped = line[n-logSize:], true
	}
	t.buf = append(t.buf, line...)
	if len(t.buf) > 2*logSize {
		t.buf = append(t.buf[:0], lastLines(t.buf)...)
		t.dropped = true
	}
	return n, nil
}

// lastLines are those within the bound; of a line that is longer than that, its end.
func lastLines(text []byte) []byte {
	if len(text) <= logSize {
		return text
	}
	text = text[len(text)-logSize:]
	if i := bytes.IndexByte(text, '\n'); i >= 0 && i+1 < len(text) {
		text = text[i+1:]
	}
	return text
}

const cutMark = "… earlier lines are left out\n"

// text is what was kept, as the database takes it.
func (t *tail) text() string {
	t.mu.Lock()
	defer t.mu.Unlock()
	kept := lastLines(t.buf)
	cut := ""
	if t.dropped || len(kept) < len(t.buf) {
		cut = cutMark
		for len(kept) > 0 && !utf8.RuneStart(kept[0]) { // a long line may have been cut within a letter
			kept = kept[1:]
		}
	}
	return printable(cut+string(kept), logSize+len(cutMark))
}

// keptLevel is the lowest of what is kept.
const keptLevel = slog.LevelDebug

// beside is a handler whose lines go where they went, and into the tail.
func (t *tail) beside(log slog.Handler) slog.Handler {
	return both{log, slog.NewTextHandler(t, &slog.HandlerOptions{Level: keptLevel})}
}

// both hands each line to two handlers; the first may leave lines out that the second keeps.
type both struct{ log, kept slog.Handler }

func (b both) Enabled(ctx context.Context, level slog.Level) bool {
	return b.kept.Enabled(ctx, level) || b.log.Enabled(ctx, level)
}

func (b both) Handle(ctx context.Context, r slog.Record) error {
	err := b.kept.Handle(ctx, r.Clone())
	if b.log.Enabled(ctx, r.Level) {
		err = errors.Join(err, b.log.Handle(ctx, r))
	}
	return err
}

func (b both) WithAttrs(attrs []slog.Attr) slog.Handler {
	return both{b.log.WithAttrs(attrs), b.kept.WithAttrs(attrs)}
}

func (b both) WithGroup(name string) slog.Handler {
	return both{b.log.WithGroup(name), b.kept.WithGroup(name)}
}
