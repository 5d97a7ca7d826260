package scheduler

import (
	"context"
	"fmt"
	"runtime/debug"
	"time"

	"rota/internal/registry"
)

// A duty is one run to be done under a term.
type duty struct {
	job      registry.Job
	run      *registry.Run
	asked    <-chan struct{} // the term should be given up; then draining is called
	stop     chan error      // ends the run's context, with the cause it gets
	draining func()
	drain    time.Duration // how long the run may take from then on
	grace    time.Duration // how long it may ignore that its context has ended
	// abandon is called once the grace is over; the run is waited for all the same.
	abandon func()
}

// do calls the job's function and returns once that has returned, whatever it takes. Its context
// is a child of term, and ends with it.
func (d *duty) do(term context.Context) result {
	ctx, cancel := context.WithCancelCause(term)
	defer cancel(nil)
	if d.job.Timeout > 0 {
		var stop context.CancelFunc
		ctx, stop = context.WithTimeoutCause(ctx, d.job.Timeout, fmt.Errorf("%w (%s)", ErrTimeout, registry.Span(d.job.Timeout)))
		defer stop()
	}
	returned := make(chan result, 1)
	go d.call(ctx, returned)

	asked, ended := d.asked, ctx.Done()
	var drained, overdue <-chan time.Time
	for {
		select {
		case r := <-returned:
			return r
		case <-asked:
			asked, drained = nil, time.After(d.drain)
			d.draining()
		case why := <-d.stop:
			cancel(why)
		case <-drained:
			drained = nil
			cancel(fmt.Errorf("%w (%s)", ErrDrained, registry.Span(d.drain)))
		case <-ended:
			ended, overdue = nil, time.After(d.grace)
		case <-overdue:
			overdue = nil
			d.abandon()
		}
	}
}

// call calls the function in a goroutine of its own, which it may end by a panic or by
// runtime.Goexit without harm to anybody.
func (d *duty) call(ctx context.Context, returned chan<- result) {
	var r result
	normal := false
	defer func() {
		if p := recover(); p != nil {
			r.panic = fmt.Sprintf("panic: %v\n%s", p, debug.Stack())
		} else if !normal {
			r.panic = "the function ended its goroutine by runtime.Goexit"
		}
		r.cause = context.Cause(ctx)
		returned <- r
	}()
	r.err = said(d.job.Run(ctx, d.run))
	normal = true
}

// said makes sure that an error's text can be had, where a panic in it is still the job's.
func said(err error) error {
	if err != nil {
		_ = err.Error()
	}
	return err
}
