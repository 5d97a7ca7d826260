package devdb

import (
	"fmt"
	"io"
	"os"
	"os/exec"
	"runtime"
	"strings"
	"sync"
	"time"
)

// child is a running program of the server's: initdb or postgres.
//
// It has a process group of its own and no terminal, so that Ctrl-C reaches it
// once, from us, and not twice. It ends when this process ends, however that
// happens: see mortal.
type child struct {
	cmd    *exec.Cmd
	exited chan struct{} // closed once it is gone and its log has been read
	err    error         // what Wait said; set before exited is closed
	log    *tail
}

// spawn starts a program with all it prints going to log. inherit, where not nil,
// stays open in it and in its own children.
func spawn(path string, args []string, dir string, owner credential, inherit *os.File, log *tail) (*child, error) {
	out, in, err := os.Pipe()
	if err != nil {
		return nil, fmt.Errorf("make a pipe: %w", err)
	}
	cmd := exec.Command(path, args...)
	cmd.Dir = dir
	cmd.Env = environment()
	cmd.Stdout, cmd.Stderr = in, in
	cmd.SysProcAttr = mortal(owner)
	if inherit != nil {
		cmd.ExtraFiles = []*os.File{inherit}
	}
	c := &child{cmd: cmd, exited: make(chan struct{}), log: log}
	started := make(chan error)
	go c.live(started, in, out)
	if err := <-started; err != nil {
		return nil, fmt.Errorf("start %s: %w", path, err)
	}
	return c, nil
}

// live starts the child, and returns when it is gone. Its thread is locked
// throughout: Linux takes the end of the thread that forked for the parent's end.
func (c *child) live(started chan<- error, in, out *os.File) {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	defer func() { _ = out.Close() }()

	err := c.cmd.Start()
	_ = in.Close()
	if err != nil {
		started <- err
		return
	}
	release := guard(c.cmd.Process.Pid)
	read := make(chan struct{})
	go c.read(out, read)
	started <- nil

	c.err = c.cmd.Wait()
	release()
	// A process it leaves behind may hold the pipe open; that one is not waited for.
	_ = out.SetReadDeadline(time.Now().Add(time.Second))
	<-read
	close(c.exited)
}

func (c *child) read(out io.Reader, done chan<- struct{}) {
	defer close(done)
	_, _ = io.Copy(c.log, out)
}

// gone waits until the child is gone, at most for the given time.
func (c *child) gone(within time.Duration) bool {
	timer := time.NewTimer(within)
	defer timer.Stop()
	select {
	case <-c.exited:
		return true
	case <-timer.C:
		return false
	}
}

// environment is ours without what would change the server's behaviour.
func environment() []string {
	env := []string{"LC_ALL=C"}
	for _, pair := range os.Environ() {
		name, _, _ := strings.Cut(pair, "=")
		if strings.HasPrefix(name, "PG") || strings.HasPrefix(name, "LC_") || name == "LANG" || name == "TZ" {
			continue
		}
		env = append(env, pair)
	}
	return env
}

// tail keeps the end of what is written to it, for error messages, and passes
// everything on to the next writer, if there is one.
type tail struct {
	mu   sync.Mutex
	kept []byte
	next io.Writer
}

const tailBytes = 4096

func (t *tail) Write(p []byte) (int, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.kept = append(t.kept, p...)
	if extra := len(t.kept) - tailBytes; extra > 0 {
		t.kept = append(t.kept[:0], t.kept[extra:]...)
	}
	if t.next != nil {
		// A log that cannot be written must not stop the server.
		_, _ = t.next.Write(p)
	}
	return len(p), nil
}

func (t *tail) String() string {
	t.mu.Lock()
	defer t.mu.Unlock()
	return strings.TrimSpace(string(t.kept))
}
