package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"os/exec"
	"os/signal"
	"runtime"
	"runtime/debug"
	"slices"
	"syscall"
	"time"

	"github.com/jackc/pgx/v5"

	"rota/internal/lease"
)

// ownerEnv tells a replica that a witness watches over it, and under which owner id.
const ownerEnv = "SCHEDULER_OWNER"

// A witness is the parent of a replica. It knows for certain when the replica has died, which no
// other process does: then it releases the leases that the replica led, and nobody has to wait for
// them to run out. It does nothing else, so that little of it can fail; if it dies too, the leases
// run out as they would without it.
type witness struct {
	cfg   Config
	owner string
	log   *slog.Logger
}

// watchOver runs a replica as a child of this process, and returns once that has ended, as it ended.
func watchOver(ctx context.Context, cfg Config, env []string, owner string, stderr io.Writer) error {
	debug.SetGCPercent(20) // it holds next to nothing, and should stay small
	w := &witness{cfg: cfg, owner: owner, log: cfg.logger(stderr)}
	exe, err := ourselves()
	if err != nil {
		return err
	}
	// From here on signals are the replica's. Who it is is all that it is told beside what we were.
	caught := make(chan os.Signal, 8)
	signal.Reset(passedOn...)
	signal.Notify(caught, passedOn...)
	if ctx.Err() != nil {
		return nil
	}
	cmd := exec.Command(exe, os.Args[1:]...)
	cmd.Env = append(slices.Clone(env), ownerEnv+"="+w.owner)
	cmd.Stdout, cmd.Stderr = os.Stdout, os.Stderr
	cmd.SysProcAttr = mortal()
	heard, spoken, err := lastWord()
	if err != nil {
		return fmt.Errorf("start the replica: %w", err)
	}
	cmd.ExtraFiles = []*os.File{spoken}
	ended, err := launched(cmd)
	_ = spoken.Close()
	if err != nil {
		return fmt.Errorf("start the replica: %w", err)
	}
	debug.FreeOSMemory() // what reading the settings and the jobs took
	err = w.watch(cmd.Process, caught, ended)
	return exitOf(err, listened(heard))
}

// launched starts a process that dies with this one, and tells how it ended. The thread that starts
// it is locked as long as it lives: Linux takes the thread's end for the parent's.
func launched(cmd *exec.Cmd) (ended <-chan error, err error) {
	started, end := make(chan error), make(chan error, 1)
	go func() {
		runtime.LockOSThread()
		defer runtime.UnlockOSThread()
		err := cmd.Start()
		started <- err
		if err != nil {
			return
		}
		release := guard(cmd.Process.Pid)
		defer release()
		end <- cmd.Wait()
	}()
	return end, <-started
}

// passedOn are the signals that a supervisor may send to a service.
var passedOn = []os.Signal{syscall.SIGINT, syscall.SIGTERM, syscall.SIGHUP, syscall.SIGQUIT, syscall.SIGUSR1, syscall.SIGUSR2}

// watch passes signals on, and keeps a connection, until the replica has ended, and returns how.
func (w *witness) watch(replica *os.Process, caught <-chan os.Signal, ended <-chan error) error {
	ctx, stop := context.WithCancel(context.Background())
	defer stop()
	kept := make(chan *pgx.Conn, 1)
	go func() { kept <- w.keep(ctx) }()
	for {
		select {
		case s := <-caught:
			_ = replica.Signal(s)
		case err := <-ended:
			_ = syscall.Kill(-replica.Pid, syscall.SIGKILL) // what the replica has started
			stop()
			w.bury(<-kept)
			return err
		}
	}
}

const (
	// witnessLooks is how often the witness sees to its connection.
	witnessLooks = 10 * time.Second
	// burial bounds what is done about the leases of a replica that has died; they run out by
	// themselves.
	burial = 5 * time.Second
)

// keep keeps a connection until ctx ends, and then hands it over; nil: there is none. What is to be
// done by it is rehearsed once, as soon as the schema is there.
func (w *witness) keep(ctx context.Context) *pgx.Conn {
	var conn *pgx.Conn
	rehearsed := false
	for {
		if conn != nil && ctx.Err() == nil && conn.Ping(ctx) != nil && ctx.Err() == nil {
			closeConn(conn)
			conn = nil
		}
		if conn == nil {
			conn, rehearsed = w.connect(ctx), false
		}
		if conn != nil && !rehearsed {
			rehearsed = lease.Rehearse(ctx, conn) == nil
		}
		select {
		case <-time.After(witnessLooks):
		case <-ctx.Done():
			return conn
		}
	}
}

// connect returns nil where there is no connection to be had: the replica says why.
func (w *witness) connect(ctx context.Context) *pgx.Conn {
	ctx, cancel := context.WithTimeout(ctx, burial)
	defer cancel()
	cfg, err := poolConfig(w.cfg.DatabaseURL)
	if err != nil {
		return nil
	}
	cfg.ConnConfig.RuntimeParams["application_name"] = lease.WitnessName(w.owner)
	cfg.ConnConfig.DefaultQueryExecMode = pgx.QueryExecModeExec
	conn, err := pgx.ConnectConfig(ctx, cfg.ConnConfig)
	if err != nil {
		return nil
	}
	return conn
}

// bury releases what the replica led, if it has left anything, by the connection that was kept or
// else by a new one.
func (w *witness) bury(conn *pgx.Conn) {
	ctx, cancel := context.WithTimeout(context.Background(), burial)
	defer cancel()
	var err error
	for range 2 {
		if conn == nil || conn.IsClosed() {
			conn = w.connect(ctx)
		}
		if conn == nil {
			break
		}
		var released []string
		released, err = lease.Bury(ctx, conn, w.owner)
		closeConn(conn)
		if len(released) > 0 {
			w.log.Warn("the replica has died; its leases are released", "owner", w.owner, "leases", len(released))
		}
		if err == nil {
			return
		}
	}
	if err != nil { // it may have ended in good order, or before it led anything: only the database could tell
		w.log.Error("the replica has ended; leases that it may have left run out by themselves", "owner", w.owner, "error", err)
	}
}

// An exitError is how a replica ended that has said itself what was wrong.
type exitError struct{ code int }

func (e *exitError) Error() string { return fmt.Sprintf("the replica ended with status %d", e.code) }

// exitOf is the status of the replica as this process's own; of a signal what a shell makes of it. A
// replica that ended without a word has crashed, with a status that is none of ours.
func exitOf(err error, spoke bool) error {
	var exit *exec.ExitError
	if err != nil && !errors.As(err, &exit) {
		return err
	}
	code := 0
	if exit != nil {
		if status, ok := exit.Sys().(syscall.WaitStatus); ok && status.Signaled() {
			return &exitError{128 + int(status.Signal())}
		}
		code = exit.ExitCode()
	}
	switch {
	case !spoke && code < 128: // a second signal leaves no time for words
		return fmt.Errorf("the replica crashed, with status %d: the lines before say why", code)
	case code == 0:
		return nil
	}
	return &exitError{code}
}
