package scheduler

import (
	"context"
	"log/slog"
	"math/rand/v2"
	"time"
)

// A recorder writes the ends of runs, in batches, and again until the database has them. What a run
// waits for is never its record.
type recorder struct {
	store store
	log   *slog.Logger
	queue *queue[*pending]
	wayTo rush // claims, which somebody waits for
}

// pending is an end that is not settled yet.
type pending struct {
	end
	settled chan struct{}
}

func newRecorder(s store, log *slog.Logger) *recorder {
	return &recorder{store: s, log: log, queue: newQueue(func(p *pending) int { return len(p.fault) + len(p.log) })}
}

// end has the end of a run recorded; the channel is closed once it is.
func (r *recorder) end(e end) <-chan struct{} {
	p := &pending{end: e, settled: make(chan struct{})}
	r.queue.add(p)
	return p.settled
}

// run records until stop is closed, and then what is left until giveUp ends. What is left over even
// so stays open in the database: the next term of its lease closes it as lost.
func (r *recorder) run(giveUp context.Context, stop <-chan struct{}) {
	failing := false
	var held []*pending // somebody holds their rows, which must not delay the others
	var retry <-chan time.Time
	owed := 0 // what has given way already
	for {
		if owed <= 0 {
			r.wayTo.give(stop, giveUp.Done())
			owed = r.queue.len()
		}
		batch := r.queue.take()
		if owed -= len(batch); len(batch) == 0 {
			idle := stop
			if len(held) > 0 {
				idle = nil
			}
			select {
			case <-r.queue.wake:
				continue
			case <-retry:
				r.queue.add(held...)
				held, retry = nil, nil
				continue
			case <-idle:
				if batch = r.queue.take(); len(batch) == 0 {
					return
				}
			case <-giveUp.Done():
				r.leave(held)
				return
			}
		}
		left, err := r.send(giveUp, batch)
		failing = told(r.log, failing, err, "runs cannot be recorded; trying again", "runs are recorded again")
		switch {
		case err != nil:
			r.queue.add(left...)
			if pause(giveUp, soon()) != nil {
				r.leave(held)
				return
			}
		case len(left) > 0:
			held, retry = append(held, left...), time.After(soon())
		}
	}
}

// leave says how many ends are left unrecorded.
func (r *recorder) leave(held []*pending) {
	if n := len(held) + r.queue.len(); n > 0 {
		r.log.Warn("runs left unrecorded; the next terms of their leases close them as lost", "runs", n)
	}
}

// send returns what was not settled.
func (r *recorder) send(ctx context.Context, batch []*pending) (left []*pending, err error) {
	ends := make([]end, len(batch))
	for i, p := range batch {
		ends[i] = p.end
	}
	settled, err := r.store.record(ctx, ends)
	if err != nil {
		return batch, err
	}
	for _, p := range batch {
		if settled[p.run] {
			close(p.settled)
		} else {
			left = append(left, p)
		}
	}
	return left, nil
}

// soon is the pause before what was locked, or went wrong, is tried again: at no set time, so that
// two replicas do not meet again.
func soon() time.Duration { return 250*time.Millisecond + rand.N(250*time.Millisecond) }

// told logs the first failure of a row and the first success after it, and returns whether it
// fails now: a database that is away for an hour makes two lines.
func told(log *slog.Logger, failing bool, err error, bad, good string) bool {
	switch {
	case err != nil && !failing:
		log.Warn(bad, "error", err)
	case err == nil && failing:
		log.Info(good)
	}
	return err != nil
}
