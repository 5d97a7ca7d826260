package main

import (
	"errors"
	"fmt"
	"io/fs"
	"os"

	"github.com/spf13/pflag"

	"rota/internal/registry"
)

func jobsFileFlag(flags *pflag.FlagSet, path *string) {
	flags.StringVar(path, "jobs-file", "", "YAML `file` that changes jobs: arguments, schedules, retries, or whether they run")
}

// loadJobs returns the jobs compiled into this binary with what the file changes about them; an
// empty path: nothing.
func loadJobs(path string) ([]registry.Job, error) {
	jobs, err := registry.Jobs()
	if err != nil || path == "" {
		return jobs, err
	}
	file, err := os.ReadFile(path)
	if err != nil {
		var why *fs.PathError
		if errors.As(err, &why) {
			err = why.Err
		}
		return nil, fmt.Errorf("jobs file %s: it cannot be read: %w", path, err)
	}
	return registry.Override(jobs, file, path)
}
