//go:build prove

package main

import (
	"bufio"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"
)

// built is the real binary, made once and without the race detector, which takes its time at every
// exit.
var built = sync.OnceValues(func() (string, error) {
	dir, err := os.MkdirTemp("", "rota-prove-")
	if err != nil {
		return "", err
	}
	atEnd = append(atEnd, func() { _ = os.RemoveAll(dir) })
	exe := filepath.Join(dir, "scheduler")
	return exe, build(exe)
})

func build(exe string, args ...string) error {
	out, err := exec.Command("go", slices.Concat([]string{"build", "-buildvcs=false", "-o", exe}, args, []string{"."})...).CombinedOutput()
	if err != nil {
		return fmt.Errorf("build: %w\n%s", err, out)
	}
	return nil
}

func binary(t *testing.T) string {
	t.Helper()
	exe, err := built()
	if err != nil {
		t.Fatal(err)
	}
	return exe
}

// launchBuilt starts a replica of the real binary.
func launchBuilt(t *testing.T, url string, args ...string) *proc {
	t.Helper()
	return launchBinary(t, binary(t), []string{"DATABASE_URL=" + url}, args...)
}

// need skips where a program is missing, and fails in CI.
func need(t *testing.T, program string) string {
	t.Helper()
	path, err := exec.LookPath(program)
	if err == nil {
		return path
	}
	if os.Getenv("CI") != "" {
		t.Fatalf("%s is missing", program)
	}
	t.Skipf("%s is missing", program)
	return ""
}

// members waits until so many replicas take part.
func (e eye) members(n int) {
	e.t.Helper()
	eventually(e.t, 30*time.Second, fmt.Sprintf("%d replicas take part", n), func() bool {
		return e.number(`SELECT count(*) FROM replicas WHERE expires_at > clock_timestamp() AND NOT draining`) == n
	})
}

// allLed waits until every lease of the real binary is led, and nothing is to be moved.
func (e eye) allLed() {
	e.t.Helper()
	eventually(e.t, 30*time.Second, "every job is led, and leadership is even", func() bool {
		most, least, all := e.spread()
		return all == 6 && most-least <= 1
	})
}

// leading is the replica that holds the lease.
func leading(t *testing.T, db eye, name string, replicas ...*proc) *proc {
	t.Helper()
	var found *proc
	eventually(t, 30*time.Second, "one of ours leads "+name, func() bool {
		l := db.lease(name)
		for _, r := range replicas {
			if l.held() && l.Owner == r.id() {
				found = r
			}
		}
		return found != nil
	})
	return found
}

// figures prints the distribution of what was measured.
func figures(t *testing.T, what string, d []time.Duration) {
	t.Helper()
	d = slices.Sorted(slices.Values(d))
	t.Logf("%s: n=%d min=%v p50=%v max=%v", what, len(d), d[0], d[len(d)/2], d[len(d)-1])
}

// A show is a running dev.
type show struct {
	t       *testing.T
	cmd     *exec.Cmd
	started time.Time
	stdin   func(string)

	mu    sync.Mutex
	lines []string
	gone  chan struct{}
}

// startDev starts dev as a user would, but for the terminal.
func startDev(t *testing.T, exe string, args ...string) *show {
	t.Helper()
	return startShow(t, exec.Command(exe, append([]string{"dev"}, args...)...))
}

// startShow starts dev by any command.
func startShow(t *testing.T, cmd *exec.Cmd) *show {
	t.Helper()
	s := &show{t: t, started: time.Now(), gone: make(chan struct{}), cmd: cmd}
	s.cmd.Env = childEnvironment(os.Environ())
	s.cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	in, err := s.cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	out, err := s.cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	s.cmd.Stderr = s.cmd.Stdout
	if err := s.cmd.Start(); err != nil {
		t.Fatal(err)
	}
	s.stdin = func(line string) { fmt.Fprintln(in, line) }
	go func() {
		defer close(s.gone)
		for lines := bufio.NewScanner(out); lines.Scan(); {
			s.mu.Lock()
			s.lines = append(s.lines, lines.Text())
			s.mu.Unlock()
		}
		_ = s.cmd.Wait()
	}()
	t.Cleanup(func() {
		_ = s.cmd.Process.Kill()
		<-s.gone
		if t.Failed() {
			t.Log(s.output())
		}
	})
	return s
}

func (s *show) output() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return strings.Join(s.lines, "\n")
}

// tells waits for a line that matches.
func (s *show) tells(patience time.Duration, pattern string) []string {
	s.t.Helper()
	re := regexp.MustCompile(pattern)
	var found []string
	eventually(s.t, patience, "dev tells "+pattern, func() bool {
		found = re.FindStringSubmatch(s.output())
		return found != nil
	})
	return found
}

// end waits for dev's end.
func (s *show) end(patience time.Duration) int {
	s.t.Helper()
	select {
	case <-s.gone:
	case <-time.After(patience):
		s.t.Fatalf("dev has not ended within %v", patience)
	}
	return s.cmd.ProcessState.ExitCode()
}

// descendants are all processes below dev, by /proc.
func (s *show) descendants() []int {
	s.t.Helper()
	parents := map[int]int{}
	stats, err := filepath.Glob("/proc/[0-9]*/stat")
	if err != nil || len(stats) == 0 {
		s.t.Skip("there is no /proc to look for processes in")
	}
	for _, file := range stats {
		stat, err := os.ReadFile(file)
		if err != nil {
			continue // it has ended
		}
		_, rest := cutLast(stat, ") ")
		pid, err := strconv.Atoi(filepath.Base(filepath.Dir(file)))
		if err != nil {
			s.t.Fatal(err)
		}
		parents[pid], _ = strconv.Atoi(strings.Fields(string(rest))[1])
	}
	var below []int
	for pid := range parents {
		for p := parents[pid]; p > 1; p = parents[p] {
			if p == s.cmd.Process.Pid {
				below = append(below, pid)
				break
			}
		}
	}
	return below
}
