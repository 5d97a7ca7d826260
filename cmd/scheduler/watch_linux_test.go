package main

import (
	"bytes"
	"fmt"
	"os"
	"os/exec"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"rota/internal/pgtest"
)

// terminal is a terminal of that many rows, and the end that its user looks at.
func terminal(t *testing.T, rows uint16) (user, program *os.File) {
	t.Helper()
	user, err := os.OpenFile("/dev/ptmx", os.O_RDWR, 0)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = user.Close() })
	fd := int(user.Fd())
	if err := unix.IoctlSetPointerInt(fd, unix.TIOCSPTLCK, 0); err != nil {
		t.Fatal(err)
	}
	n, err := unix.IoctlGetInt(fd, unix.TIOCGPTN)
	if err != nil {
		t.Fatal(err)
	}
	if err := unix.IoctlSetWinsize(fd, unix.TIOCSWINSZ, &unix.Winsize{Row: rows, Col: 80}); err != nil {
		t.Fatal(err)
	}
	program, err = os.OpenFile(fmt.Sprintf("/dev/pts/%d", n), os.O_RDWR|syscall.O_NOCTTY, 0)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = program.Close() })
	return user, program
}

func TestWatchRedrawsATableOnATerminalAndLeavesItAsItWas(t *testing.T) {
	t.Parallel()
	replica := launch(t, pgtest.URL(t), "watched").serving()
	user, program := terminal(t, 6)
	exe, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command(exe, "watch", "--interval", "200ms", "--url", "http://"+replica.probeAddress())
	cmd.Env = childEnvironment(os.Environ(), testJobsEnv+"=", "TERM=xterm", "GORACE=atexit_sleep_ms=0")
	var talk spoken
	var seen spoken
	cmd.Stdout, cmd.Stderr = program, &talk
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = cmd.Process.Kill() })
	go func() {
		b := make([]byte, 4096)
		for {
			n, err := user.Read(b)
			_, _ = seen.Write(b[:n])
			if err != nil {
				return
			}
		}
	}()
	eventually(t, 30*time.Second, "several frames", func() bool { return strings.Count(seen.String(), home) > 2 })
	if err := cmd.Process.Signal(syscall.SIGINT); err != nil {
		t.Fatal(err)
	}
	if err := cmd.Wait(); err != nil {
		t.Errorf("Ctrl-C: %v", err)
	}
	eventually(t, 10*time.Second, "the terminal is left as it was", func() bool { return strings.HasSuffix(seen.String(), leaveScreen) })
	frames := strings.Split(strings.TrimSuffix(seen.String(), leaveScreen), home)
	last := frames[len(frames)-1]
	for _, want := range []string{"Rota at " + replica.probeAddress(), "as of ", "LAST RUN", "more, for which there is no room"} {
		if !strings.Contains(last, want) {
			t.Errorf("the table lacks %q: %q", want, last)
		}
	}
	if n := strings.Count(last, "\n") + 1; n != 6 || frames[0] != enterScreen {
		t.Errorf("%d lines, after %q", n, frames[0])
	}
	if got := bytes.TrimSpace([]byte(talk.String())); len(got) > 0 {
		t.Errorf("stderr: %s", got)
	}
}
