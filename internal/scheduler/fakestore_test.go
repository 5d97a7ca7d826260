package scheduler

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	"rota/internal/fence"
)

// A fakeStore is a database in memory that does what the statements do. Its clock is the bubble's,
// or off it. Who leads a lease is whoever begins a term of it, unless a holder is set. Where a fault
// is set it is asked before each call.
type fakeStore struct {
	mu      sync.Mutex
	off     time.Duration          // of its clock from the bubble's
	raised  int64                  // the highest epoch on every protected row
	last    map[string]time.Time   // by lease
	holder  map[string]fence.Token // by lease
	rows    []*fakeRun             // by id, from 1
	fenced  map[string]bool
	locked  map[string]bool
	paused  map[string]bool
	answers map[string]bool // by call: whether answers are lost once it has executed
	calls   map[string]int
	biggest int // bytes of logs and faults that one call recorded
	fault   func(call string) error
}

type fakeRun struct {
	end
	lease   string
	epoch   int64
	tick    time.Time
	first   time.Time // of several
	attempt int
	request int64
	ticks   int64
	why     string
}

func newFakeStore() *fakeStore {
	return &fakeStore{
		last: map[string]time.Time{}, holder: map[string]fence.Token{},
		fenced: map[string]bool{}, locked: map[string]bool{}, paused: map[string]bool{},
		answers: map[string]bool{}, calls: map[string]int{}, fault: func(string) error { return nil },
	}
}

// enter counts a call; leave must follow.
func (s *fakeStore) enter(ctx context.Context, call string) error {
	s.mu.Lock()
	s.calls[call]++
	fault := s.fault
	s.mu.Unlock()
	if err := fault(call); err != nil {
		return err
	}
	s.mu.Lock()
	if ctx.Err() != nil {
		s.mu.Unlock()
		return ctx.Err()
	}
	return nil
}

func (s *fakeStore) leave(call string) error {
	defer s.mu.Unlock()
	if s.answers[call] {
		return fmt.Errorf("%s: the answer was lost", call)
	}
	return nil
}

func (s *fakeStore) now() time.Time { return time.Now().Add(s.off) }

func (s *fakeStore) raise(ctx context.Context, t fence.Token, _ fence.Shard, _ []fence.Table) (int64, error) {
	if err := s.enter(ctx, "raise"); err != nil {
		return 0, err
	}
	highest := s.raised
	s.raised = max(s.raised, t.Epoch)
	return highest, s.leave("raise")
}

// leads reports whether a term is that of its lease.
func (s *fakeStore) leads(t fence.Token) bool {
	holder, set := s.holder[t.Lease]
	return !s.fenced[t.Lease] && (!set || holder == t)
}

func (s *fakeStore) begin(ctx context.Context, asked []opening) (map[fence.Token]opened, error) {
	if err := s.enter(ctx, "begin"); err != nil {
		return nil, err
	}
	found := map[fence.Token]opened{}
	for _, o := range asked {
		name := o.token.Lease
		switch {
		case !s.leads(o.token):
			found[o.token] = opened{verdict: fenced}
		case s.locked[name]:
			found[o.token] = opened{verdict: locked}
		default:
			if now := s.now(); s.last[name].IsZero() || s.last[name].After(now) {
				s.last[name] = now
			}
			found[o.token] = s.open(o)
		}
	}
	return found, s.leave("begin")
}

// open closes what earlier terms left open, and finds what is to be run again.
func (s *fakeStore) open(o opening) opened {
	found := opened{verdict: begun, last: s.last[o.token.Lease], now: s.now()}
	for _, r := range s.rows {
		if r.lease != o.token.Lease {
			continue
		}
		if r.outcome == "" && (r.owner != o.token.Owner || r.epoch != o.token.Epoch) {
			r.outcome, r.again = lost, r.attempt < o.tries
			found.lost++
		}
		if r.again && r.attempt < o.tries && s.at(r.lease, r.tick, r.attempt+1) == nil {
			found.again = append(found.again, attempt{tick: r.tick, number: r.attempt + 1, request: r.request})
		}
	}
	return found
}

func (s *fakeStore) claim(ctx context.Context, asked []claim) (map[fence.Token]claimed, error) {
	if err := s.enter(ctx, "claim"); err != nil {
		return nil, err
	}
	found := map[fence.Token]claimed{}
	for _, a := range asked {
		found[a.token] = s.claimOne(a)
	}
	if err := s.leave("claim"); err != nil {
		return nil, err
	}
	return found, nil
}

