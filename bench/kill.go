package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"

	"rota/internal/fence"
	"rota/internal/lease"
)

// killed is the job that the replicas lead that are killed. Its table is the product's own.
const killed = "bridge_health"

// articleWait is how long a lease of the article's is led by nobody after its leader was killed: what
// is left of its 15 s, renewed every 5 s, and half its poll. This is arithmetic, not measured.
const articleWait = 12500*time.Millisecond + articlePoll

// kills kills replicas of the product's, first under their witnesses and then with them, at any
// moment of their renewals, and waits for the successor, which is a replica of this process.
func kills(ctx context.Context, w *world) (rows []row, err error) {
	if _, err := w.db.Exec(ctx, "CREATE DATABASE killed"); err != nil {
		return nil, err
	}
	w = &world{cluster: w.cluster, database: "killed", short: w.short}
	if w.db, err = w.pool(ctx, 4); err != nil {
		return nil, err
	}
	defer w.db.Close()
	s, err := newSite(ctx, w)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, s.end()) }()
	var ready, wrote, late []time.Duration
	for range w.some(30) {
		k, err := s.kill(ctx, false)
		if err != nil {
			return nil, err
		}
		ready, wrote = append(ready, k.ready), append(wrote, k.wrote)
	}
	for range w.some(20) {
		k, err := s.kill(ctx, true)
		if err != nil {
			return nil, err
		}
		if k.late < 0 {
			return nil, fmt.Errorf("taken over %s before the expiry", -k.late)
		}
		late = append(late, k.late)
	}
	half, most := quantile(ready, .5), quantile(ready, .99)
	return []row{
		row{
			Work: "takeover from a killed process, witness alive, p50", Figure: ms(half),
			Against: "the article's: its lease, half its poll, 15000 ms", Ratio: over(half, articleWait),
		}.barred("at most 50 ms", half <= 50*time.Millisecond),
		row{Work: fmt.Sprintf("  p99 of %d", len(ready)), Figure: ms(most)}.barred("at most 200 ms", most <= 200*time.Millisecond),
		{Work: "  to the first fenced write, p50", Figure: ms(quantile(wrote, .5))},
		{Work: "  p99", Figure: ms(quantile(wrote, .99))},
		{Work: "takeover from a process killed with its witness, past expiry, p50", Figure: ms(quantile(late, .5))},
		row{Work: fmt.Sprintf("  slowest of %d", len(late)), Figure: ms(quantile(late, 1))}.
			barred("at most 100 ms", quantile(late, 1) <= 100*time.Millisecond),
	}, nil
}

// A site is where replicas are killed: the product's binary, and a standby that succeeds them.
type site struct {
	*world
	dir     string // of the binary
	standby *replica
	engine  *pgxpool.Pool
	begun   chan succession
	victim  *victim
}

// A succession is a term of the standby's after another's.
type succession struct {
	ready, wrote time.Time // by this machine's clock, which is the database's
	err          error
}

// A killing is what one came to.
type killing struct {
	ready, wrote time.Duration // since the kill
	late         time.Duration // from the expiry to readiness
}

func newSite(ctx context.Context, w *world) (s *site, err error) {
	s = &site{world: w, begun: make(chan succession, 1)}
	defer func() {
		if err != nil {
			err = errors.Join(err, s.end())
		}
	}()
	if s.dir, err = os.MkdirTemp("", "rota-bench-"); err != nil {
		return s, err
	}
	if err := build(ctx, s.binary()); err != nil {
		return s, err
	}
	// The first makes the schema.
	if err := s.start(ctx); err != nil {
		return s, err
	}
	if s.engine, err = w.pool(ctx, 2); err != nil {
		return s, err
	}
	s.standby, err = w.replica(ctx, "standby", brisk, []lease.Lease{{Name: killed, Job: killed}}, s.lead)
	return s, err
}

func (s *site) end() (err error) {
	if s.standby != nil {
		s.standby.end()
	}
	if s.victim != nil {
		err = s.victim.stop()
	}
	if s.engine != nil {
		s.engine.Close()
	}
	return errors.Join(err, os.RemoveAll(s.dir))
}

func (s *site) binary() string { return filepath.Join(s.dir, "scheduler") }

// build builds the product from the module that this one stands in.
func build(ctx context.Context, binary string) error {
	dir, err := exec.CommandContext(ctx, "go", "list", "-m", "-f", "{{.Dir}}", "rota").Output()
	if err != nil {
		return fmt.Errorf("find the module rota (bench must be started in its own directory): %w", err)
	}
	out, err := exec.CommandContext(ctx, "go", "-C", strings.TrimSpace(string(dir)), "build", "-buildvcs=false", "-o", binary, "./cmd/scheduler").CombinedOutput()
	if err != nil {
		return fmt.Errorf("build the product: %w: %s", err, out)
	}
	return nil
}

