//go:build prove

package main

import (
	"context"
	"fmt"
	"os"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"rota/internal/pgtest"
	"rota/internal/registry"
)

// sweepPeriod leaves time after each tick for a takeover, and for another replica to be ready before
// the next.
const sweepPeriod = 10 * time.Second

func init() {
	// It takes long enough for some of the ends to fall into its middle, and tells that it was called.
	testJobs["sweep"] = []registry.Job{{Name: "sweep", Schedule: registry.Every(sweepPeriod), Run: func(ctx context.Context, run *registry.Run) error {
		fmt.Fprintln(os.Stderr, called(run.Tick, run.Attempt))
		select {
		case <-time.After(300 * time.Millisecond):
			return nil
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}}}
}

func called(tick time.Time, attempt int) string {
	return fmt.Sprintf("called for %d, attempt %d", tick.Unix(), attempt)
}

// A pair is a database with a leader and a standby.
type pair struct {
	url      string
	db       eye
	replicas []*proc // those that live
	all      []*proc
}

// An ending is one way for a leader to end, at a moment before or after a tick.
type ending struct {
	signal syscall.Signal
	at     time.Duration // from the tick
	tick   time.Time
	pair   *pair
	leader *proc
}

func (e *ending) String() string {
	return fmt.Sprintf("%v at T%+.1fs", e.signal, e.at.Seconds())
}

// P2, P6, P7: whenever a leader ends around a tick, in good order or not, the tick is run once.
func TestProveTickIsRunOnceWheneverItsLeaderEnds(t *testing.T) {
	const pairs = 12
	args := withoutOurs(t)
	var all []*pair
	for range pairs {
		url := pgtest.URL(t)
		p := &pair{url: url, db: lookAt(t, url)}
		all = append(all, p)
		p.launch(t, args)
		p.launch(t, args)
	}
	var endings []*ending
	for i := range 36 {
		at := -3*time.Second + time.Duration(i)*100*time.Millisecond
		endings = append(endings, &ending{signal: syscall.SIGTERM, at: at}, &ending{signal: syscall.SIGKILL, at: at})
	}
	rounds := len(endings) / pairs
	for round := range rounds {
		for _, p := range all {
			p.ready()
		}
		// Each round has moments from all of the sweep.
		var now []*ending
		for i, p := range all {
			e := endings[(i/2)*2*rounds+2*round+i%2]
			e.pair = p
			now = append(now, e)
		}
		endAround(t, all[0].db, now)
		for _, e := range now {
			e.pair.replace(t, e, args)
		}
	}
	last := endings[len(endings)-1]
	for _, p := range all { // what was begun comes to its end
		eventually(t, 20*time.Second, "the last tick is run", func() bool {
			return p.db.number(`SELECT count(*) FROM runs WHERE lease = 'sweep' AND tick = $1 AND outcome = 'success'`, last.tick) > 0
		})
	}
	delays := map[syscall.Signal][]time.Duration{}
	lost := 0
	for _, e := range endings {
		f := e.pair.db.fates([]string{"sweep"}, e.tick, e.tick, sweepPeriod)[0]
		delays[e.signal] = append(delays[e.signal], f.Delay)
		calls := e.pair.calls(e.tick)
		switch {
		case !f.ran():
			t.Errorf("%v: the tick's attempts are %q", e, f.Outcomes)
		case e.signal == syscall.SIGTERM && len(f.Outcomes) != 1:
			t.Errorf("%v: a leader that ended in good order lost a run: %q", e, f.Outcomes)
		case f.Started == nil || f.Delay < 0 || f.Delay > testLease+2500*time.Millisecond:
			t.Errorf("%v: first run %v after the tick", e, f.Delay)
		case calls > len(f.Outcomes):
			t.Errorf("%v: the function was called %d times for the attempts %q", e, calls, f.Outcomes)
		}
		lost += len(f.Outcomes) - 1
	}
	for _, s := range []syscall.Signal{syscall.SIGTERM, syscall.SIGKILL} {
		p50, p99, longest := quantiles(delays[s])
		t.Logf("%d leaders ended by %v: each tick run once, p50 %v p99 %v max %v after it", len(delays[s]), s, p50, p99, longest)
	}
	t.Logf("%d runs were lost in their middle and tried again", lost)
	if _, _, longest := quantiles(delays[syscall.SIGTERM]); longest > 2500*time.Millisecond {
		t.Errorf("after an end in good order a tick came %v late", longest)
	}
}

func (p *pair) launch(t *testing.T, args []string) {
	t.Helper()
	r := launch(t, p.url, "sweep", args...)
	p.replicas, p.all = append(p.replicas, r), append(p.all, r)
}

// ready waits until one leads and one stands by.
func (p *pair) ready() {
	for _, r := range p.replicas {
		r.serving()
	}
	p.db.members(len(p.replicas))
	leading(p.db.t, p.db, "sweep", p.replicas...)
}

// endAround ends the leaders around the next tick that is not too near.
func endAround(t *testing.T, clock eye, endings []*ending) {
	t.Helper()
	tick := clock.now().Add(3500 * time.Millisecond).Truncate(sweepPeriod).Add(sweepPeriod)
	slices.SortFunc(endings, func(a, b *ending) int { return int(a.at - b.at) })
	for _, e := range endings {
		e.tick = tick
		time.Sleep(time.Until(tick.Add(e.at)))
		e.leader = leading(t, e.pair.db, "sweep", e.pair.replicas...)
		e.leader.send(e.signal)
	}
}

// replace starts another in the place of the leader that has ended.
func (p *pair) replace(t *testing.T, e *ending, args []string) {
	t.Helper()
	if e.signal == syscall.SIGTERM {
		if code := e.leader.code(20 * time.Second); code != exitOK {
			t.Errorf("%v: exit code %d", e, code)
		}
	}
	<-e.leader.gone
	p.replicas = slices.DeleteFunc(p.replicas, func(r *proc) bool { return r == e.leader })
	p.launch(t, args)
}

// calls is how often the function was called for a tick.
func (p *pair) calls(tick time.Time) (n int) {
	prefix, _, _ := strings.Cut(called(tick, 0), ",")
	for _, r := range p.all {
		for _, e := range r.heard() {
			if strings.HasPrefix(e.Msg, prefix) {
				n++
			}
		}
	}
	return n
}
