package main

import (
	"context"
	"errors"
	"log/slog"
	"net"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"rota/internal/pgtest"
)

// manager is a service manager's socket, and all that it has been told.
func manager(t *testing.T) (socket string, told <-chan string) {
	t.Helper()
	dir, err := os.MkdirTemp("", "rota") // short: a socket's path has at most some 100 bytes
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	socket = filepath.Join(dir, "notify")
	conn, err := net.ListenUnixgram("unixgram", &net.UnixAddr{Name: socket, Net: "unixgram"})
	if err != nil {
		t.Fatal(err)
	}
	heard := make(chan string, 1000)
	go func() {
		for buf := make([]byte, 4096); ; {
			n, err := conn.Read(buf)
			if err != nil {
				close(heard)
				return
			}
			heard <- string(buf[:n])
		}
	}()
	t.Cleanup(func() { _ = conn.Close() })
	return socket, heard
}

func hears(t *testing.T, told <-chan string, want string) {
	t.Helper()
	for late := time.After(30 * time.Second); ; {
		select {
		case said := <-told:
			if strings.Contains(said, want) {
				return
			}
		case <-late:
			t.Fatalf("%s was not said", want)
		}
	}
}

func TestReplicaTellsItsServiceManagerThatItIsReadyThatItLivesAndThatItStops(t *testing.T) {
	t.Parallel()
	exe, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	for _, witness := range []string{"on", "off"} {
		t.Run("witness "+witness, func(t *testing.T) {
			t.Parallel()
			socket, told := manager(t)
			replica := launchBinary(t, exe, []string{
				"DATABASE_URL=" + pgtest.URL(t), testJobsEnv + "=", "NOTIFY_SOCKET=" + socket, "WATCHDOG_USEC=600000",
			}, "--witness", witness)
			first := <-told
			if !strings.HasPrefix(first, "READY=1\n") {
				t.Errorf("the first that it says is %q", first)
			}
			hears(t, told, "WATCHDOG=1")
			hears(t, told, "WATCHDOG=1")
			replica.send(syscall.SIGTERM)
			hears(t, told, "STOPPING=1")
			if code := replica.code(30 * time.Second); code != exitOK {
				t.Errorf("exit code %d", code)
			}
		})
	}
}

// A process whose lease loop hangs is restarted, whatever else of it is well.
func TestWatchdogIsFedOnlyWhileTheLeaseLoopTurns(t *testing.T) {
	t.Parallel()
	socket, told := manager(t)
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	answers := make(chan error)
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		supervisor{socket, 3 * time.Millisecond}.watch(ctx, "here", func() error { return <-answers }, slog.New(slog.DiscardHandler))
	}()
	hears(t, told, "READY=1")
	answers <- nil
	hears(t, told, "WATCHDOG=1")
	for range 3 {
		answers <- errors.New("the loop hangs")
	}
	answers <- nil // by now the three have been acted on
	hears(t, told, "WATCHDOG=1")
	cancel()
	close(answers)
	<-ended
	for range len(told) - 1 { // the last answer may have been the closed channel's
		t.Errorf("it said %q while the loop hung", <-told)
	}
}

func TestWatchdogOfAnotherProcessIsNotOurs(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		env  []string
		want time.Duration
	}{
		{nil, 0},
		{[]string{"WATCHDOG_USEC=2000000"}, 2 * time.Second},
		{[]string{"WATCHDOG_USEC=2000000", "WATCHDOG_PID=1"}, 0},
		{[]string{"WATCHDOG_USEC=no"}, 0},
		{[]string{"WATCHDOG_USEC=-5"}, 0},
	} {
		if got := supervisorOf(c.env).within; got != c.want && os.Getppid() != 1 {
			t.Errorf("%v: %v, want %v", c.env, got, c.want)
		}
	}
	if err := (supervisor{}).tell("READY=1"); err != nil {
		t.Errorf("without a service manager: %v", err)
	}
}
