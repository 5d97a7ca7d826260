package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
)

// The lease of replicas in tests, where a test names no other.
const (
	testLease = 1500 * time.Millisecond
	testRenew = 500 * time.Millisecond
)

// A proc is a replica as a process of its own.
type proc struct {
	*child
	t *testing.T

	mu  sync.Mutex
	log []heardEntry
}

type heardEntry struct {
	entry
	at time.Time
}

// launch starts a replica with the jobs beside those that are compiled in.
func launch(t *testing.T, url, jobs string, args ...string) *proc {
	t.Helper()
	exe, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	return launchBinary(t, exe, []string{"DATABASE_URL=" + url, testJobsEnv + "=" + jobs, "GORACE=atexit_sleep_ms=0"}, args...)
}

var procs struct {
	sync.Mutex
	n int
}

func launchBinary(t *testing.T, exe string, env []string, args ...string) *proc {
	t.Helper()
	procs.Lock()
	procs.n++
	name := fmt.Sprintf("test-%d", procs.n)
	procs.Unlock()
	p := &proc{t: t}
	args = append([]string{
		"serve", "--witness", "off", "--name", name, "--listen", "127.0.0.1:0", "--log", "json",
		"--lease", testLease.String(), "--renew", testRenew.String(),
	}, args...)
	c, err := startChild(name, exe, args, childEnvironment(os.Environ(), env...), p.hear)
	if err != nil {
		t.Fatal(err)
	}
	p.child = c
	t.Cleanup(func() {
		_ = p.thaw()
		_ = p.signal(syscall.SIGKILL)
		<-p.gone
		if t.Failed() {
			p.dump()
		}
	})
	return p
}

func (p *proc) hear(_ *child, e entry) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.log = append(p.log, heardEntry{e, time.Now()})
}

func (p *proc) heard() []heardEntry {
	p.mu.Lock()
	defer p.mu.Unlock()
	return slices.Clone(p.log)
}

func (p *proc) dump() {
	for _, e := range p.heard() {
		p.t.Logf("%s: %s %s", p.name, e.Level, e.words())
	}
}

// says reports whether a line of the log, or of what else it has printed, contains the words.
func (p *proc) says(words string) bool {
	for _, e := range p.heard() {
		if strings.Contains(e.Msg, words) {
			return true
		}
	}
	return false
}

// serving waits until the replica serves.
func (p *proc) serving() *proc {
	p.t.Helper()
	if err := p.await(30 * time.Second); err != nil {
		p.t.Fatal(err)
	}
	return p
}

// code waits for the process's end and returns its exit code.
func (p *proc) code(within time.Duration) int {
	p.t.Helper()
	select {
	case <-p.gone:
	case <-time.After(within):
		p.t.Fatalf("%s has not ended within %v", p.name, within)
	}
	var exit *exec.ExitError
	switch {
	case p.err == nil:
		return 0
	case errors.As(p.err, &exit):
		return exit.ExitCode()
	}
	p.t.Fatal(p.err)
	return -1
}

func (p *proc) send(s syscall.Signal) {
	p.t.Helper()
	if err := p.signal(s); err != nil {
		p.t.Fatal(err)
	}
}

// probe asks the replica and returns the status code and what it says.
func (p *proc) probe(path string) (int, string) {
	p.t.Helper()
	return get(p.t, "http://"+p.probeAddress()+path)
}

func get(t *testing.T, url string) (int, string) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
	if err != nil {
		t.Fatal(err)
	}
	res, err := http.DefaultClient.Do(req)
	if err != nil {
		return 0, err.Error()
	}
	defer res.Body.Close()
	body, err := io.ReadAll(res.Body)
	if err != nil {
		return 0, err.Error()
	}
	return res.StatusCode, string(body)
}

// eventually polls until it is so, for as long as patience lasts.
func eventually(t *testing.T, patience time.Duration, what string, is func() bool) {
	t.Helper()
	tick := time.NewTicker(5 * time.Millisecond)
	defer tick.Stop()
	for deadline := time.Now().Add(patience); !is(); <-tick.C {
		if time.Now().After(deadline) {
			t.Fatalf("waited %v in vain until %s", patience, what)
		}
	}
}

