package lease

import (
	"context"
	"log/slog"
	"math/rand/v2"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"
)

// A world is a simulated database and the replicas that compete in it. It lives in a synctest bubble.
type world struct {
	t    *testing.T
	db   *memory
	skew time.Duration // how much the clocks have jumped ahead of the bubble's in suspensions
	mu   sync.Mutex

	log *slog.Logger // nil: nowhere
}

func newWorld(t *testing.T) *world {
	w := &world{t: t}
	w.db = newMemory(w.now)
	return w
}

func (w *world) jumped() time.Duration {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.skew
}

func (w *world) now() time.Time { return time.Now().Add(w.jumped()) }

// suspend lets time pass for every clock but the monotonic one, on which timers run.
func (w *world) suspend(d time.Duration) {
	w.mu.Lock()
	w.skew += d
	w.mu.Unlock()
}

// A replica is an elector, and what its leads do.
type replica struct {
	*Elector
	w      *world
	net    *faulty
	reg    *prometheus.Registry
	stop   context.CancelFunc
	done   chan struct{}
	linger time.Duration // how long a lead takes to return

	mu      sync.Mutex
	terms   []*Term
	stuck   bool // leads do not return until unstick is closed
	unstick chan struct{}
	most    int // one more than the terms that may begin, once it is drained; 0: any number may
}

const (
	testLease = 15 * time.Second
	testRenew = 5 * time.Second
)

func (w *world) start(name string, next func(string) fault, leases ...Lease) *replica {
	w.t.Helper()
	if next == nil {
		next = func(string) fault { return fault{} }
	}
	r := &replica{w: w, net: &faulty{store: w.db, next: next}, reg: prometheus.NewRegistry(), done: make(chan struct{}), unstick: make(chan struct{})}
	e, err := newElector(r.net, Config{Owner: name, Lease: testLease, Renew: testRenew, Metrics: r.reg, Log: w.log})
	if err != nil {
		w.t.Fatal(err)
	}
	begun := time.Now()
	e.sinceBoot = func() time.Duration { return time.Since(begun) + w.jumped() + time.Hour }
	e.rand = rand.New(rand.NewPCG(1, uint64(len(name))))
	r.Elector = e
	ctx, cancel := context.WithCancel(w.t.Context())
	r.stop = cancel
	go func() {
		defer close(r.done)
		if err := e.Run(ctx, leases, r.lead); err != nil {
			w.t.Error(err)
		}
	}()
	return r
}

func (r *replica) lead(t *Term) {
	r.mu.Lock()
	r.terms = append(r.terms, t)
	stuck := r.stuck
	r.mu.Unlock()
	t.Ready()
	if stuck {
		<-r.unstick
	}
	select {
	case <-t.Asked():
	case <-t.Yielding():
	case <-t.Context().Done():
	}
	time.Sleep(r.linger)
}

func (r *replica) leading() (live []*Term) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, t := range r.terms {
		if t.Context().Err() == nil {
			live = append(live, t)
		}
	}
	return live
}

func (r *replica) leads(name string) *Term {
	for _, t := range r.leading() {
		if t.Token.Lease == name {
			return t
		}
	}
	return nil
}

func (r *replica) end() {
	r.stop()
	<-r.done
	r.net.late.Wait()
}

func leasesNamed(names ...string) (ls []Lease) {
	for _, n := range names {
		ls = append(ls, Lease{Name: n, Job: n})
	}
	return ls
}

func pass(d time.Duration) { time.Sleep(d); synctest.Wait() }

func expectLeader(t *testing.T, w *world, name string, who *replica, epoch int64) *Term {
	t.Helper()
	r := w.db.get(name)
	term := who.leads(name)
	if r.owner != who.cfg.Owner || r.epoch != epoch || term == nil || term.Token.Epoch != epoch {
		t.Fatalf("%s: row %v, term %v; want %s at epoch %d", name, r, term, who.cfg.Owner, epoch)
	}
	return term
}
