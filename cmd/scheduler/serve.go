package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"maps"
	"net"
	"net/http"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promhttp"
	"github.com/spf13/cobra"

	"rota/internal/control"
	"rota/internal/lease"
	"rota/internal/registry"
	"rota/internal/scheduler"
	"rota/internal/status"
	"rota/internal/web"
)

func serveCommand(env []string) *cobra.Command {
	cfg := Defaults()
	cmd := &cobra.Command{
		Use: "serve", Short: "Run a replica: leads jobs, and serves the page, the API, the probes and the metrics",
		Long: `Serve runs a replica until SIGINT or SIGTERM. It then takes no new ticks, lets its runs finish (after
--drain it cancels them), hands its leases over, and exits. A job that has not returned --grace later
is left behind: its lease runs out by itself, and the exit code is 4. A second signal exits at once.

Every flag can be given as an environment variable too: --lease as ROTA_LEASE, and so on.`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			owner, watched := lookup(env, ownerEnv)
			if !watched {
				return start(cmd.Context(), cfg, env, lease.NewOwner(cfg.Name), cfg.Witness == "on", cmd.ErrOrStderr())
			}
			say := speaker()
			err := start(cmd.Context(), cfg, env, owner, false, cmd.ErrOrStderr())
			say() // not deferred: a panic is no end of its own
			return err
		},
	}
	serveFlags(cmd.Flags(), &cfg)
	return cmd
}

// msgServing is logged once the page and the probes are there; dev waits for it.
const msgServing = "serving"

// validate says at once all that is wrong with the settings and the jobs.
func validate(cfg Config, env []string) ([]registry.Job, error) {
	jobs, jobsErr := loadJobs(cfg.JobsFile)
	err := errors.Join(cfg.Validate(), requireDatabase(cfg, env), jobsErr)
	if jobsErr == nil {
		_, wrong := cfg.chosen(registry.Enabled(jobs))
		err = errors.Join(err, wrong)
	}
	return jobs, coded(exitUsage, err)
}

// start runs a replica in this process, or under a witness that this process is then.
func start(ctx context.Context, cfg Config, env []string, owner string, watched bool, stderr io.Writer) error {
	jobs, err := validate(cfg, env)
	if err != nil {
		return err
	}
	if watched {
		return watchOver(ctx, cfg, env, owner, stderr)
	}
	return serve(ctx, cfg, owner, jobs, supervisorOf(env), stderr)
}

// serve wires a replica, in the order in which the data flows, and runs it until ctx ends.
func serve(ctx context.Context, cfg Config, owner string, jobs []registry.Job, above supervisor, stderr io.Writer) error {
	log := cfg.logger(stderr)
	enabled := registry.Enabled(jobs)
	log.Info("replica started", "owner", owner, "version", buildVersion(), "jobs", len(enabled),
		"lease_time", cfg.Lease.String(), "renewal", cfg.Renew.String(), "database", cfg.masked())

	gate, err := cfg.gate()
	if err != nil {
		return coded(exitUsage, err)
	}
	switch {
	case gate.ReadOnly != "":
		log.Warn("the page and the API are read-only", "why", gate.ReadOnly)
	case cfg.Auth == web.AuthNone:
		log.Info("whoever reaches the page from this machine may do everything: behind a proxy, use --auth", "listen", cfg.Listen)
	}
	listener, err := net.Listen("tcp", cfg.Listen)
	if err != nil {
		return fmt.Errorf("listen: %w", err)
	}
	defer func() { _ = listener.Close() }()
	if err := awaitDatabase(ctx, cfg.DatabaseURL, startPatience, log); err != nil {
		return stoppedBefore(ctx, err)
	}
	if err := prepareSchema(ctx, cfg.DatabaseURL, cfg.Migrate, log); err != nil {
		return stoppedBefore(ctx, err)
	}
	pooled, err := behindPooler(ctx, cfg.DatabaseURL)
	if err != nil {
		return err
	}
	if pooled {
		log.Info("a pooler is in between: no statement stays prepared", "owner", owner)
	}
	db, err := openPools(context.WithoutCancel(ctx), cfg.DatabaseURL, owner, pooled)
	if err != nil {
		return err
	}
	defer db.close()
	if err := checkRights(ctx, db.page); err != nil {
		return stoppedBefore(ctx, err)
	}

	reader := status.New(db.page, jobs)
	metrics := newRegistry(db, reader)
	watch := control.NewWatch(db.steer, owner, log)
	elector, err := lease.New(db.lease, electorConfig(cfg, owner, watch, log, metrics))
	if err != nil {
		return err
	}
	probes := newProbes(elector.Beat, cfg.Lease, db.page)
	work, err := scheduler.New(scheduler.Config{
		Engine: db.engine, Work: db.work, Jobs: withHistory(enabled, db.work, cfg), Elector: drainable{elector, probes}, Requests: watch, Owner: owner, Log: log, Metrics: metrics,
		Drain: cfg.Drain, Grace: cfg.Grace,
	})
	if err != nil {
		return err
	}
	site := startSite(listener, web.Handler(web.Config{
		Status:  reader,
		Desk:    control.NewDesk(db.desk, jobs),
		Gate:    gate,
		Counts:  metrics,
		Metrics: promhttp.HandlerFor(metrics, promhttp.HandlerOpts{ErrorLog: slog.NewLogLogger(log.Handler(), slog.LevelError)}),
		Live:    http.HandlerFunc(probes.live), Ready: http.HandlerFunc(probes.ready),
		Version: buildVersion(), Environment: cfg.Environment, EnvironmentColor: cfg.EnvironmentColor, Log: log,
		Owner: owner, Jobs: jobs, Pools: db.use,
	}), log)
	defer site.stop()
	context.AfterFunc(ctx, probes.drain)
	leads, err := cfg.chosen(enabled)
	if err != nil {
		return err
	}
	defer background(ctx, func(ctx context.Context) { watch.Run(ctx, work.Steer) })()
	log.Info(msgServing, "address", listener.Addr().String(), "owner", owner)
	defer background(ctx, func(ctx context.Context) {
		above.watch(ctx, "serving at "+listener.Addr().String(), probes.alive, log)
	})()
	context.AfterFunc(ctx, func() { _ = above.tell("STOPPING=1") })

	r := &replica{cfg: cfg, log: log, elector: elector, work: work, leading: map[string]struct{}{}}
	return r.run(ctx, leads)
}