// eye looks at a test's database.
type eye struct {
	*pgxpool.Pool
	t *testing.T
}

func lookAt(t *testing.T, url string) eye {
	t.Helper()
	pool, err := openPool(t.Context(), url, "rota test", 4)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(pool.Close)
	return eye{pool, t}
}

// lease is the row; the zero value where there is none yet.
func (e eye) lease(name string) (l leaseState) {
	e.t.Helper()
	err := e.QueryRow(e.t.Context(), leaseStateSQL, name).Scan(&l.Owner, &l.Epoch, &l.ExpiresAt, &l.Now)
	if err != nil && !errors.Is(err, pgx.ErrNoRows) {
		e.t.Fatal(err)
	}
	return l
}

func (l leaseState) held() bool { return l.ExpiresAt.After(l.Now) }

// ledBy waits until the replica leads the job.
func (e eye) ledBy(name string, p *proc) leaseState {
	e.t.Helper()
	var l leaseState
	eventually(e.t, 30*time.Second, p.name+" leads "+name, func() bool {
		l = e.lease(name)
		return l.held() && l.Owner == p.id()
	})
	return l
}

// running waits until a run of the job is under way.
func (e eye) running(name string) {
	e.t.Helper()
	eventually(e.t, 30*time.Second, name+" runs", func() bool {
		return e.number(`SELECT count(*) FROM runs WHERE lease = $1 AND ended_at IS NULL`, name) > 0
	})
}

func (e eye) number(sql string, args ...any) (n int) {
	e.t.Helper()
	if err := e.QueryRow(e.t.Context(), sql, args...).Scan(&n); err != nil {
		e.t.Fatal(err)
	}
	return n
}

// after waits for the term that follows the epoch, and returns it with the one before it.
func (e eye) after(name string, epoch int64) (took termRow) {
	e.t.Helper()
	eventually(e.t, 30*time.Second, name+" has another term", func() bool {
		rows, err := e.Query(e.t.Context(), termAfterSQL, name, epoch)
		if err != nil {
			e.t.Fatal(err)
		}
		took, err = pgx.CollectExactlyOneRow(rows, pgx.RowToStructByName[termRow])
		if err != nil && !errors.Is(err, pgx.ErrNoRows) {
			e.t.Fatal(err)
		}
		return err == nil
	})
	return took
}

func (e eye) now() (now time.Time) {
	e.t.Helper()
	if err := e.QueryRow(e.t.Context(), `SELECT clock_timestamp()`).Scan(&now); err != nil {
		e.t.Fatal(err)
	}
	return now
}

// withoutOurs are the arguments of a replica that serves the jobs of a test and none of those that
// are compiled in.
func withoutOurs(t *testing.T) []string {
	t.Helper()
	file := filepath.Join(t.TempDir(), "jobs.yaml")
	var text []byte
	for _, name := range []string{"bridge_health", "quote_watch", "reconciliation", "symbol_sync"} {
		text = append(text, name+": {enabled: false}\n"...)
	}
	if err := os.WriteFile(file, text, 0o600); err != nil {
		t.Fatal(err)
	}
	return []string{"--jobs-file", file}
}

// spread is how many leases the members lead: the most, the least, and all.
func (e eye) spread() (most, least, all int) {
	e.t.Helper()
	err := e.QueryRow(e.t.Context(), `SELECT coalesce(max(n), 0), coalesce(min(n), 0), coalesce(sum(n), 0) FROM (
		SELECT count(l.job_name) AS n FROM replicas r
		  LEFT JOIN leadership l ON l.owner = r.id AND l.expires_at > clock_timestamp()
		 WHERE r.expires_at > clock_timestamp() AND NOT r.draining GROUP BY r.id) AS each`).Scan(&most, &least, &all)
	if err != nil {
		e.t.Fatal(err)
	}
	return most, least, all
}
