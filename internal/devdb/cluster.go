// Package devdb runs a private Postgres from locally installed binaries.
//
// It is for development and tests: whoever can reach the loopback port is let in
// as the superuser. The server is a child of this process and dies with it, even
// when this process is killed; its temporary files are deleted by Stop or, after
// a kill, by the next Start. Started by root it runs as another user.
package devdb

import (
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"math/rand/v2"
	"net"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/jackc/pgx/v5"
)

// Config says what Start is to run. The zero value is a temporary cluster.
type Config struct {
	Dir      string            // the cluster's data, kept; empty: temporary, deleted by Stop
	Log      io.Writer         // gets what the server prints; nil: only errors quote it
	Port     int               // on 127.0.0.1; 0: any free one
	Settings map[string]string // server settings, over devdb's own
}

// Cluster is a Postgres server of our own. Its methods may be called by any
// number of goroutines at once.
type Cluster struct {
	bin   Binaries
	cfg   Config
	owner credential
	home  *home
	data  string

	mu      sync.Mutex
	port    int
	server  *child // nil while it is halted or stopped
	stopped bool
}

const (
	startTimeout = 60 * time.Second
	// clashTimeout is how long a taken port is exchanged for another, and a data
	// directory waited for whose last server is still shutting down.
	clashTimeout = 5 * time.Second
	// fastTimeout is how long a server may take to shut down in good order.
	fastTimeout = 30 * time.Second
	// quitTimeout is how long it may take to go without that. Postgres itself
	// kills its children after five seconds.
	quitTimeout = 8 * time.Second
)

// Start runs a cluster, made anew unless Config.Dir already holds one, and
// returns once it takes connections, after a minute at most. ctx bounds the
// start alone. Errors quote what the server said.
func Start(ctx context.Context, cfg Config) (*Cluster, error) {
	bin, err := Find()
	if err != nil {
		return nil, err
	}
	owner, err := serverCredential()
	if err != nil {
		return nil, err
	}
	h, err := newHome(owner)
	if err != nil {
		return nil, fmt.Errorf("prepare a cluster: %w", err)
	}
	c := &Cluster{bin: bin, cfg: cfg, owner: owner, home: h, port: cfg.Port}
	if err := c.begin(ctx); err != nil {
		return nil, errors.Join(err, h.remove())
	}
	return c, nil
}

func (c *Cluster) begin(ctx context.Context) error {
	c.data = filepath.Join(c.home.dir, "data")
	if c.cfg.Dir != "" {
		data, err := filepath.Abs(c.cfg.Dir)
		if err != nil {
			return fmt.Errorf("find %s: %w", c.cfg.Dir, err)
		}
		c.data = data
	}
	if err := c.initialise(ctx); err != nil {
		return fmt.Errorf("make a cluster in %s: %w", c.data, err)
	}
	if err := c.up(ctx); err != nil {
		return fmt.Errorf("start postgres %s on %s: %w", c.bin.Version, c.data, err)
	}
	return nil
}

// initialise makes the cluster's files unless they are there.
func (c *Cluster) initialise(ctx context.Context) error {
	version, err := os.ReadFile(filepath.Join(c.data, "PG_VERSION"))
	if err == nil {
		if has := strings.TrimSpace(string(version)); has != strconv.Itoa(major(c.bin.Version)) {
			return fmt.Errorf("it holds one of PostgreSQL %s, and the server found in %s is %s", has, c.bin.Dir, c.bin.Version)
		}
		return nil
	}
	if err := os.MkdirAll(c.data, 0o700); err != nil {
		return fmt.Errorf("make the directory: %w", err)
	}
	if entries, err := os.ReadDir(c.data); err != nil || len(entries) > 0 {
		return errors.Join(errors.New("it holds something else"), err)
	}
	if err := c.owner.give(c.data); err != nil {
		return err
	}
	args := []string{"-D", c.data, "-U", "postgres", "-A", "trust", "-E", "UTF8", "--locale=C"}
	if c.cfg.Dir == "" {
		args = append(args, "--no-sync")
	}
	initdb, err := c.spawn("initdb", args)
	if err != nil {
		return err
	}
	select {
	case <-initdb.exited:
	case <-ctx.Done():
		_ = initdb.cmd.Process.Signal(syscall.SIGINT)
		<-initdb.exited
		return context.Cause(ctx)
	}
	if initdb.err != nil {
		return fmt.Errorf("initdb: %w: %s", initdb.err, initdb.log)
	}
	return nil
}

// up starts the server, on another port or once more where something that
// passes is in its way.
func (c *Cluster) up(ctx context.Context) error {
	ctx, cancel := context.WithTimeoutCause(ctx, startTimeout, fmt.Errorf("it took no connection within %v", startTimeout))
	defer cancel()
	port := c.port
	for begun := time.Now(); ; {
		if c.port == 0 {
			var err error
			if port, err = freePort(); err != nil {
				return err
			}
		}
		server, err := c.launch(ctx, port)
		if err == nil {
			c.port, c.server = port, server
			return nil
		}
		if !errors.Is(err, errClash) || time.Since(begun) > clashTimeout {
			return err
		}
	}
}

// errClash marks a start that may go well on another try.
var errClash = errors.New("address or directory in use")

