package scheduler

import (
	"context"
	"errors"
	"log/slog"
)

// An opener begins terms, many at a time: a replica that starts may win ten thousand leases at once.
type opener struct {
	store store
	log   *slog.Logger
	queue *queue[*asking]
}

// asking is a term that waits to be begun.
type asking struct {
	opening
	answer chan opened // gets one
	failed chan error  // or one here
}

func newOpener(s store, log *slog.Logger) *opener {
	return &opener{store: s, log: log, queue: newQueue(func(a *asking) int { return len(a.token.Lease) + len(a.schedule) })}
}

// begin begins a term. An error leaves open whether it did; asking again is harmless.
func (o *opener) begin(ctx context.Context, asked opening) (opened, error) {
	a := &asking{opening: asked, answer: make(chan opened, 1), failed: make(chan error, 1)}
	o.queue.add(a)
	select {
	case found := <-a.answer:
		return found, nil
	case err := <-a.failed:
		return opened{}, err
	case <-ctx.Done():
		return opened{}, context.Cause(ctx)
	}
}

// run sends until ctx ends.
func (o *opener) run(ctx context.Context) {
	failing := false
	for {
		batch := o.queue.take()
		if len(batch) == 0 {
			select {
			case <-o.queue.wake:
				continue
			case <-ctx.Done():
				return
			}
		}
		err := o.send(ctx, batch)
		failing = told(o.log, failing, err, "terms cannot be begun; trying again", "terms are begun again")
	}
}

var errNoVerdict = errors.New("the database gave no verdict")

// send hands each its answer, and returns an error that is all of theirs.
func (o *opener) send(ctx context.Context, batch []*asking) error {
	asked := make([]opening, len(batch))
	for i, a := range batch {
		asked[i] = a.opening
	}
	found, err := o.store.begin(ctx, asked)
	for _, a := range batch {
		answer, ok := found[a.token]
		switch {
		case err != nil:
			a.failed <- err
		case !ok:
			a.failed <- errNoVerdict
		default:
			a.answer <- answer
		}
	}
	return err
}
