package main

import (
	"errors"
	"fmt"
	"path"
	"slices"

	"rota/internal/registry"
)

// chosen are the jobs that this replica competes for: those that --jobs names, or all, without those
// that --exclude names, and none with --no-work. A pattern that is wrong, or that no job matches, is
// an error: misspelt, it would leave a job without anybody to lead it.
func (c Config) chosen(jobs []registry.Job) ([]registry.Job, error) {
	only, wrong := matching("jobs", c.Jobs, jobs)
	not, wrongToo := matching("exclude", c.Exclude, jobs)
	if err := errors.Join(wrong, wrongToo); err != nil {
		return nil, err
	}
	return slices.DeleteFunc(slices.Clone(jobs), func(j registry.Job) bool {
		return c.NoWork || len(c.Jobs) > 0 && !only[j.Name] || not[j.Name]
	}), nil
}

// matching are the names of the jobs that one of the patterns matches.
func matching(flag string, patterns []string, jobs []registry.Job) (map[string]bool, error) {
	var errs []error
	names := map[string]bool{}
	for _, p := range patterns {
		found := false
		for _, j := range jobs {
			ok, err := path.Match(p, j.Name)
			if err != nil {
				errs = append(errs, fmt.Errorf("%s %q: it must be a job's name, or a pattern such as sync-*", flag, p))
				found = true
				break
			}
			if ok {
				names[j.Name], found = true, true
			}
		}
		if !found {
			errs = append(errs, fmt.Errorf("%s %q: no job of this binary matches it; scheduler jobs list names them", flag, p))
		}
	}
	return names, errors.Join(errs...)
}
