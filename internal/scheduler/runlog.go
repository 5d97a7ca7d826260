package scheduler

import (
	"context"
	"log/slog"
	"sync"
)

// A runLog is where a run logs to. It is made with the first line, for most runs have none to say.
type runLog struct {
	lead *slog.Logger // of the term
	run  run
	kept tail

	once   sync.Once
	log    *slog.Logger // with the run's attributes; the lines are not kept
	beside slog.Handler // with the tail
}

// made is the log, which what the scheduler says of the run goes to.
func (l *runLog) made() *slog.Logger {
	l.once.Do(func() {
		l.log = l.lead.With("run", l.run.id, "tick", l.run.tick)
		l.beside = l.kept.beside(l.log.Handler())
	})
	return l.log
}

func (l *runLog) handler() slog.Handler {
	l.made()
	return l.beside
}

// Enabled is slog.Handler's.
func (l *runLog) Enabled(ctx context.Context, level slog.Level) bool {
	return level >= keptLevel || l.lead.Enabled(ctx, level)
}

// Handle is slog.Handler's.
func (l *runLog) Handle(ctx context.Context, r slog.Record) error { return l.handler().Handle(ctx, r) }

// WithAttrs is slog.Handler's.
func (l *runLog) WithAttrs(attrs []slog.Attr) slog.Handler { return l.handler().WithAttrs(attrs) }

// WithGroup is slog.Handler's.
func (l *runLog) WithGroup(name string) slog.Handler { return l.handler().WithGroup(name) }
