package main

import (
	"fmt"
	"io"
	"os"
	"sync"
)

// A results is stdout, and remembers that something did not arrive there: half a list, or half of the
// SQL for an upgrade, in a file on a full disk, is no success, whether or not the command looked.
type results struct {
	to io.Writer
	mu sync.Mutex
	// first is why the first write failed.
	first error
}

func (r *results) Write(p []byte) (int, error) {
	n, err := r.to.Write(p)
	if err != nil {
		r.mu.Lock()
		defer r.mu.Unlock()
		if r.first == nil {
			r.first = err
		}
	}
	return n, err
}

// lost is what keeps a command that did all else from having succeeded.
func (r *results) lost() error {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.first == nil {
		return nil
	}
	return fmt.Errorf("what was to be printed did not arrive in full: %w", r.first)
}

// file is the file that stdout is, a terminal perhaps; nil where it is none.
func file(stdout io.Writer) *os.File {
	if r, ok := stdout.(*results); ok {
		stdout = r.to
	}
	f, _ := stdout.(*os.File)
	return f
}
