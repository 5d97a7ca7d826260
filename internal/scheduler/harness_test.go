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
	yield chan struct{}
	tied  atomic.Bool
	ready func()
}

func newFakeTerm() *fakeTerm {
	t := &fakeTerm{asked: make(chan struct{}), yield: make(chan struct{}), ready: func() {}}
	t.ctx, t.end = context.WithCancelCause(context.Background())
	return t
}

func (t *fakeTerm) Context() context.Context { return t.ctx }
func (t *fakeTerm) End(cause error)          { t.end(cause) }
func (t *fakeTerm) Asked() <-chan struct{}   { return t.asked }
func (t *fakeTerm) Yielding() <-chan struct{} {
	return t.yield
}
func (t *fakeTerm) Tie(tied bool) { t.tied.Store(tied) }
func (t *fakeTerm) Ready()        { t.ready() }
func (t *fakeTerm) cause() error  { return context.Cause(t.ctx) }

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

// gave is what was asked to be given up, and why.
func (e *fakeElector) gave() string {
	e.mu.Lock()
	defer e.mu.Unlock()
	return strings.Join(e.given, ", ")
}

// fakeRequests are what is settled, as "id: result".
type fakeRequests struct{ notebook[string] }

func (r *fakeRequests) Done(id int64, result string) { r.add(fmt.Sprintf("%d: %s", id, result)) }

func (r *fakeRequests) said() string { return strings.Join(r.read(), ", ") }

const (
	testDrain = 20 * time.Second
	testGrace = 5 * time.Second
)

// A bench is a scheduler in a bubble, at work for one owner.
type bench struct {
	t       *testing.T
	store   *fakeStore
	elector *fakeElector
	settled *fakeRequests
	*Scheduler
	metrics *prometheus.Registry
	stop    context.CancelFunc
	ended   chan struct{}
}

func newBench(t *testing.T, jobs ...registry.Job) *bench {
	t.Helper()
	return newBenchOf(t, "me", newFakeStore(), slog.NewTextHandler(t.Output(), nil), jobs...)
}

func newBenchOf(t *testing.T, owner string, s *fakeStore, log slog.Handler, jobs ...registry.Job) *bench {
	t.Helper()
	jobs, err := registry.Check(jobs)
	if err != nil {
		t.Fatal(err)
	}
	b := &bench{t: t, store: s, elector: new(fakeElector), settled: new(fakeRequests), metrics: prometheus.NewRegistry(), ended: make(chan struct{})}
	cfg := Config{
		Jobs: jobs, Elector: b.elector, Requests: b.settled, Owner: owner, Log: slog.New(log),
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
		b.lead(term, fence.Token{Lease: name, Owner: b.cfg.Owner, Epoch: epoch}, name)
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
