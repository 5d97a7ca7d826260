package scheduler

import (
	"context"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/prometheus/client_golang/prometheus"

	"rota/internal/fence"
	"rota/internal/registry"
)

// A fakeTerm is a term that a test ends and asks for.
type fakeTerm struct {
	ctx   context.Context
	end   context.CancelCauseFunc
	asked chan struct{}
	ready func()
}

func newFakeTerm() *fakeTerm {
	t := &fakeTerm{asked: make(chan struct{}), ready: func() {}}
	t.ctx, t.end = context.WithCancelCause(context.Background())
	return t
}

func (t *fakeTerm) Context() context.Context { return t.ctx }
func (t *fakeTerm) End(cause error)          { t.end(cause) }
func (t *fakeTerm) Asked() <-chan struct{}   { return t.asked }
func (t *fakeTerm) Ready()                   { t.ready() }
func (t *fakeTerm) cause() error             { return context.Cause(t.ctx) }

// A fakeStore is a database in memory, in which all is led that is asked for. Its clock is the
// bubble's. Where a fault is set it is asked before each call.
type fakeStore struct {
	mu      sync.Mutex
	raised  int64                // the highest epoch on every protected row
	last    map[string]time.Time // by lease
	rows    []*fakeRun
	again   map[string]*attempt // by lease: what is to be run again
	fenced  map[string]bool
	locked  map[string]bool
	paused  map[string]bool
	off     time.Duration // of its clock from the bubble's
	answers map[string]bool // by call: whether answers are lost once it has executed
	calls   map[string]int
	fault   func(call string) error
}

type fakeRun struct {
	end
	lease   string
	tick    time.Time
	attempt int
	request int64
	ticks   int64
	why     string
}

func newFakeStore() *fakeStore {
	return &fakeStore{
		last: map[string]time.Time{}, again: map[string]*attempt{},
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

func (s *fakeStore) raise(ctx context.Context, t fence.Token, _ []fence.Table) (int64, error) {
	if err := s.enter(ctx, "raise"); err != nil {
		return 0, err
	}
	highest := s.raised
	s.raised = max(s.raised, t.Epoch)
	return highest, s.leave("raise")
}

func (s *fakeStore) begin(ctx context.Context, asked []opening) (map[fence.Token]opened, error) {
	if err := s.enter(ctx, "begin"); err != nil {
		return nil, err
	}
	found := map[fence.Token]opened{}
	for _, o := range asked {
		name := o.token.Lease
		switch {
		case s.fenced[name]:
			found[o.token] = opened{verdict: fenced}
		case s.locked[name]:
			found[o.token] = opened{verdict: locked}
		default:
			if now := s.now(); s.last[name].IsZero() || s.last[name].After(now) {
				s.last[name] = now
			}
			found[o.token] = opened{verdict: begun, last: s.last[name], now: s.now(), again: s.again[name]}
		}
	}
	return found, s.leave("begin")
}

func (s *fakeStore) now() time.Time { return time.Now().Add(s.off) }

func (s *fakeStore) claim(ctx context.Context, asked []claim) (map[fence.Token]claimed, error) {
	if err := s.enter(ctx, "claim"); err != nil {
		return nil, err
	}
	found := map[fence.Token]claimed{}
	for _, a := range asked {
		found[a.token] = s.claimOne(a)
	}
	return found, s.leave("claim")
}

func (s *fakeStore) claimOne(a claim) claimed {
	name := a.token.Lease
	c := claimed{verdict: won, last: s.last[name], now: s.now(), attempt: a.run.number}
	mine := s.find(func(r *fakeRun) bool {
		return r.lease == name && r.tick.Equal(a.run.tick) && r.attempt == a.run.number && r.outcome == ""
	})
	switch {
	case s.fenced[name]:
		c.verdict = fenced
	case s.locked[name]:
		c.verdict = locked
	case a.kind == rebase:
		c.verdict = rebased
		if c.now.Before(c.last) {
			s.last[name] = c.now
		}
	case mine != nil:
		c.run = mine.run
	case a.kind == scheduled && a.until.After(c.now):
		c.verdict = early
	case a.kind == scheduled && !a.until.After(c.last):
		c.verdict = taken
	case a.kind == moment && s.paused[name]:
		c.verdict = paused
	default:
		s.win(a, &c)
	}
	return c
}

func (s *fakeStore) win(a claim, c *claimed) {
	name := a.token.Lease
	for _, p := range a.passed {
		s.rows = append(s.rows, &fakeRun{
			end: end{run: int64(len(s.rows)) + 1, outcome: p.outcome}, lease: name, tick: p.last, attempt: 1, ticks: p.ticks, why: p.why,
		})
	}
	if a.kind == scheduled {
		s.last[name] = a.until
	}
	if a.run.number == 0 {
		return
	}
	if s.find(func(r *fakeRun) bool {
		return r.lease == name && r.tick.Equal(a.run.tick) && r.attempt == a.run.number
	}) != nil {
		c.verdict = taken
		return
	}
	row := &fakeRun{
		end: end{run: int64(len(s.rows)) + 1, owner: a.token.Owner}, lease: name,
		tick: a.run.tick, attempt: a.run.number, request: a.run.request, ticks: 1,
	}
	if s.paused[name] && a.run.request == 0 {
		row.outcome, c.verdict = skipped, paused
	} else {
		c.run = row.run
	}
	s.rows = append(s.rows, row)
}

func (s *fakeStore) find(is func(*fakeRun) bool) *fakeRun {
	if i := slices.IndexFunc(s.rows, is); i >= 0 {
		return s.rows[i]
	}
	return nil
}

func (s *fakeStore) record(ctx context.Context, ends []end) (map[int64]bool, error) {
	if err := s.enter(ctx, "record"); err != nil {
		return nil, err
	}
	settled := map[int64]bool{}
	for _, e := range ends {
		row := s.rows[e.run-1]
		if row.outcome == "" {
			row.end = e
		}
		settled[e.run] = true
	}
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

// bubble is when every synctest bubble begins.
var bubble = time.Date(2000, 1, 1, 0, 0, 0, 0, time.UTC)

// A notebook is written in by runs, and read by the test.
type notebook[T any] struct {
	mu    sync.Mutex
	lines []T
}

func (n *notebook[T]) add(line T) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.lines = append(n.lines, line)
}

func (n *notebook[T]) read() []T {
	n.mu.Lock()
	defer n.mu.Unlock()
	return slices.Clone(n.lines)
}

// A fakeElector's clock is that of the bubble, give or take.
type fakeElector struct {
	off  atomic.Int64 // nanoseconds
	mu   sync.Mutex
	seen map[string]int64

	given   []string
	drained bool
}

func (e *fakeElector) Now() time.Time { return time.Now().Add(time.Duration(e.off.Load())) }

func (e *fakeElector) Seen(job string, epoch int64) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.seen == nil {
		e.seen = map[string]int64{}
	}
	e.seen[job] = epoch
}

func (e *fakeElector) GiveUp(lease string, why error) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.given = append(e.given, lease+": "+why.Error())
}

