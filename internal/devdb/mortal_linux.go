package devdb

import "syscall"

// mortal makes the kernel send the child SIGINT, a fast shutdown to Postgres,
// when the thread that started it ends. Go sets it after the change of user,
// which would clear it.
func mortal(owner credential) *syscall.SysProcAttr {
	return &syscall.SysProcAttr{Setpgid: true, Credential: owner.Credential, Pdeathsig: syscall.SIGINT}
}

// guard has nothing to do where the kernel does it.
func guard(int) (release func()) { return func() {} }
