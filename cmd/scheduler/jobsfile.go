package main

import (
	"errors"
	"fmt"
	"io"
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
	file, err := readJobsFile(path)
	if err != nil {
		var why *fs.PathError
		if errors.As(err, &why) {
			err = why.Err
		}
		return nil, fmt.Errorf("jobs file %s: it cannot be read: %w", path, err)
	}
	return registry.Override(jobs, file, path)
}

// largestJobsFile is room for thousands of jobs. What is larger is another file than was meant, or none
// that has an end.
const largestJobsFile = 1 << 20

func readJobsFile(path string) ([]byte, error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer func() { _ = f.Close() }()
	file, err := io.ReadAll(io.LimitReader(f, largestJobsFile+1))
	if err == nil && len(file) > largestJobsFile {
		err = fmt.Errorf("it is larger than %d kB", largestJobsFile>>10)
	}
	return file, err
}
