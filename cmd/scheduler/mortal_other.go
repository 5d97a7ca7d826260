//go:build !linux

package main

import (
	"io"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"syscall"
)

// guardEnv makes a process of this binary the guard of the replica that it names.
const guardEnv = "ROTA_REPLICA_GUARD"

func mortal() *syscall.SysProcAttr { return &syscall.SysProcAttr{Setpgid: true} }

// guard starts this binary once more, to stand by on a pipe whose other end is ours. When that end
// closes, because we are gone, it kills the child, even a frozen one. Where no guard can be started
// the child merely outlives a killed parent.
func guard(pid int) (release func()) {
	none := func() {}
	self, err := os.Executable()
	if err != nil {
		return none
	}
	watch, alive, err := os.Pipe()
	if err != nil {
		return none
	}
	cmd := exec.Command(self)
	cmd.Env = append(os.Environ(), guardEnv+"="+strconv.Itoa(pid))
	cmd.Stdin = watch
	cmd.SysProcAttr = mortal()
	err = cmd.Start()
	_ = watch.Close()
	if err != nil {
		_ = alive.Close()
		return none
	}
	return func() {
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
		_ = alive.Close()
	}
}

// init turns a process that guard started into a guard, before it is anything else.
func init() {
	pid, err := strconv.Atoi(os.Getenv(guardEnv))
	if err != nil {
		return
	}
	_, _ = io.Copy(io.Discard, os.Stdin)
	_ = syscall.Kill(pid, syscall.SIGKILL)
	os.Exit(0)
}

// stopped reports whether the process has stopped.
func stopped(pid int) bool {
	out, err := exec.Command("ps", "-o", "stat=", "-p", strconv.Itoa(pid)).Output()
	return err == nil && strings.HasPrefix(strings.TrimSpace(string(out)), "T")
}
