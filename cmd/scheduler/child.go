package main

import (
	"bufio"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"runtime"
	"strings"
	"sync"
	"syscall"
	"time"
)

// A child is a replica of dev's: a process of this binary.
//
// It has a process group of its own and no terminal, so that Ctrl-C reaches it once, from us, and
// not twice; and it dies with us, however we end.
type child struct {
	name  string
	cmd   *exec.Cmd
	ready chan struct{} // closed once it serves
	gone  chan struct{} // closed once it has ended and all its output has been heard
	err   error         // how it ended; set before gone is closed

	mu      sync.Mutex
	owner   string // its owner id, which it logs at its start
	address string // of its probes
	frozen  bool
	ended   bool // waited for: its process id may be another's by now
}

// entry is a line of a replica's log.
type entry struct {
	Level   string `json:"level"`
	Msg     string `json:"msg"`
	Owner   string `json:"owner"`
	Lease   string `json:"lease"`
	Job     string `json:"job"`
	Epoch   int64  `json:"epoch"`
	Cause   string `json:"cause"`
	Error   string `json:"error"`
	Address string `json:"address"`
}

// startChild starts a replica, and hands each entry of its log to heard.
func startChild(name, exe string, args, env []string, heard func(*child, entry)) (*child, error) {
	cmd := exec.Command(exe, args...)
	cmd.Env = env
	cmd.SysProcAttr = mortal()
	out, err := cmd.StderrPipe()
	if err != nil {
		return nil, fmt.Errorf("start %s: %w", name, err)
	}
	c := &child{name: name, cmd: cmd, ready: make(chan struct{}), gone: make(chan struct{})}
	started := make(chan error)
	go c.live(started, out, heard)
	if err := <-started; err != nil {
		return nil, fmt.Errorf("start %s: %w", name, err)
	}
	return c, nil
}

// live starts the process and returns when it is gone. Its thread is locked throughout: Linux takes
// the end of the thread that forked for the parent's end.
func (c *child) live(started chan<- error, out io.Reader, heard func(*child, entry)) {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	if err := c.cmd.Start(); err != nil {
		started <- err
		return
	}
	release := guard(c.cmd.Process.Pid)
	started <- nil
	lines := bufio.NewScanner(out)
	lines.Buffer(nil, 1<<20)
	for lines.Scan() {
		c.hear(lines.Bytes(), heard)
	}
	_, _ = io.Copy(io.Discard, out) // after a line beyond all measure
	c.mu.Lock()
	c.err = c.cmd.Wait()
	c.ended = true
	c.mu.Unlock()
	release()
	close(c.gone)
}

// hear takes a line of the log. What is no log, a panic's trace above all, passes as an error.
func (c *child) hear(line []byte, heard func(*child, entry)) {
	var e entry
	if json.Unmarshal(line, &e) != nil || e.Msg == "" {
		e = entry{Level: "ERROR", Msg: strings.TrimSpace(string(line))}
	}
	if e.Msg == msgServing {
		c.mu.Lock()
		c.owner, c.address = e.Owner, e.Address
		c.mu.Unlock()
		close(c.ready)
	}
	heard(c, e)
}

// await returns once the replica serves.
func (c *child) await(within time.Duration) error {
	select {
	case <-c.ready:
		return nil
	case <-c.gone:
		return fmt.Errorf("%s ended before it served: %w", c.name, c.err)
	case <-time.After(within):
		return fmt.Errorf("%s does not serve after %v", c.name, within)
	}
}

func (c *child) id() string {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.owner
}

func (c *child) probeAddress() string {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.address
}

func (c *child) isFrozen() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.frozen
}

func (c *child) alive() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return !c.ended
}

var errGone = errors.New("it has ended")

// signal signals the process, unless it has been waited for.
func (c *child) signal(s syscall.Signal) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.ended {
		return fmt.Errorf("signal %s: %w", c.name, errGone)
	}
	if err := c.cmd.Process.Signal(s); err != nil {
		return fmt.Errorf("signal %s: %w", c.name, err)
	}
	switch s {
	case syscall.SIGSTOP:
		c.frozen = true
	case syscall.SIGCONT:
		c.frozen = false
	}
	return nil
}

// freeze stops the process, and returns once not one of its threads runs.
func (c *child) freeze() error {
	if err := c.signal(syscall.SIGSTOP); err != nil {
		return err
	}
	for deadline := time.Now().Add(5 * time.Second); !stopped(c.cmd.Process.Pid); {
		if time.Now().After(deadline) {
			return fmt.Errorf("%s does not stop", c.name)
		}
		time.Sleep(time.Millisecond)
	}
	return nil
}

func (c *child) thaw() error { return c.signal(syscall.SIGCONT) }

// end ends the process in good order, or after a while in any.
func (c *child) end(within time.Duration) {
	if c.isFrozen() {
		_ = c.thaw()
	}
	_ = c.signal(syscall.SIGTERM)
	select {
	case <-c.gone:
	case <-time.After(within):
		_ = c.signal(syscall.SIGKILL)
		<-c.gone
	}
}

// childEnvironment is ours without what would change a replica's settings.
func childEnvironment(env []string, more ...string) []string {
	var kept []string
	for _, pair := range env {
		name, _, _ := strings.Cut(pair, "=")
		if strings.HasPrefix(name, "ROTA_") || strings.HasPrefix(name, "PG") || name == "DATABASE_URL" {
			continue
		}
		kept = append(kept, pair)
	}
	return append(kept, more...)
}

func ourselves() (string, error) {
	exe, err := os.Executable()
	if err != nil {
		return "", fmt.Errorf("find this binary: %w", err)
	}
	return exe, nil
}
