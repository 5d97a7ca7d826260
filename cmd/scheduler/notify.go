package main

import (
	"context"
	"fmt"
	"log/slog"
	"net"
	"os"
	"strconv"
	"time"
)

// A supervisor is a service manager that wants to be told how this process is, as systemd does of
// services with Type=notify. Where there is none it takes no notice.
type supervisor struct {
	socket string        // empty: there is none
	within time.Duration // at most so long after each other it wants signs of life; 0: never
}

// supervisorOf reads what systemd says in the environment. Its watchdog is meant for the process that
// it started, or for the replica whose witness that one is.
func supervisorOf(env []string) supervisor {
	socket, _ := lookup(env, "NOTIFY_SOCKET")
	s := supervisor{socket: socket}
	usec, _ := lookup(env, "WATCHDOG_USEC")
	of, meant := lookup(env, "WATCHDOG_PID")
	if n, err := strconv.ParseInt(usec, 10, 64); err == nil && n > 0 && (!meant || of == strconv.Itoa(os.Getpid()) || of == strconv.Itoa(os.Getppid())) {
		s.within = time.Duration(n) * time.Microsecond
	}
	return s
}

// tell sends a state, such as READY=1. A name that begins with @ is one of Linux' abstract sockets.
func (s supervisor) tell(state string) error {
	if s.socket == "" {
		return nil
	}
	conn, err := net.DialUnix("unixgram", nil, &net.UnixAddr{Name: s.socket, Net: "unixgram"})
	if err != nil {
		return fmt.Errorf("tell the service manager: %w", err)
	}
	defer func() { _ = conn.Close() }()
	if _, err := conn.Write([]byte(state)); err != nil {
		return fmt.Errorf("tell the service manager: %w", err)
	}
	return nil
}

// watch says that the replica is ready, and then gives signs of life as long as it is alive, until
// ctx ends. They are the lease loop's own: a process that renews nothing is restarted, though its
// other goroutines be well.
func (s supervisor) watch(ctx context.Context, ready string, alive func() error, log *slog.Logger) {
	if err := s.tell("READY=1\nSTATUS=" + ready); err != nil {
		log.Warn("the service manager does not hear", "error", err)
	}
	if s.socket == "" || s.within <= 0 {
		return
	}
	tick := time.NewTicker(s.within / 3)
	defer tick.Stop()
	for {
		if alive() == nil {
			_ = s.tell("WATCHDOG=1")
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			return
		}
	}
}
