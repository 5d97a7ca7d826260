// Package registry holds the jobs compiled into this binary.
package registry

import (
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"strings"
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
		j.Source = inModule(file) + ":" + strconv.Itoa(line)
	}
	mu.Lock()
	defer mu.Unlock()
	registered = append(registered, j)
}

// moduleRoot is where the module lay when this file was compiled, with a slash at the end.
var moduleRoot = func() string {
	_, file, _, _ := runtime.Caller(0)
	return strings.TrimSuffix(filepath.ToSlash(file), "internal/registry/registry.go")
}()

// inModule is a source file's path inside the module; one outside it keeps its whole path.
func inModule(file string) string {
	return strings.TrimPrefix(filepath.ToSlash(file), moduleRoot)
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