func (c *Cluster) launch(ctx context.Context, port int) (*child, error) {
	server, err := c.spawn("postgres", c.args(port))
	if err != nil {
		return nil, err
	}
	poll := time.NewTicker(10 * time.Millisecond)
	defer poll.Stop()
	for {
		select {
		case <-server.exited:
			said := server.log.String()
			if c.port == 0 && strings.Contains(said, "could not create any TCP/IP sockets") ||
				strings.Contains(said, `"postmaster.pid" already exists`) {
				return nil, fmt.Errorf("%w: %s", errClash, said)
			}
			return nil, fmt.Errorf("%s: %s", server.cmd.ProcessState, said)
		case <-ctx.Done():
			return nil, errors.Join(fmt.Errorf("%w: %s", context.Cause(ctx), server.log), quit(server))
		case <-poll.C:
			// Through the socket, which is certainly this server's.
			if answers(ctx, c.home.dir, port) {
				return server, nil
			}
		}
	}
}

func (c *Cluster) spawn(program string, args []string) (*child, error) {
	log := &tail{next: c.cfg.Log}
	return spawn(filepath.Join(c.bin.Dir, program), args, c.data, c.owner, c.home.lock, log)
}

func answers(ctx context.Context, socket string, port int) bool {
	ctx, cancel := context.WithTimeout(ctx, time.Second)
	defer cancel()
	conn, err := pgx.Connect(ctx, fmt.Sprintf("host=%s port=%d user=postgres dbname=postgres sslmode=disable", socket, port))
	if err != nil {
		return false
	}
	return conn.Close(ctx) == nil
}

func (c *Cluster) args(port int) []string {
	settings := map[string]string{
		"listen_addresses":        "127.0.0.1",
		"port":                    strconv.Itoa(port),
		"unix_socket_directories": c.home.dir,
		"max_connections":         "400",
		"timezone":                "UTC",
		"log_timezone":            "UTC",
		"logging_collector":       "off",
		"cluster_name":            "rota",
	}
	if c.bin.hasLibrary("pg_stat_statements") {
		settings["shared_preload_libraries"] = "pg_stat_statements"
	}
	maps.Copy(settings, c.cfg.Settings)
	args := []string{"-D", c.data}
	for _, name := range slices.Sorted(maps.Keys(settings)) {
		args = append(args, "-c", name+"="+settings[name])
	}
	return args
}

// freePort picks a port below those that systems hand out by themselves, so
// that no client's end of a connection takes it while the server is halted.
func freePort() (int, error) {
	for range 100 {
		port := 15000 + rand.IntN(15000)
		listener, err := net.Listen("tcp", net.JoinHostPort("127.0.0.1", strconv.Itoa(port)))
		if err != nil {
			continue
		}
		return port, listener.Close()
	}
	return 0, errors.New("find a free port: a hundred were taken")
}

// URL is the address of a database in the cluster, over TCP. It stays the same
// for the cluster's life.
func (c *Cluster) URL(db string) string {
	c.mu.Lock()
	defer c.mu.Unlock()
	return fmt.Sprintf("postgres://postgres@127.0.0.1:%d/%s?sslmode=disable", c.port, url.PathEscape(db))
}

// Socket is the directory of the cluster's Unix socket, as libpq's host.
func (c *Cluster) Socket() string { return c.home.dir }

// PID is the process id of the server, or 0 while it does not run.
func (c *Cluster) PID() int {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.server == nil {
		return 0
	}
	return c.server.cmd.Process.Pid
}

// Halt shuts the server down and keeps its data and its address for Resume.
// Sessions are ended as by an administrator.
func (c *Cluster) Halt() error {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.down(syscall.SIGINT)
}

// Resume starts a halted server again, at the address it had.
func (c *Cluster) Resume(ctx context.Context) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.stopped {
		return errors.New("resume postgres: the cluster has been stopped")
	}
	if c.server != nil {
		return nil
	}
	if err := c.up(ctx); err != nil {
		return fmt.Errorf("resume postgres on %s: %w", c.data, err)
	}
	return nil
}

// Stop ends the server and deletes what is temporary. It returns when both are
// done; to stop once more does nothing.
func (c *Cluster) Stop() error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.stopped {
		return nil
	}
	c.stopped = true
	sig := syscall.SIGINT
	if c.cfg.Dir == "" {
		sig = syscall.SIGQUIT // nobody will miss what a checkpoint would have saved
	}
	return errors.Join(c.down(sig), c.home.remove())
}

// down ends the server: in good order with SIGINT, at once with SIGQUIT, by
// force where it does not obey, which is an error.
func (c *Cluster) down(sig syscall.Signal) error {
	server := c.server
	if server == nil {
		return nil
	}
	c.server = nil
	if sig == syscall.SIGINT {
		_ = server.cmd.Process.Signal(sig)
		if server.gone(fastTimeout) {
			return nil
		}
	}
	return quit(server)
}

func quit(server *child) error {
	_ = server.cmd.Process.Signal(syscall.SIGQUIT)
	if server.gone(quitTimeout) {
		return nil
	}
	_ = server.cmd.Process.Kill()
	<-server.exited
	return errors.New("postgres did not stop and was killed")
}
