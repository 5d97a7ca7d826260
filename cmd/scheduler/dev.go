package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"os"
	"sync"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promhttp"
	"github.com/spf13/cobra"

	"rota/internal/control"
	"rota/internal/devdb"
	"rota/internal/registry"
	"rota/internal/status"
	"rota/internal/web"
)

// devConfig is what dev can be told.
type devConfig struct {
	url    string // of a database; empty: a private server
	data   string // where a private server keeps its data; empty: nowhere
	listen string
	pinned bool // listen was asked for: another will not do
	story  bool
}

func devCommand(env []string) *cobra.Command {
	cfg := devConfig{listen: Defaults().Listen}
	cmd := &cobra.Command{
		Use: "dev", Short: "Three replicas, a page, sample data and a private Postgres, to play with",
		Long: `Dev starts a private PostgreSQL, three replicas of its own binary with a lease of 6 s, sample data, and
the page. Freeze a replica, cut it off from the database, or kill it, by a button of the page, or the
leader of bridge_health by a letter, and watch what follows. With --database-url none can be cut off.

With --story it plays the story by itself: a frozen leader, the takeover, and what becomes of the
writes of the one that wakes up late.`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			cfg.pinned = cmd.Flags().Changed("listen")
			return dev(cmd.Context(), cfg, env, cmd.InOrStdin(), cmd.OutOrStdout())
		},
	}
	flags := cmd.Flags()
	flags.StringVar(&cfg.data, "data", "", "`directory` that keeps the private Postgres; without it the data is deleted at the end")
	flags.StringVar(&cfg.listen, "listen", cfg.listen, "`address` of the page; a free port if it is taken")
	flags.BoolVar(&cfg.story, "story", false, "play the story, and exit 0 only if every step came out as promised")
	flags.StringVar(&cfg.url, "database-url", "", "`URL` of a database to fill with sample data, in place of a private Postgres")
	// Sample data must not find its way into a database that merely happens to be named.
	_ = flags.SetAnnotation("database-url", flagOnly, nil)
	return cmd
}

// A stage is what dev plays on.
type stage struct {
	tell     *teller
	guide    *guide
	jobs     []registry.Job
	db       *pgxpool.Pool
	world    *samples
	replicas *fleet
	address  string // of the page
	url      string // of the database
	far      string // where a private one listens, for wires to it; empty: it is none
	player   *player

	undo    []func() // last first
	watches sync.WaitGroup
}

func dev(ctx context.Context, cfg devConfig, env []string, stdin io.Reader, stdout io.Writer) (err error) {
	s := &stage{tell: &teller{out: stdout}}
	s.guide = &guide{stage: s}
	defer func() {
		s.tell.hush()
		err = errors.Join(err, s.close())
	}()
	if err := s.set(ctx, cfg, env); err != nil {
		return stoppedBefore(ctx, err)
	}
	if cfg.story {
		return newStory(s).play(ctx)
	}
	s.tell.say("\n  The page: http://%s\n", s.address)
	s.tell.say("  Three replicas with a lease of %v, renewed every %v (15 s and 5 s are usual).", devLease, devRenew)
	s.tell.say("  %s", steerHint(cfg, s.url))
	(&keys{s.player}).run(ctx, stdin)
	s.tell.say("ending the replicas, then Postgres")
	return nil
}

// steerHint says how to steer the replicas from another terminal. The private server takes no
// password; the address of another may hold one, and is not repeated.
func steerHint(cfg devConfig, url string) string {
	if cfg.url != "" {
		return "To steer them from another terminal, export DATABASE_URL as --database-url has it: " + os.Args[0] + " leases list"
	}
	return fmt.Sprintf("To steer them from another terminal: export DATABASE_URL='%s'; %s leases list", url, os.Args[0])
}

// set builds the stage, from the ground up.
func (s *stage) set(ctx context.Context, cfg devConfig, env []string) error {
	var err error
	if s.jobs, err = registry.Jobs(); err != nil {
		return coded(exitUsage, err)
	}
	address, err := s.database(ctx, cfg)
	if err != nil {
		return err
	}
	s.url = address
	quiet := Config{}.logger(io.Discard)
	if err := prepareSchema(ctx, address, migrateAuto, quiet); err != nil {
		return err
	}
	if s.db, err = openPool(context.WithoutCancel(ctx), address, "rota dev", 8); err != nil {
		return err
	}
	s.later(s.db.Close)
	if s.world, err = startSamples(context.WithoutCancel(ctx)); err != nil {
		return err
	}
	s.later(s.world.Close)
	if err := s.world.Fill(ctx, s.db); err != nil {
		return err
	}
	if s.replicas, err = newFleet(address, s.far, env, s.heard); err != nil {
		return err
	}
	player, ended := newPlayer(ctx, s)
	s.player = player
	if err := s.openPage(cfg); err != nil {
		return err
	}
	s.watch(ctx)
	s.tell.say("starting three replicas")
	s.later(s.replicas.stop)
	s.later(ended)
	return s.replicas.start("replica-1", "replica-2", "replica-3")
}

// heard tells of a replica's log, in the terminal and to whoever follows the guide.
func (s *stage) heard(c *child, e entry) {
	s.tell.heard(c, e)
	s.guide.heard(c, e)
}

func (s *stage) later(f func()) { s.undo = append(s.undo, f) }

