package scheduler

import (
	"context"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"strings"
	"time"

	"rota/internal/registry"
)

// run does one run and hands its end to the recorder. It returns how long the run took.
func (l *lead) run(r run) time.Duration {
	if l.term.Context().Err() != nil {
		l.ticker.lose(l.entry, r)
		return 0
	}
	log := &runLog{lead: l.log, run: r}
	args, err := l.args(r)
	if err != nil {
		return l.end(r, log, result{err: err}, time.Now())
	}
	abandoned, db := false, &reads{db: l.cfg.Work}
	d := duty{
		job: *l.job, asked: l.term.Asked(), stop: make(chan error, 1), drain: l.cfg.Drain, grace: l.cfg.Grace,
		// What falls due from here on is the successor's, and not to be written off as skipped.
		draining: func() { l.ticker.withdraw(l.entry) },
		run: &registry.Run{
			Job: l.job.Name, Shard: max(1, l.shard.K), Of: max(1, l.shard.Of), Tick: r.tick.UTC(), Attempt: r.number, Args: args,
			DB: db, Fence: l.writer, Log: slog.New(log), Draining: l.term.Asked(),
		},
		abandon: func() {
			abandoned = true
			l.counts.abandoned.Add(1)
			log.made().Error("run abandoned: it has not returned within the grace; its lease is left to expire", "grace", l.cfg.Grace)
			l.term.End(ErrAbandoned)
		},
	}
	l.steering.began(l, r.id, d.stop)
	l.counts.running.Add(1)
	if r.first() && l.job.Schedule.Kind() != registry.Unbroken {
		l.metrics.waited(l.cfg.Elector.Now().Sub(r.tick))
	}
	began, before := time.Now(), l.writer.Refused()
	l.term.Tie(true)
	res := d.do(l.term.Context())
	l.term.Tie(false)
	res.refused = l.writer.Refused() - before
	if n := db.close(); n > 0 {
		log.made().Warn("the run has left answers of the database open, each of which held a connection; they are closed: "+
			"close rows, and scan what QueryRow returns", "answers", n)
	}
	if abandoned {
		l.counts.abandoned.Add(-1)
		log.made().Warn("abandoned run has returned after all")
	}
	l.counts.running.Add(-1)
	defer l.steering.ended(l.cfg.Requests, r.id, res.judge())
	return l.end(r, log, res, began)
}

// args are the job's own, or those of the request that the run is for.
func (l *lead) args(r run) (any, error) {
	if len(r.args) == 0 {
		return l.job.Args, nil
	}
	return l.job.WithArgs(r.args)
}

// end says how a run ended, to all who want to know.
func (l *lead) end(r run, log *runLog, res result, began time.Time) time.Duration {
	e := end{
		run: r.id, owner: l.token.Owner, outcome: res.judge(), fault: res.fault(), refused: res.refused,
		log: log.kept.text(), again: res.cutShort() && r.number < tries(l.job), at: time.Now(),
	}
	retry, after := l.retry(r, e.outcome)
	l.counts.add(e.outcome, 1)
	l.recorded = l.recorder.end(e)
	l.ticker.done(l.entry, r.id, l.recorded, retry, after)
	logEnd(log, e, retry, after)
	took := e.at.Sub(began)
	if l.job.Schedule.Kind() != registry.Unbroken {
		l.metrics.ran(took)
	}
	return took
}

// retry is the next attempt after one that went wrong by itself.
func (l *lead) retry(r run, o outcome) (*attempt, time.Duration) {
	switch o {
	case failed, panicked, timedOut:
	default:
		return nil, 0
	}
	after, more := l.job.Retry.After(r.number)
	if !more {
		return nil, 0
	}
	next := r.attempt
	next.number++
	return &next, varied(after)
}

// varied is a pause less up to a quarter of it, so that what failed together is not tried together.
func varied(d time.Duration) time.Duration { return d - rand.N(d/4+1) }

func logEnd(log *runLog, e end, retry *attempt, after time.Duration) {
	level := slog.LevelWarn
	switch e.outcome {
	case success:
		level = slog.LevelDebug
	case cancelled, lost, refused:
		level = slog.LevelInfo
	}
	if !log.lead.Enabled(context.Background(), level) {
		return
	}
	text, _, _ := strings.Cut(e.fault, "\n")
	attrs := []any{"outcome", string(e.outcome), "error", text, "refused", e.refused}
	if retry != nil {
		attrs = append(attrs, "attempt", retry.number-1, "again_in", registry.Span(after.Round(time.Millisecond)))
	}
	log.made().Log(context.Background(), level, "run ended", attrs...)
}

// cancelledBy is the cause of a run's end that an operator asked for.
func cancelledBy(who, why string) error {
	if why == "" {
		return fmt.Errorf("%w by %s", ErrCancelled, who)
	}
	return fmt.Errorf("%w by %s: %s", ErrCancelled, who, why)
}
