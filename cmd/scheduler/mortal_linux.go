package main

import (
	"bytes"
	"fmt"
	"os"
	"syscall"
)

// mortal makes the kernel kill the child when the thread that started it ends.
func mortal() *syscall.SysProcAttr {
	return &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGKILL}
}

// guard has nothing to do where the kernel does it.
func guard(int) (release func()) { return func() {} }

// stopped reports whether every thread of the process has stopped.
func stopped(pid int) bool {
	tasks, err := os.ReadDir(fmt.Sprintf("/proc/%d/task", pid))
	if err != nil {
		return false
	}
	for _, task := range tasks {
		stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/task/%s/stat", pid, task.Name()))
		if err != nil {
			return false
		}
		// The state follows the name, which is in parentheses and may hold any character.
		if _, rest := cutLast(stat, ") "); len(rest) == 0 || rest[0] != 'T' {
			return false
		}
	}
	return true
}

func cutLast(b []byte, sep string) (before, after []byte) {
	i := bytes.LastIndex(b, []byte(sep))
	if i < 0 {
		return b, nil
	}
	return b[:i], b[i+len(sep):]
}
