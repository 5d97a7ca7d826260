package scheduler

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"time"

	"rota/internal/fence"
	"rota/internal/registry"
)

// A term is what a lead needs of a lease.Term.
type term interface {
	Context() context.Context
	End(cause error)
	Asked() <-chan struct{}
	Yielding() <-chan struct{}
	Tie(tied bool)
	Ready()
}

// ErrReset is the cause of a term's end when a protected row had its epoch already, or a higher one: the
// lease's row has been reset or restored. The next acquisition is above what was met.
var ErrReset = errors.New("a protected row has this term's epoch already, or a higher one")

// A lead is one term at work.
type lead struct {
	*Scheduler
	term   term
	token  fence.Token
	shard  fence.Shard
	job    *registry.Job
	writer *fence.Writer
	entry  *entry
	counts *counts
	log    *slog.Logger

	recorded <-chan struct{} // closed once the last run's end is settled; nil before the first
	opened   bool            // runs can be asked for; under the steering's lock
}

func (s *Scheduler) newLead(t term, token fence.Token, j *registry.Job) *lead {
	c := s.metrics.of(j.Name)
	_, shard := fence.SplitLease(token.Lease)
	l := &lead{
		Scheduler: s, term: t, token: token, shard: shard, job: j,
		writer: fence.NewWriter(t.Context(), t.End, s.cfg.Work, token, shard, j.Protects...),
		entry:  newEntry(token, j, c, t.End), counts: c,
		log: s.log.With("job", j.Name, "lease", token.Lease, "epoch", token.Epoch),
	}
	l.writer.Count(s.metrics.fenced.Of(j.Name))
	return l
}

// work does the term's work and returns when the term is over, or given up, and its job's function
// has returned.
func (l *lead) work() {
	l.attach(l)
	defer l.detach(l)
	found, err := l.prepare()
	if err != nil || l.asked() {
		return // it is over, or was asked for before it began
	}
	l.term.Ready()
	l.ticker.plan(l.entry, found)
	if l.job.Schedule.Kind() == registry.Unbroken {
		l.ticker.start(l.entry)
	}
	l.open(l)
	l.serve()
}

func (l *lead) asked() bool {
	select {
	case <-l.term.Asked():
		return true
	default:
		return false
	}
}

// prepare raises the protected tables and, beside it, confirms the term and closes what earlier
// ones left open; neither is the job's work.
func (l *lead) prepare() (found opened, err error) {
	ctx, stop := until(l.term.Context(), l.term.Asked())
	defer stop()
	raised := make(chan error, 1)
	go func() { raised <- l.raise(ctx) }()
	found, err = l.begin(ctx)
	return found, errors.Join(<-raised, err)
}

var errAsked = errors.New("it was asked for")

// until is ctx, ended early once the channel is closed. The caller must call stop.
func until(ctx context.Context, closed <-chan struct{}) (_ context.Context, stop func()) {
	ctx, cancel := context.WithCancelCause(ctx)
	watched := make(chan struct{})
	go func() {
		defer close(watched)
		select {
		case <-closed:
			cancel(errAsked)
		case <-ctx.Done():
		}
	}()
	return ctx, func() {
		cancel(nil)
		<-watched
	}
}

const (
	// raiseSlice is how long a raise may go on while others wait for one; then it goes to the end of
	// the line, with twice the time for its next turn, so that a held row holds up no other job.
	raiseSlice = 2 * time.Second
	// longestRaiseRest bounds the pause after a raise that failed. The term goes on meanwhile: given
	// back, it would only fail elsewhere, over and over.
	longestRaiseRest = 10 * time.Second
)

// raise brings the protected tables up to the term's epoch, and ends a term that is behind them.
func (l *lead) raise(ctx context.Context) error {
	if len(l.job.Protects) == 0 {
		return nil
	}
	slice, rest, failing := raiseSlice, time.Duration(0), false
	for own := int64(0); ; own = 1 {
		highest, err := l.raiseFor(ctx, slice)
		switch {
		// Until this term has tried to raise, its own epoch on a row is an earlier term's too: one
		// replica has met a higher epoch, ended its term, and another that has not heard of it was
		// next. After a try that failed, the row may be of our own raising.
		case err == nil && highest >= l.token.Epoch+own:
			l.cfg.Elector.Seen(l.job.Name, highest)
			err := fmt.Errorf("%w: %d", ErrReset, highest)
			l.log.Warn("term ended, for its lease row has been reset or restored", "highest", highest)
			l.term.End(err)
			return err
		case err == nil:
			return nil
		case ctx.Err() != nil:
			return context.Cause(ctx)
		case errors.Is(err, context.DeadlineExceeded):
			l.log.Warn("raising the epoch takes long", "error", err)
			slice *= 2
			continue
		}
		failing = told(l.log, failing, err, "epoch cannot be raised, and the job waits for it; trying again", "")
		rest = min(2*rest+soon(), longestRaiseRest)
		if err := pause(ctx, rest); err != nil {
			return err
		}
	}
}

