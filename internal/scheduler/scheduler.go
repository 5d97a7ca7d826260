package scheduler

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/prometheus/client_golang/prometheus"

	"rota/internal/fence"
	"rota/internal/lease"
	"rota/internal/registry"
)

// Config is what a Scheduler works with.
type Config struct {
	// Engine is the pool for claims, records and raises, and for nothing of the jobs'.
	Engine *pgxpool.Pool
	// Work is the pool that the jobs read with, and write with through their fences.
	Work *pgxpool.Pool
	// Jobs are those that may be led; see registry.Jobs.
	Jobs []registry.Job
	// Elector is where the terms come from.
	Elector Elector
	// Requests is told what became of the requests that Steer was given; nil: there are none.
	Requests Requests
	// Owner names this process start, as the Elector's owner does.
	Owner string
	// Log gets a line for what an operator should know: a run that did not succeed, above all.
	Log *slog.Logger
	// Metrics is where the scheduler registers what it counts.
	Metrics prometheus.Registerer
	// Drain is how long a run may go on once its term is asked for; 0 cancels it at once.
	Drain time.Duration
	// Grace is how long a run may ignore that its context has ended before it is abandoned, and how
	// long the last records may take at the end.
	Grace time.Duration
}

// An Elector is what the scheduler needs of a lease.Elector.
type Elector interface {
	// Now is the time by the database's clock.
	Now() time.Time
	// Seen notes an epoch of a job that is above the term's.
	Seen(job string, epoch int64)
	// GiveUp asks for the term of a lease.
	GiveUp(lease string, why error)
	// Drain gives up all that is led, and keeps the replica from leading anything further.
	Drain()
}

// Requests is what the scheduler needs of a control.Watch.
type Requests interface {
	// Done settles a request; it never waits.
	Done(id int64, result string)
}

// none is where nobody is to be told.
type none struct{}

func (none) Done(int64, string) {}

// A Scheduler does the work of the terms that this replica leads. Make one with New; it runs once.
type Scheduler struct {
	cfg      Config
	log      *slog.Logger
	store    store
	jobs     map[string]*registry.Job
	metrics  *metrics
	ticker   *ticker
	opener   *opener
	recorder *recorder
	raising  chan struct{} // has room for as many as may raise at once
	steering *steering

	mu     sync.Mutex
	leads  int
	closed bool
	empty  chan struct{} // has room for one: a lead has returned
}

// New returns a scheduler. It fails where its metrics are registered already.
func New(cfg Config) (*Scheduler, error) {
	return newScheduler(cfg, &postgres{db: cfg.Engine, owner: cfg.Owner}, raisers(cfg.Engine))
}

// raisers is how many may raise at once: a raise may wait long for a row, and must leave connections
// for two claims, a record and the terms that begin.
func raisers(engine *pgxpool.Pool) int { return max(1, int(engine.Config().MaxConns)-4) }

func newScheduler(cfg Config, s store, raisers int) (*Scheduler, error) {
	if cfg.Log == nil {
		cfg.Log = slog.New(slog.DiscardHandler)
	}
	if cfg.Metrics == nil {
		return nil, errors.New("scheduler: no metrics to register with")
	}
	m, err := newMetrics(cfg.Metrics, cfg.Jobs)
	if err != nil {
		return nil, fmt.Errorf("register the metrics of the runs: %w", err)
	}
	jobs := make(map[string]*registry.Job, len(cfg.Jobs))
	for i := range cfg.Jobs {
		jobs[cfg.Jobs[i].Name] = &cfg.Jobs[i]
	}
	if cfg.Requests == nil {
		cfg.Requests = none{}
	}
	rec := newRecorder(s, cfg.Log)
	return &Scheduler{
		cfg: cfg, log: cfg.Log, store: s, jobs: jobs, metrics: m, recorder: rec, opener: newOpener(s, cfg.Log),
		ticker:  newTicker(s, cfg.Elector.Now, rec, cfg.Requests.Done, cfg.Log),
		raising: make(chan struct{}, raisers), empty: make(chan struct{}, 1), steering: newSteering(),
	}, nil
}

// Run claims and records for the leads until ctx ends. It returns once all leads have returned and
// every end of a run is recorded, or a grace later where the database does not take them. A lead
// whose job does not return keeps it from returning.
func (s *Scheduler) Run(ctx context.Context) error {
	working, stop := context.WithCancel(context.WithoutCancel(ctx))
	defer stop()
	var loops sync.WaitGroup
	loops.Go(func() { s.ticker.run(working) })
	loops.Go(func() { s.opener.run(working) })

	var recording sync.WaitGroup
	recorded := make(chan struct{})
	giveUp, abort := context.WithCancel(context.WithoutCancel(ctx))
	defer abort()
	recording.Go(func() { s.recorder.run(giveUp, recorded) })

	<-ctx.Done()
	s.awaitLeads()
	stop()
	loops.Wait()
	close(recorded)
	defer time.AfterFunc(s.cfg.Grace, abort).Stop()
	recording.Wait()
	return nil
}

// Lead does the work of a term: it raises the epoch on the job's protected tables, closes what
// earlier terms left open, and runs the job at its ticks. It returns when the term is over, or has
// been asked for and its run has ended; in any case only once the job's function has returned, and
// a run that ended while the term lasts is on record. It is to be called in a goroutine of its own.
func (s *Scheduler) Lead(t *lease.Term) { s.lead(t, t.Token, t.Job) }

func (s *Scheduler) lead(t term, token fence.Token, name string) {
	j, ok := s.jobs[name]
	if !ok {
		s.log.Error("term given back, for there is no such job", "job", name, "lease", token.Lease)
		return
	}
	if !s.enter() {
		return
	}
	defer s.leave()
	s.newLead(t, token, j).work()
}

// enter counts a lead, unless the scheduler has stopped.
func (s *Scheduler) enter() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		return false
	}
	s.leads++
	return true
}

func (s *Scheduler) leave() {
	s.mu.Lock()
	s.leads--
	s.mu.Unlock()
	select {
	case s.empty <- struct{}{}:
	default:
	}
}

// awaitLeads returns once none is left, and lets no further one in.
func (s *Scheduler) awaitLeads() {
	for {
		s.mu.Lock()
		s.closed = s.leads == 0
		closed := s.closed
		s.mu.Unlock()
		if closed {
			return
		}
		<-s.empty
	}
}
