// Package registry holds the jobs compiled into this binary.
package registry

import (
	"path"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"sync"
)

// registered is filled while the program's packages are initialised, and not after.
var (
	mu         sync.Mutex
	registered []Job
)

// Register adds a job to those of this binary. It is called in init functions, so it only stores
// the job and where it was registered: what is wrong with it is for Jobs to say, and it never
// panics.
func Register(j Job) {
	if _, file, line, ok := runtime.Caller(1); ok {
		file = filepath.ToSlash(file)
		j.Source = path.Join(path.Base(path.Dir(file)), path.Base(file)) + ":" + strconv.Itoa(line)
	}
	mu.Lock()
	defer mu.Unlock()
	registered = append(registered, j)
}

// Jobs returns every registered job, sorted by name, or an error that joins every reason why they
// cannot be served, each in one line with the way out. It may be called again: the answer is the
// same, and the caller's to change.
func Jobs() ([]Job, error) {
	mu.Lock()
	jobs := slices.Clone(registered)
	mu.Unlock()
	return Check(jobs)
}