// close takes the stage down: replicas first, Postgres last.
func (s *stage) close() error {
	for len(s.undo) > 0 {
		last := s.undo[len(s.undo)-1]
		s.undo = s.undo[:len(s.undo)-1]
		last()
	}
	s.watches.Wait()
	return nil
}

func (s *stage) database(ctx context.Context, cfg devConfig) (address string, err error) {
	if cfg.url != "" {
		own := Config{DatabaseURL: cfg.url}
		if err := own.validateDatabase(); err != nil {
			return "", coded(exitUsage, err)
		}
		s.tell.say("using the database %s", own.masked())
		return cfg.url, awaitDatabase(ctx, cfg.url, startPatience, own.logger(io.Discard))
	}
	kept := "its data is deleted at the end; --data DIR keeps it"
	if cfg.data != "" {
		kept = "its data is kept in " + cfg.data
	}
	s.tell.say("starting a private PostgreSQL (%s)", kept)
	cluster, err := devdb.Start(ctx, devdb.Config{Dir: cfg.data})
	if err != nil {
		return "", err
	}
	s.later(func() {
		if err := cluster.Stop(); err != nil {
			s.tell.say("stop Postgres: %v", err)
		}
	})
	own, err := url.Parse(cluster.URL("postgres"))
	if err != nil {
		return "", fmt.Errorf("read the private server's address: %w", err)
	}
	s.far = own.Host
	return own.String(), nil
}

// openPage serves the page from this process, which leads nothing, so that any replica may be
// frozen.
func (s *stage) openPage(cfg devConfig) error {
	listener, err := net.Listen("tcp", cfg.listen)
	if err != nil && !cfg.pinned {
		listener, err = net.Listen("tcp", "127.0.0.1:0")
	}
	if err != nil {
		return fmt.Errorf("listen: %w", err)
	}
	access := Defaults()
	access.Listen = listener.Addr().String()
	gate, err := access.gate()
	if err != nil {
		return err
	}
	log := Config{}.logger(io.Discard)
	probes := newProbes(time.Now, time.Minute, s.db)
	site := web.Config{
		Status:  status.New(s.db, s.jobs),
		Desk:    control.NewDesk(s.db, s.jobs),
		Gate:    gate,
		Metrics: promhttp.HandlerFor(prometheus.NewRegistry(), promhttp.HandlerOpts{}),
		Live:    http.HandlerFunc(probes.live), Ready: http.HandlerFunc(probes.ready),
		Version: buildVersion(), Environment: "dev", EnvironmentColor: "blue", Log: log, Jobs: s.jobs,
	}
	if !cfg.story { // which is not to be disturbed
		site.Stage = s.player
	}
	page := startSite(listener, web.Handler(site), log)
	s.later(page.stop)
	s.address = listener.Addr().String()
	return nil
}

// watch tells of new terms until the stage is taken down.
func (s *stage) watch(ctx context.Context) {
	ctx, stop := context.WithCancel(context.WithoutCancel(ctx))
	s.watches.Go(func() { s.tell.watchTerms(ctx, s.db) })
	s.watches.Go(func() { s.guide.watch(ctx) })
	s.later(func() {
		stop()
		s.watches.Wait()
	})
}

// A leaseState is a lease's row, with the database's clock.
type leaseState struct {
	Owner     string
	Epoch     int64
	ExpiresAt time.Time
	Now       time.Time
}

const leaseStateSQL = `SELECT owner, epoch, expires_at, clock_timestamp() AS now FROM leadership WHERE job_name = $1`

func (s *stage) lease(ctx context.Context, name string) (l leaseState, err error) {
	if err = s.db.QueryRow(ctx, leaseStateSQL, name).Scan(&l.Owner, &l.Epoch, &l.ExpiresAt, &l.Now); err != nil {
		return l, fmt.Errorf("read the lease %s: %w", name, err)
	}
	return l, nil
}

// leader is the replica that holds the lease now.
func (s *stage) leader(ctx context.Context, name string) (*child, leaseState, error) {
	l, err := s.lease(ctx, name)
	if err != nil {
		return nil, l, err
	}
	c := s.replicas.of(l.Owner)
	if c == nil || !l.ExpiresAt.After(l.Now) {
		return nil, l, fmt.Errorf("nobody leads %s just now", name)
	}
	return c, l, nil
}

// freezeLeader freezes the leader of bridge_health after its job has read and before it writes: the
// sample bridge answers only once the process stands still. Where one is wanted, no other is frozen.
func (s *stage) freezeLeader(ctx context.Context, wanted *child) (*child, leaseState, error) {
	ctx, cancel := context.WithTimeout(ctx, 20*time.Second)
	defer cancel()
	arrived, release := s.world.Hold(storyBridge)
	defer release()
	select {
	case <-arrived:
	case <-ctx.Done():
		return nil, leaseState{}, errors.New("no replica has asked the bridge " + storyBridge)
	}
	c, l, err := s.leader(ctx, storyJob)
	if err != nil {
		return nil, l, err
	}
	if wanted != nil && c != wanted {
		return nil, l, fmt.Errorf("%s leads %s by now", c.name, storyJob)
	}
	if err := c.freeze(); err != nil {
		return nil, l, err
	}
	l, err = s.lease(ctx, storyJob)
	return c, l, err
}