// A drainable elector makes the replica not ready when an operator drains it, as a shutdown does.
type drainable struct {
	*lease.Elector
	probes *probes
}

func (d drainable) Drain() {
	d.probes.drain()
	d.Elector.Drain()
}

// background runs f beside everything else until the function that it returns is called, which waits
// for f. The end of ctx is none for f: while a replica drains, operators may still cancel its runs.
func background(ctx context.Context, f func(context.Context)) (stop func()) {
	ctx, cancel := context.WithCancel(context.WithoutCancel(ctx))
	var running sync.WaitGroup
	running.Go(func() { f(ctx) })
	return func() {
		cancel()
		running.Wait()
	}
}

// stoppedBefore is no error where the start was called off.
func stoppedBefore(ctx context.Context, err error) error {
	if ctx.Err() != nil {
		return nil
	}
	return err
}

// A replica leads, until it is told to stop.
type replica struct {
	cfg     Config
	log     *slog.Logger
	elector *lease.Elector
	work    *scheduler.Scheduler

	mu      sync.Mutex
	leading map[string]struct{} // leases whose lead has not returned
}

// slack is what the last records and releases may take beyond the drain and the grace.
const slack = 500 * time.Millisecond

// run returns once every lease has been handed over, or when the time for that is up.
func (r *replica) run(ctx context.Context, jobs []registry.Job) error {
	leases := make([]lease.Lease, 0, len(jobs))
	for _, j := range jobs {
		leases = append(leases, lease.Leases(j.Name, j.Shards, j.Schedule.Kind() == registry.Unbroken)...)
	}
	ended := make(chan error, 2)
	go func() { ended <- r.work.Run(ctx) }()
	go func() { ended <- r.elector.Run(ctx, leases, r.lead) }()

	var late <-chan time.Time
	stop := ctx.Done()
	for range 2 {
		for running := true; running; {
			select {
			case err := <-ended:
				if err != nil {
					return err
				}
				running = false
			case <-stop:
				stop = nil
				late = time.After(r.cfg.Drain + r.cfg.Grace + slack)
				r.log.Info("draining", "reason", context.Cause(ctx), "drain", registry.Span(r.cfg.Drain), "grace", registry.Span(r.cfg.Grace))
			case <-late:
				return r.left()
			}
		}
	}
	r.log.Info("replica stopped")
	return nil
}

func (r *replica) lead(t *lease.Term) {
	r.mu.Lock()
	r.leading[t.Token.Lease] = struct{}{}
	r.mu.Unlock()
	r.work.Lead(t)
	r.mu.Lock()
	delete(r.leading, t.Token.Lease)
	r.mu.Unlock()
}

// left says what kept the replica from stopping in good order.
func (r *replica) left() error {
	r.mu.Lock()
	defer r.mu.Unlock()
	if len(r.leading) == 0 {
		return coded(exitLeft, errors.New("the database did not answer in time, leases that it still shows as ours are left to expire"))
	}
	return coded(exitLeft, fmt.Errorf("not returned within the drain (%s) and the grace (%s), its lease is left to expire: %s",
		registry.Span(r.cfg.Drain), registry.Span(r.cfg.Grace), strings.Join(slices.Sorted(maps.Keys(r.leading)), ", ")))
}

// A site is a running HTTP server.
type site struct {
	server *http.Server
	done   chan struct{}
}

// longestHeader has room for the cookies of others that share the name.
const longestHeader = 32 << 10

func startSite(listener net.Listener, handler http.Handler, log *slog.Logger) *site {
	s := &site{
		server: &http.Server{
			Handler:           handler,
			ReadHeaderTimeout: 5 * time.Second, ReadTimeout: 15 * time.Second, WriteTimeout: 30 * time.Second, IdleTimeout: 2 * time.Minute,
			MaxHeaderBytes: longestHeader,
			ErrorLog:       slog.NewLogLogger(log.Handler(), slog.LevelWarn),
		},
		done: make(chan struct{}),
	}
	go func() {
		defer close(s.done)
		if err := s.server.Serve(listener); !errors.Is(err, http.ErrServerClosed) {
			log.Error("page and probes are no longer served", "error", err)
		}
	}()
	return s
}

// stop lets answers under way be written, for a moment.
func (s *site) stop() {
	ctx, cancel := context.WithTimeout(context.Background(), slack)
	defer cancel()
	if s.server.Shutdown(ctx) != nil {
		_ = s.server.Close()
	}
	<-s.done
}

// electorConfig is that of the replica's elector. What is announced to it of orders wakes the watch.
func electorConfig(cfg Config, owner string, watch *control.Watch, log *slog.Logger, metrics prometheus.Registerer) lease.Config {
	return lease.Config{
		Owner: owner, Version: buildVersion(), Lease: cfg.Lease, Renew: cfg.Renew, Steer: watch.Wake, Log: log, Metrics: metrics,
	}
}
