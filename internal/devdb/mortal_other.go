//go:build !linux

package devdb

import (
	"io"
	"os"
	"os/exec"
	"strconv"
	"syscall"
)

// guardEnv makes a process of this binary the guard of the process it names.
const guardEnv = "ROTA_DEVDB_GUARD"

func mortal(owner credential) *syscall.SysProcAttr {
	return &syscall.SysProcAttr{Setpgid: true, Credential: owner.Credential}
}

// guard starts this binary once more, to stand by on a pipe whose other end is
// ours. When that end closes, because we are gone, it sends the child SIGINT.
// Where no guard can be started the child merely outlives a killed parent.
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
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
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
	_ = syscall.Kill(pid, syscall.SIGINT)
	os.Exit(0)
}
