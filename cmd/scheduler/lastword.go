package main

import (
	"os"
	"syscall"
	"time"
)

// The last word of a replica to its witness is that it ends by itself, so that its exit code means what
// ours mean. One that crashes says nothing, and its code is somebody else's: Go's is 2 where a goroutine of
// a job panics, which from us says that trying again cannot help.

// lastWordFD is the replica's end of the pipe.
const lastWordFD = 3

// lastWord makes the pipe: spoken is for the replica, heard stays with its witness.
func lastWord() (heard, spoken *os.File, err error) { return os.Pipe() }

// speaker returns what says the last word. Whatever the replica starts does not get the pipe.
func speaker() (say func()) {
	var pipe syscall.Stat_t
	if err := syscall.Fstat(lastWordFD, &pipe); err != nil || pipe.Mode&syscall.S_IFMT != syscall.S_IFIFO {
		return func() {} // whoever set the variable is no witness
	}
	syscall.CloseOnExec(lastWordFD)
	return func() { _, _ = syscall.Write(lastWordFD, []byte{1}) }
}

// listened reports whether the replica, which has ended, said its last word.
func listened(heard *os.File) bool {
	defer func() { _ = heard.Close() }()
	_ = heard.SetReadDeadline(time.Now().Add(time.Second)) // what it has started may have the other end
	n, _ := heard.Read(make([]byte, 1))
	return n > 0
}
