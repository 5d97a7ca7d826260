package devdb

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"syscall"
	"time"
)

// home is the private directory of one running cluster: its socket, and its
// data too if nobody asked to keep those.
//
// A lock on a file in it is held by this process and, since the child inherits
// the open file, by every process of that Postgres. The lock is therefore free
// exactly when all of them are gone, however they went, and whoever starts next
// may delete the directory. No process id has to be trusted for that.
type home struct {
	dir  string
	lock *os.File
}

const (
	homePattern = "rota-pg-*"
	lockName    = "lock"
	// settled is how old a directory without a lock file must be before it is
	// taken for an abandoned one: its maker may be about to lock it.
	settled = time.Minute
)

// newHome makes a private directory and locks it. Directories left behind by
// processes that were killed are deleted first.
func newHome(owner credential) (*home, error) {
	base := shortTemp()
	sweep(base)
	dir, err := os.MkdirTemp(base, homePattern)
	if err != nil {
		return nil, fmt.Errorf("make a directory: %w", err)
	}
	h := &home{dir: dir}
	if err := h.prepare(owner); err != nil {
		return nil, errors.Join(err, h.remove())
	}
	return h, nil
}

func (h *home) prepare(owner credential) error {
	if err := owner.give(h.dir); err != nil {
		return err
	}
	// Locked under another name first: nobody ever sees the file unlocked.
	fresh := filepath.Join(h.dir, lockName+".new")
	lock, err := os.OpenFile(fresh, os.O_CREATE|os.O_RDWR, 0o600)
	if err != nil {
		return fmt.Errorf("make the lock file: %w", err)
	}
	h.lock = lock
	if err := flock(lock); err != nil {
		return fmt.Errorf("lock %s: %w", fresh, err)
	}
	if err := os.Rename(fresh, filepath.Join(h.dir, lockName)); err != nil {
		return fmt.Errorf("name the lock file: %w", err)
	}
	return nil
}

func (h *home) remove() error {
	err := os.RemoveAll(h.dir)
	if h.lock != nil {
		err = errors.Join(err, h.lock.Close())
	}
	return err
}

// shortTemp is the directory for temporary files, or /tmp where that one is so
// long that a socket's path in it would not fit in the 104 bytes some systems have.
func shortTemp() string {
	if dir := os.TempDir(); len(dir) <= 60 {
		return dir
	}
	return "/tmp"
}

// sweep deletes what killed processes of this user left in base. It is tidying:
// what cannot be deleted now is left for the next start.
func sweep(base string) {
	dirs, err := filepath.Glob(filepath.Join(base, homePattern))
	if err != nil {
		panic(err) // only for a pattern that does not parse
	}
	for _, dir := range dirs {
		if abandoned(dir) {
			_ = os.RemoveAll(dir)
		}
	}
}

func abandoned(dir string) bool {
	info, err := os.Lstat(dir)
	if err != nil || !info.IsDir() {
		return false
	}
	lock, err := os.OpenFile(filepath.Join(dir, lockName), os.O_RDWR|syscall.O_NOFOLLOW, 0)
	if errors.Is(err, os.ErrNotExist) {
		return madeByUs(info) && time.Since(info.ModTime()) > settled
	}
	if err != nil {
		return false
	}
	defer func() { _ = lock.Close() }()
	info, err = lock.Stat()
	return err == nil && madeByUs(info) && flock(lock) == nil
}

func madeByUs(info os.FileInfo) bool {
	stat, ok := info.Sys().(*syscall.Stat_t)
	return ok && int(stat.Uid) == os.Getuid()
}

// flock takes the lock on an open file without waiting.
func flock(f *os.File) error {
	return syscall.Flock(int(f.Fd()), syscall.LOCK_EX|syscall.LOCK_NB)
}
