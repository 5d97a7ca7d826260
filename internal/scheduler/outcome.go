package scheduler

import (
	"context"
	"errors"
	"strings"
	"unicode/utf8"

	"rota/internal/fence"
)

// An outcome is what became of a run, as runs.outcome says it.
type outcome string

const (
	success   outcome = "success"
	failed    outcome = "failed"
	panicked  outcome = "panicked"
	timedOut  outcome = "timed_out"
	cancelled outcome = "cancelled"
	refused   outcome = "fenced"
	lost      outcome = "lost"
	skipped   outcome = "skipped"
	missed    outcome = "missed"
)

var outcomes = []outcome{success, failed, panicked, timedOut, cancelled, refused, lost, skipped, missed}

// Why a run's context ended, as its cause, beside the reasons for which a term ends.
var (
	// ErrTimeout: the run took longer than its job's timeout.
	ErrTimeout = errors.New("the run took longer than the job's timeout")
	// ErrDrained: the term was to be given up, and the run took longer than the drain.
	ErrDrained = errors.New("the run took longer than the drain")
	// ErrCancelled: an operator asked for it.
	ErrCancelled = errors.New("cancelled")
	// ErrPaused: the job was paused, and its run would go on for ever.
	ErrPaused = errors.New("the job was paused")
)

// ErrAbandoned is the cause of a term's end when a run ignored its ended context for longer than
// the grace. The lease is left to expire.
var ErrAbandoned = errors.New("abandoned: the run goes on although its context has ended")

// A result is what a job's function did.
type result struct {
	cause   error  // of its context's end, as it returned; nil: it lasted
	err     error  // what it returned
	panic   string // with its stack; or that it ended its goroutine
	refused int    // how many of its writes were refused
}

// judge reads the outcome: from the cause first, since a run that was cut short cannot know
// whether it was done, and from the error second. A run that had a write refused is fenced however
// its context ended: a process that slept is told by its own watchdog first, and by the fence after.
func (r result) judge() outcome {
	switch {
	case r.refused > 0, errors.Is(r.cause, fence.ErrFenced):
		return refused
	case errors.Is(r.cause, ErrTimeout):
		return timedOut
	case errors.Is(r.cause, ErrDrained), errors.Is(r.cause, ErrCancelled), errors.Is(r.cause, ErrPaused):
		return cancelled
	case r.cause != nil:
		return lost
	case r.panic != "":
		return panicked
	case r.err != nil:
		return failed // an ErrFenced too: the term goes on, so that it is that of another's writer
	}
	return success
}

// cutShort reports whether the run was kept from finishing by what became of its replica: its tick
// should be run again by the next term. What was cancelled first is not.
func (r result) cutShort() bool {
	if errors.Is(r.cause, ErrCancelled) || errors.Is(r.cause, ErrPaused) {
		return false
	}
	switch r.judge() {
	case lost, refused:
		return true
	case cancelled:
		return errors.Is(r.cause, ErrDrained)
	}
	return false
}

// fault is what there is to say of a run that did not succeed.
func (r result) fault() string {
	var said []string
	if r.cause != nil {
		said = append(said, r.cause.Error())
	}
	switch {
	case r.panic != "":
		said = append(said, r.panic)
	case r.err != nil && (r.cause == nil || !errors.Is(r.err, r.cause) && !errors.Is(r.err, context.Canceled)):
		said = append(said, r.err.Error())
	}
	return printable(strings.Join(said, ": "), faultSize)
}

// faultSize bounds what is kept of an error or a stack, in bytes.
const faultSize = 16 << 10

// printable is the beginning of a text, at most so many bytes, as the database takes it.
func printable(s string, size int) string {
	s = strings.ReplaceAll(strings.ToValidUTF8(s, "\uFFFD"), "\x00", "\uFFFD")
	if len(s) <= size {
		return s
	}
	cut := size
	for !utf8.RuneStart(s[cut]) {
		cut--
	}
	return s[:cut] + "…"
}