func (e *fakeElector) Drain() {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.drained = true
}

const (
	testDrain = 20 * time.Second
	testGrace = 5 * time.Second
)

// A bench is a scheduler in a bubble, at work for one owner.
type bench struct {
	t       *testing.T
	store   *fakeStore
	elector *fakeElector
	*Scheduler
	metrics *prometheus.Registry
	stop    context.CancelFunc
	ended   chan struct{}
}

func newBench(t *testing.T, jobs ...registry.Job) *bench {
	t.Helper()
	jobs, err := registry.Check(jobs)
	if err != nil {
		t.Fatal(err)
	}
	b := &bench{t: t, store: newFakeStore(), elector: new(fakeElector), metrics: prometheus.NewRegistry(), ended: make(chan struct{})}
	cfg := Config{
		Jobs: jobs, Elector: b.elector, Owner: "me", Log: slog.New(slog.NewTextHandler(t.Output(), nil)),
		Metrics: b.metrics, Drain: testDrain, Grace: testGrace, Work: new(pgxpool.Pool),
	}
	if b.Scheduler, err = newScheduler(cfg, b.store, 2); err != nil {
		t.Fatal(err)
	}
	ctx, stop := context.WithCancel(context.Background())
	b.stop = stop
	go func() {
		defer close(b.ended)
		_ = b.Run(ctx)
	}()
	return b
}

// leads leads a job; the channel is closed once Lead has returned.
func (b *bench) leads(term *fakeTerm, name string, epoch int64) <-chan struct{} {
	returned := make(chan struct{})
	go func() {
		defer close(returned)
		b.lead(term, fence.Token{Lease: name, Owner: "me", Epoch: epoch}, name)
	}()
	return returned
}

// closes stops the scheduler and waits for it.
func (b *bench) closes(terms ...*fakeTerm) {
	for _, term := range terms {
		close(term.asked)
	}
	b.stop()
	<-b.ended
}

// sample is a metric's value; labels are as name=value.
func (b *bench) sample(name string, labels ...string) float64 {
	b.t.Helper()
	families, err := b.metrics.Gather()
	if err != nil {
		b.t.Fatal(err)
	}
	for _, f := range families {
		if f.GetName() != name {
			continue
		}
		for _, m := range f.GetMetric() {
			has := func(want string) bool {
				for _, l := range m.GetLabel() {
					if l.GetName()+"="+l.GetValue() == want {
						return true
					}
				}
				return false
			}
			if !slices.ContainsFunc(labels, func(want string) bool { return !has(want) }) {
				return m.GetCounter().GetValue() + m.GetGauge().GetValue() + float64(m.GetHistogram().GetSampleCount())
			}
		}
	}
	b.t.Errorf("there is no %s with %v", name, labels)
	return 0
}

// after waits for a time, and then until everybody is waiting for the clock.
func after(d time.Duration) {
	time.Sleep(d)
	synctest.Wait()
}

func closed(c <-chan struct{}) bool {
	select {
	case <-c:
		return true
	default:
		return false
	}
}