func (s *fakeStore) claimOne(a claim) claimed {
	name := a.token.Lease
	c := claimed{verdict: won, last: s.last[name], now: s.now(), attempt: a.run.number}
	switch {
	case !s.leads(a.token):
		c.verdict = fenced
		return c
	case s.locked[name]:
		c.verdict = locked
		return c
	case a.kind == rebase:
		c.verdict, s.last[name] = rebased, earlier(s.last[name], c.now)
		return c
	case a.kind == scheduled && a.until.After(c.now):
		c.verdict = early
		return c
	case a.kind == scheduled && !a.until.After(c.last):
		c.verdict = taken
	}
	if r := s.at(name, a.run.tick, 1); a.kind == scheduled && r != nil && r.outcome == missed {
		c.attempt++
	}
	if c.verdict == won {
		s.win(a, &c)
	}
	if r := s.at(name, a.run.tick, c.attempt); r != nil && r.outcome == "" && r.owner == a.token.Owner && r.epoch == a.token.Epoch {
		c.verdict, c.run = won, r.run
	}
	return c
}

// win does what a claim that may be made does.
func (s *fakeStore) win(a claim, c *claimed) {
	name := a.token.Lease
	for _, p := range a.passed {
		if s.at(name, p.last, 1) == nil {
			s.add(fakeRun{end: end{outcome: p.outcome}, lease: name, epoch: a.token.Epoch, tick: p.last, first: p.first, attempt: 1, ticks: p.ticks, why: p.why})
		}
	}
	if a.kind == scheduled {
		s.last[name] = later(c.last, a.until)
	}
	if a.kind == again {
		if r := s.at(name, a.run.tick, a.run.number-1); r != nil {
			r.again = false
		}
	}
	stopped := s.paused[name] && a.run.request == 0
	row := fakeRun{
		end: end{owner: a.token.Owner}, lease: name, epoch: a.token.Epoch,
		tick: a.run.tick, attempt: c.attempt, request: a.run.request, ticks: 1,
	}
	switch {
	case a.run.number == 0:
	case a.kind == moment && stopped:
		c.verdict = paused
	case s.at(name, row.tick, row.attempt) != nil || row.request != 0 && s.find(func(r *fakeRun) bool {
		return r.request == row.request && r.attempt == row.attempt
	}) != nil:
		c.verdict = taken
	case stopped:
		row.outcome, c.verdict = skipped, paused
		s.add(row)
	default:
		s.add(row)
	}
}

func (s *fakeStore) add(r fakeRun) {
	r.run = int64(len(s.rows)) + 1
	s.rows = append(s.rows, &r)
}

func (s *fakeStore) find(is func(*fakeRun) bool) *fakeRun {
	if i := slices.IndexFunc(s.rows, is); i >= 0 {
		return s.rows[i]
	}
	return nil
}

// at is the row of an attempt; nil: there is none.
func (s *fakeStore) at(name string, tick time.Time, number int) *fakeRun {
	return s.find(func(r *fakeRun) bool { return r.lease == name && r.attempt == number && r.tick.Equal(tick) })
}

func (s *fakeStore) record(ctx context.Context, ends []end) (map[int64]bool, error) {
	if err := s.enter(ctx, "record"); err != nil {
		return nil, err
	}
	settled, bytes := map[int64]bool{}, 0
	for _, e := range ends {
		row := s.rows[e.run-1]
		switch {
		case row.owner != e.owner:
		case row.outcome == "":
			row.end = e
		case row.outcome == lost && e.outcome == refused:
			e.again = row.again
			row.end = e
		}
		settled[e.run] = true
		bytes += len(e.log) + len(e.fault)
	}
	s.biggest = max(s.biggest, bytes)
	return settled, s.leave("record")
}

// set changes the store under its lock.
func (s *fakeStore) set(f func()) {
	s.mu.Lock()
	defer s.mu.Unlock()
	f()
}

// count is how often a call was made.
func (s *fakeStore) count(call string) int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.calls[call]
}

// first is the first run.
func (s *fakeStore) first() fakeRun {
	s.mu.Lock()
	defer s.mu.Unlock()
	return *s.rows[0]
}

// history is every run as "+seconds since the bubble began, outcome".
func (s *fakeStore) history(name string) string {
	s.mu.Lock()
	defer s.mu.Unlock()
	var all []string
	for _, r := range s.rows {
		if r.lease == name {
			o := r.outcome
			if o == "" {
				o = "open"
			}
			text := fmt.Sprintf("+%v %s", r.tick.Sub(bubble), o)
			if r.attempt > 1 {
				text += fmt.Sprintf(" (%d)", r.attempt)
			}
			if r.ticks > 1 {
				text += fmt.Sprintf(" x%d", r.ticks)
			}
			all = append(all, text)
		}
	}
	return strings.Join(all, ", ")
}
