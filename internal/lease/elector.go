package lease

import (
	"context"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"os"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"

	"rota/internal/fence"
)

// A Lease is a row to compete for.
type Lease struct {
	Name     string      // leadership.job_name
	Job      string      // the job that it leads
	Shard    fence.Shard // which part of the job; zero: all of it
	Unbroken bool        // its work lasts for the whole of a term: it is moved only if nothing else can be
}

// Leases are those of a job that is split into so many shards; of 0 and 1 it is one lease.
func Leases(job string, of int, unbroken bool) []Lease {
	shards := fence.Shards(of)
	all := make([]Lease, len(shards))
	for i, s := range shards {
		all[i] = Lease{Name: s.Lease(job), Job: job, Shard: s, Unbroken: unbroken}
	}
	return all
}

// count is how many leases the job has with this one.
func (l Lease) count() int { return max(1, l.Shard.Of) }

// kin is what the leases of one job have in common that a member can lead all of or none: the job
// and its count.
func (l Lease) kin() string { return l.Shard.Kin(l.Job) }

// An Elector wins leases and keeps them. Make one with New; it runs once.
type Elector struct {
	cfg     Config
	store   store
	log     *slog.Logger
	metrics *metrics

	sinceBoot func() time.Duration // a test's machine may be suspended
	rand      *rand.Rand           // used by the loop alone

	events  chan func() // what the loop should do next
	clock   clock
	beat    atomic.Int64 // when the loop last turned, Unix nanoseconds
	hints   atomic.Bool
	drained chan struct{} // closed by Drain
	drain   sync.Once

	mu    sync.Mutex
	terms map[string]*Term // by lease: those whose lead has not returned
	seen  map[string]int64 // by job: the highest epoch met elsewhere
}

// New returns an elector that talks to the database over db, which nothing else may use: a job
// that exhausts a pool must not take the renewals with it. See NewPool.
func New(db *pgxpool.Pool, cfg Config) (*Elector, error) {
	return newElector(newPostgres(db, cfg.callTimeout()), cfg)
}

func newElector(s store, cfg Config) (*Elector, error) {
	if err := cfg.Validate(); err != nil {
		return nil, err
	}
	if cfg.Log == nil {
		cfg.Log = slog.New(slog.DiscardHandler)
	}
	e := &Elector{
		cfg: cfg, store: s, log: cfg.Log, sinceBoot: sinceBoot,
		rand:   rand.New(rand.NewPCG(rand.Uint64(), rand.Uint64())),
		events: make(chan func()), drained: make(chan struct{}),
		terms: map[string]*Term{}, seen: map[string]int64{},
	}
	var err error
	e.metrics, err = newMetrics(cfg.Metrics, cfg.Lease, func() time.Duration { return time.Until(e.Now()) })
	if err != nil {
		return nil, fmt.Errorf("register the metrics of the leases: %w", err)
	}
	return e, nil
}

// Run competes for the leases, and calls lead in a goroutine of its own for each term that it wins.
// A term is renewed until its lead has returned, and only then released; a lead that never returns
// keeps Run from returning.
//
// When ctx ends, every term is asked for (see Term.Asked), and Run returns once all leads have
// returned and their leases are released or have run out. It returns an error only for leases that
// could not be served at all; an unreachable database is waited for.
func (e *Elector) Run(ctx context.Context, leases []Lease, lead func(*Term)) error {
	seats := make(map[string]*seat, len(leases))
	counts := make(map[string]int, len(leases))
	for _, l := range leases {
		if l.Name == "" || seats[l.Name] != nil {
			return fmt.Errorf("lease %q: names must be unique and not empty", l.Name)
		}
		if n, met := counts[l.Job]; met && n != l.count() {
			return fmt.Errorf("lease %q: job %q has %d leases and %d: a replica can lead it by one count alone", l.Name, l.Job, n, l.count())
		}
		counts[l.Job] = l.count()
		s := &seat{lease: l}
		seats[l.Name] = s
		e.metrics.start(s)
	}
	newElection(e, seats, lead).run(ctx)
	return nil
}

// GiveUp asks for the term of a lease, if this replica leads it, for the given reason.
func (e *Elector) GiveUp(lease string, why error) {
	e.mu.Lock()
	t := e.terms[lease]
	e.mu.Unlock()
	if t != nil {
		t.ask(why)
	}
}

// Seen notes an epoch of a job that was met elsewhere, on a protected row above all: the lease row
// has been reset or restored. The next acquisition will be above it.
func (e *Elector) Seen(job string, epoch int64) {
	e.metrics.resets.WithLabelValues(job).Inc()
	e.mu.Lock()
	defer e.mu.Unlock()
	e.seen[job] = max(e.seen[job], epoch)
}

// Now is the database's time, by the estimate of the last heartbeat; the local clock before the first.
func (e *Elector) Now() time.Time { return e.clock.now(e.sinceBoot()) }

// Beat is when the lease loop last turned, by the local clock; zero before the first time. It turns
// at least once in a renewal interval whether or not the database answers.
func (e *Elector) Beat() time.Time {
	n := e.beat.Load()
	if n == 0 {
		return time.Time{}
	}
	return time.Unix(0, n)
}

// Hints reports whether the releases of others are announced to this replica; without them it
// learns of them by polling.
func (e *Elector) Hints() bool { return e.hints.Load() }

// A clock estimates the database's time from its answers.
type clock struct {
	mu   sync.Mutex
	base time.Time     // what the database said
	at   time.Duration // when, by sinceBoot
}

// set notes when the database began with a call and when it had its answer, and when that was sent and
// came. The middle of the one is that of the other, but for half of what the way took: how long the
// database worked on it makes no difference.
func (c *clock) set(received, told time.Time, sent, came time.Duration) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.base, c.at = received.Add(told.Sub(received)/2), sent+(came-sent)/2
}

func (c *clock) now(at time.Duration) time.Time {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.base.IsZero() {
		return time.Now()
	}
	return c.base.Add(at - c.at)
}

// self is what this replica says of itself.
func (e *Elector) self(started time.Time, draining bool, ability string) member {
	host, _, _ := strings.Cut(e.cfg.Owner, "/")
	if i := strings.LastIndexByte(e.cfg.Owner, '/'); i >= 0 {
		host = e.cfg.Owner[:i]
	}
	return member{
		owner: e.cfg.Owner, host: host, pid: os.Getpid(), version: e.cfg.Version, started: started,
		lease: e.cfg.Lease, lasts: e.cfg.Lease - e.cfg.margin(),
		offset: time.Until(e.Now()), hints: e.Hints(), draining: draining, ability: ability,
	}
}