func (l *lead) raiseFor(ctx context.Context, slice time.Duration) (highest int64, err error) {
	select {
	case l.raising <- struct{}{}:
		defer func() { <-l.raising }()
	case <-ctx.Done():
		return 0, context.Cause(ctx)
	}
	ctx, cancel := context.WithTimeout(ctx, slice)
	defer cancel()
	return l.store.raise(ctx, l.token, l.shard, l.job.Protects)
}

// begin confirms the term. An unreachable database and a locked row are waited for as long as the
// term lasts.
func (l *lead) begin(ctx context.Context) (opened, error) {
	for {
		found, err := l.opener.begin(ctx, opening{l.token, l.job.Schedule.String(), tries(l.job)})
		if ctx.Err() != nil {
			return opened{}, context.Cause(ctx)
		}
		switch {
		case err == nil && found.verdict == begun:
			if found.lost > 0 {
				l.log.Warn("runs of earlier terms closed as lost", "runs", found.lost)
			}
			return found, nil
		case err == nil && found.verdict == fenced:
			err := fmt.Errorf("%w: the term was refused as it began", fence.ErrFenced)
			l.term.End(err)
			return opened{}, err
		}
		if err := pause(ctx, soon()); err != nil {
			return opened{}, err
		}
	}
}

// tries is how many attempts a tick of the job gets whose runs are lost.
func tries(j *registry.Job) int {
	if j.IfLost == registry.LeaveIt || j.Schedule.Kind() == registry.Unbroken {
		return 0
	}
	return max(registry.LostBound, j.Retry.Attempts)
}

// pause waits, and returns why it did not wait to the end.
func pause(ctx context.Context, d time.Duration) error {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// serve runs what the ticker claims, until the term is over or is asked for.
func (l *lead) serve() {
	over := l.term.Context().Done()
	var restart <-chan time.Time
	var backoff time.Duration
	for {
		yields := l.term.Yielding()
		if l.ticker.retrying(l.entry) {
			yields = nil // retries end with the term, and a move is no reason to end them
		}
		select {
		case <-over:
			l.ticker.drop(l.entry)
			return
		case <-l.term.Asked():
			l.finish()
			return
		case <-yields:
			l.finish()
			return
		case r := <-l.entry.fired:
			took := l.run(r)
			if l.job.Schedule.Kind() == registry.Unbroken {
				backoff = rest(backoff, took)
				restart = time.After(varied(backoff))
			}
		case <-restart:
			restart = nil
			l.ticker.start(l.entry)
		}
	}
}

// The rests of a Continuous job that returned although its term goes on.
const (
	shortestRest = time.Second
	longestRest  = time.Minute
)

// rest is twice the last one, and the shortest again once the job has run for longer than the longest.
func rest(last, took time.Duration) time.Duration {
	if took > longestRest {
		return shortestRest
	}
	return min(max(2*last, shortestRest), longestRest)
}

// finish takes no new tick. One whose claim is under way may be ours already: then it is run, for
// nobody else will. The lease is given back only once the last run is on record.
func (l *lead) finish() {
	over := l.term.Context().Done()
	late := time.NewTimer(l.cfg.Drain + l.cfg.Grace)
	defer late.Stop()
	select {
	case <-l.ticker.withdraw(l.entry):
		select {
		case r := <-l.entry.fired:
			l.run(r)
		default:
		}
	case <-over:
	case <-late.C:
	}
	l.ticker.drop(l.entry)
	if l.recorded == nil {
		return
	}
	late.Reset(l.cfg.Grace)
	select {
	case <-l.recorded:
	case <-over:
	case <-late.C:
	}
}