func (s *site) lead(t *lease.Term) {
	table := fence.Table{Name: "bridge_status", Key: []string{"bridge_id"}, Stamp: "checked_at"}
	var next succession
	_, next.err = fence.Raise(t.Context(), s.engine, t.Token, fence.Shard{}, table)
	t.Ready()
	next.ready = time.Now()
	if next.err == nil {
		w := fence.NewWriter(t.Context(), t.End, s.engine, t.Token, fence.Shard{}, table)
		next.err = w.Upsert(t.Context(), table, status{"LP-1", "UP"})
	}
	next.wrote = time.Now()
	s.begun <- next
	untilOver(t)
}

// A victim is a replica of the product's, with its witness.
type victim struct {
	cmd   *exec.Cmd
	ended chan error
}

// start starts a victim, and returns once it leads.
func (s *site) start(ctx context.Context) error {
	v := &victim{ended: make(chan error, 1)}
	v.cmd = exec.Command(s.binary(), "serve", "--jobs", killed, "--listen", "127.0.0.1:0",
		"--lease", brisk.lease.String(), "--renew", brisk.renew.String(), "--witness", "on")
	v.cmd.Env = append(os.Environ(), "DATABASE_URL="+s.url())
	var said strings.Builder
	v.cmd.Stdout, v.cmd.Stderr = io.Discard, &said
	if err := v.cmd.Start(); err != nil {
		return fmt.Errorf("start a replica: %w", err)
	}
	go func() { v.ended <- v.cmd.Wait() }()
	s.victim = v
	deadline := time.Now().Add(30 * time.Second)
	for {
		if s.standby != nil {
			s.standby.GiveUp(killed, lease.Reason("bench")) // once there is a heir
		}
		_, leads, err := s.leader(ctx)
		switch {
		case err == nil && leads:
			return nil
		case ctx.Err() != nil:
			return ctx.Err()
		case time.Now().After(deadline):
			return errors.Join(fmt.Errorf("the replica does not lead: %s", said.String()), err)
		}
		select {
		case <-s.begun: // it was won back
		case err := <-v.ended:
			v.ended <- err
			return fmt.Errorf("the replica ended: %w: %s", err, said.String())
		case <-time.After(100 * time.Millisecond):
		}
	}
}

// stop ends the victim in good order.
func (v *victim) stop() error {
	if err := v.cmd.Process.Signal(syscall.SIGTERM); err != nil && !errors.Is(err, os.ErrProcessDone) {
		return err
	}
	if err := <-v.ended; err != nil {
		return fmt.Errorf("the replica ended: %w", err)
	}
	return nil
}

// leader is the process that leads, if that is not the standby.
func (s *site) leader(ctx context.Context) (pid int, leads bool, err error) {
	err = s.db.QueryRow(ctx, `SELECT coalesce(max(r.pid), 0), count(*) > 0 FROM leadership l JOIN replicas r ON r.id = l.owner
		WHERE l.job_name = $1 AND l.expires_at > clock_timestamp() AND r.pid <> $2`, killed, os.Getpid()).Scan(&pid, &leads)
	return pid, leads, err
}

// kill kills the victim, waits for the standby to succeed it, and has a new one lead in the end.
func (s *site) kill(ctx context.Context, witness bool) (k killing, err error) {
	if err := s.settle(ctx); err != nil {
		return k, err
	}
	pid, leads, err := s.leader(ctx)
	if err != nil || !leads {
		return k, errors.Join(errors.New("the replica does not lead"), err)
	}
	if witness {
		pid = s.victim.cmd.Process.Pid // its replica dies with it
	}
	at := time.Now()
	if err := syscall.Kill(pid, syscall.SIGKILL); err != nil {
		return k, fmt.Errorf("kill: %w", err)
	}
	var expires time.Time
	if witness {
		time.Sleep(100 * time.Millisecond) // what had been sent has been executed by now
		if err := s.db.QueryRow(ctx, "SELECT expires_at FROM leadership WHERE job_name = $1", killed).Scan(&expires); err != nil {
			return k, err
		}
	}
	select {
	case next := <-s.begun:
		k = killing{next.ready.Sub(at), next.wrote.Sub(at), next.ready.Sub(expires)}
		err = next.err
	case <-time.After(20 * time.Second):
		err = errors.New("the lease is free for 20 s")
	case <-ctx.Done():
		err = ctx.Err()
	}
	if err != nil {
		return k, err
	}
	if err := <-s.victim.ended; err == nil {
		return k, errors.New("the replica that was killed ended in good order")
	}
	return k, s.start(ctx)
}

// settle waits until the standby hears announcements, and for some moment of the renewals.
func (s *site) settle(ctx context.Context) error {
	if err := until(ctx, s.standby.Hints); err != nil {
		return err
	}
	time.Sleep(brisk.renew + rand.N(brisk.renew))
	return nil
}
