package registry

import (
	"cmp"
	"errors"
	"fmt"
	"reflect"
	"regexp"
	"slices"
	"strings"
	"time"

	"rota/internal/fence"
)

// Check returns the jobs sorted by name, or an error that joins every reason why they cannot be
// served together, each in one line that names the job, the field and the way out.
func Check(jobs []Job) ([]Job, error) {
	jobs = slices.Clone(jobs)
	// Stable, so that of two jobs with one name it is the later one that is refused.
	slices.SortStableFunc(jobs, func(a, b Job) int { return cmp.Compare(a.Name, b.Name) })
	var errs []error
	for i, j := range jobs {
		if i > 0 && j.Name != "" && jobs[i-1].Name == j.Name {
			errs = append(errs, fmt.Errorf("%s: there is one of that name already, from %s: rename one of them", j.label(), jobs[i-1].origin()))
		}
		errs = append(errs, j.faults()...)
	}
	errs = append(errs, sharedTables(jobs)...)
	if err := errors.Join(errs...); err != nil {
		return nil, err
	}
	return jobs, nil
}

// label names the job in an error.
func (j Job) label() string { return fmt.Sprintf("job %q (%s)", j.Name, j.origin()) }

func (j Job) origin() string { return cmp.Or(j.Source, "not registered") }

var namePattern = regexp.MustCompile(`^[a-z0-9][a-z0-9_-]{0,62}$`)

// faults is what is wrong with the job by itself.
func (j Job) faults() []error {
	var errs []error
	refuse := func(field, format string, args ...any) {
		errs = append(errs, fmt.Errorf("%s: %s: %w", j.label(), field, fmt.Errorf(format, args...)))
	}
	switch {
	case j.Name == "":
		refuse("name", "it is empty: give it one of [a-z0-9_-]")
	case !namePattern.MatchString(j.Name):
		refuse("name", "it must be 1 to 63 of a-z, 0-9, _ and -, and begin with a letter or a digit")
	}
	if j.Run == nil {
		refuse("run", "there is no function: set Run")
	}
	if err := j.Schedule.Err(); err != nil {
		refuse("schedule", "%w", err)
	}
	if j.Timeout < 0 {
		refuse("timeout", "%s: it must not be negative; 0 means none", Span(j.Timeout))
	}
	if j.Shards < 0 || j.Shards > fence.MostShards {
		refuse("shards", "%d: it must be 0 to %d; 0 and 1 mean that the job is whole", j.Shards, fence.MostShards)
	}
	errs = append(errs, j.policyFaults()...)
	if j.Args != nil && reflect.TypeOf(j.Args).Kind() != reflect.Struct {
		refuse("args", "it is a %T: it must be a struct, not a pointer to one", j.Args)
	}
	for i, t := range j.Protects {
		if strings.TrimSpace(t.Name) == "" {
			refuse("protects", "a table has no name: give it the one it has in the database")
			continue
		}
		if len(t.Key) == 0 || slices.Contains(t.Key, "") {
			refuse("protects", "table %s: name the columns of its unique key in Key", t.Name)
		}
		if err := t.CheckShard(); err != nil && j.Shards > 1 {
			refuse("protects", "%w", err)
		}
		for _, other := range j.Protects[:i] {
			if sameTable(t, other) {
				refuse("protects", "table %s is named twice: name it once", t.Name)
			}
		}
	}
	return errs
}

// policyFaults is what is wrong with how the job is run.
func (j Job) policyFaults() []error {
	var errs []error
	refuse := func(wrong bool, field, format string, args ...any) {
		if wrong {
			errs = append(errs, fmt.Errorf("%s: %s: %w", j.label(), field, fmt.Errorf(format, args...)))
		}
	}
	unbroken := j.Schedule.Kind() == Unbroken
	refuse(j.Retry.Attempts < 0 || j.Retry.Attempts > mostAttempts, "retry", "%d attempts: it must be 0 to %d", j.Retry.Attempts, mostAttempts)
	refuse(j.Retry.Pause < 0, "retry", "pause %s: it must not be negative; 0 means %s", Span(j.Retry.Pause), Span(DefaultPause))
	refuse(j.Retry.Longest < 0, "retry", "longest pause %s: it must not be negative; 0 means %s", Span(j.Retry.Longest), Span(DefaultLongest))
	refuse(j.Retry.Longest > 0 && j.Retry.Longest < j.Retry.Pause, "retry", "longest pause %s is below the pause %s: raise it", Span(j.Retry.Longest), Span(j.Retry.Pause))
	refuse(unbroken && j.Retry != Retry{}, "retry", "a Continuous job is started again anyway: leave it out")
	refuse(j.Jitter < 0 || j.Jitter > longestJitter, "jitter", "%s: it must be 0 to %s", Span(j.Jitter), Span(longestJitter))
	refuse(j.Jitter > 0 && j.Schedule.Kind() == Fixed && j.Jitter >= j.Schedule.every, "jitter", "%s: it must be below the period %s", Span(j.Jitter), Span(j.Schedule.every))
	refuse(j.Missed.String() == "unknown", "missed", "%d: it must be RunLatest, RunAll or RunNone", j.Missed)
	refuse(j.Overlap.String() == "unknown", "overlap", "%d: it must be Skip or Queue", j.Overlap)
	refuse(j.IfLost.String() == "unknown", "if lost", "%d: it must be RunAgain or LeaveIt", j.IfLost)
	return errs
}

const (
	mostAttempts  = 100
	longestJitter = time.Hour
)

// sharedTables refuses two jobs on one table: each would raise the other's rows, and be refused
// by the other's epoch, for ever.
func sharedTables(jobs []Job) []error {
	type claim struct {
		job   Job
		table fence.Table
	}
	byName := map[string][]claim{} // by the name without its schema
	var errs []error
	for _, j := range jobs {
		for _, t := range j.Protects {
			_, name := qualified(t)
			for _, c := range byName[name] {
				if c.job.Name == j.Name || !sameTable(c.table, t) { // of one name: refused as such
					continue
				}
				errs = append(errs, fmt.Errorf("%s: protects: table %s may be %s of job %q (%s): let one job write it, or name both with their schemas",
					j.label(), t.Name, c.table.Name, c.job.Name, c.job.origin()))
				break
			}
			byName[name] = append(byName[name], claim{j, t})
		}
	}
	return errs
}

// sameTable says whether two names may mean one table. It errs on the safe side: a name without a
// schema may be in any, and case and quotes are not looked at.
func sameTable(a, b fence.Table) bool {
	schemaA, nameA := qualified(a)
	schemaB, nameB := qualified(b)
	return nameA == nameB && (schemaA == schemaB || schemaA == "" || schemaB == "")
}

func qualified(t fence.Table) (schema, name string) {
	plain := strings.ToLower(strings.ReplaceAll(strings.TrimSpace(t.Name), `"`, ""))
	schema, name, ok := strings.Cut(plain, ".")
	if !ok {
		return "", schema
	}
	return schema, name
}
