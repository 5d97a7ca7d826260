package registry

import (
	"cmp"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/goccy/go-yaml/ast"

	"rota/internal/cron"
)

// Override returns the jobs with what a jobs file changes about them, checked and sorted as by
// Check. The file is YAML: the names of jobs, and under each the fields that it changes.
//
//	bridge_health:
//	  schedule: every 10s       # or a cron spec, continuous, on demand
//	  args: {timeout: 1s}       # fields of Job.Args; see WithArgs
//	  timeout: 20s
//	  retries: {attempts: 3, pause: 5s, longest: 1m}
//	reconciliation:
//	  zone: America/New_York    # of a cron schedule
//	symbol_sync:
//	  enabled: false            # see Job.Disabled
//
// jitter, missed, overlap and if_lost are the job's fields of these names. What a file does not
// name stays as it is compiled in, the zone of a cron schedule too. The error joins all that is
// wrong, each in one line that begins with the file's name and the line in it.
func Override(jobs []Job, file []byte, name string) ([]Job, error) {
	f := &jobsFile{name: name}
	changed := slices.Clone(jobs)
	for _, e := range f.parse(file) {
		i := slices.IndexFunc(changed, func(j Job) bool { return j.Name == e.key })
		if i < 0 {
			f.refuse(e, "there is no such job; there are: %s", strings.Join(namesOf(jobs), ", "))
			continue
		}
		f.change(&changed[i], e)
	}
	checked, err := Check(changed)
	if err := errors.Join(append(f.errs, err)...); err != nil {
		return nil, err
	}
	return checked, nil
}

func namesOf(jobs []Job) []string {
	names := make([]string, 0, len(jobs))
	for _, j := range jobs {
		names = append(names, j.Name)
	}
	return names
}

// Enabled leaves out the jobs that are disabled.
func Enabled(jobs []Job) []Job {
	return slices.DeleteFunc(slices.Clone(jobs), func(j Job) bool { return j.Disabled })
}

const fileFields = "args, enabled, if_lost, jitter, missed, overlap, retries, schedule, timeout, zone"

// change applies what stands under a job's name. A value that is refused changes nothing.
func (f *jobsFile) change(j *Job, job entry) {
	var schedule, zone entry
	for _, e := range f.entries(job) {
		switch e.key {
		case "args":
			f.changeArgs(j, e)
		case "enabled":
			enabled := !j.Disabled
			set(f, e, &enabled, boolean)
			j.Disabled = !enabled
		case "if_lost":
			set(f, e, &j.IfLost, oneOf(RunAgain, LeaveIt))
		case "jitter":
			set(f, e, &j.Jitter, duration)
		case "missed":
			set(f, e, &j.Missed, oneOf(RunLatest, RunAll, RunNone))
		case "overlap":
			set(f, e, &j.Overlap, oneOf(Skip, Queue))
		case "retries":
			f.changeRetry(&j.Retry, e)
		case "schedule":
			schedule = e
		case "timeout":
			set(f, e, &j.Timeout, duration)
		case "zone":
			zone = e
		default:
			f.refuse(e, "there is no such field; there are: %s", fileFields)
		}
	}
	f.changeSchedule(j, schedule, zone)
	j.Source = fmt.Sprintf("%s, changed by %s:%d", j.origin(), f.name, job.line)
}

func (f *jobsFile) changeArgs(j *Job, args entry) {
	changed, err := j.arguments()
	if err != nil {
		f.refuse(args, "%w", err)
		return
	}
	for _, e := range f.entries(args) {
		value, err := jsonOf(e.value)
		if err == nil {
			err = changed.change(e.key, value)
		}
		for _, line := range unjoined(err) {
			f.refuse(entry{where: args.where, line: e.line}, "%w", line)
		}
	}
	j.Args = changed.value.Interface()
}

func (f *jobsFile) changeRetry(r *Retry, retries entry) {
	for _, e := range f.entries(retries) {
		switch e.key {
		case "attempts":
			set(f, e, &r.Attempts, count)
		case "pause":
			set(f, e, &r.Pause, duration)
		case "longest":
			set(f, e, &r.Longest, duration)
		default:
			f.refuse(e, "there is no such field; there are: attempts, longest, pause")
		}
	}
}

// changeSchedule reads the two fields together, since neither is good or bad by itself.
func (f *jobsFile) changeSchedule(j *Job, schedule, zone entry) {
	var spec, place string
	read := (schedule.value == nil || set(f, schedule, &spec, text)) && (zone.value == nil || set(f, zone, &place, text))
	if !read || schedule.value == nil && zone.value == nil {
		return
	}
	spec = typed(spec)
	was, wasIn := j.Schedule.parts()
	switch {
	case schedule.value != nil:
		if place == "" && !strings.HasPrefix(strings.TrimSpace(spec), cron.ZonePrefix) {
			place = wasIn
		}
	case j.Schedule.Kind() == Calendar:
		spec = was
	default:
		f.refuse(zone, "%s: only a cron schedule has one, and this job is %s: leave it out", place, j.Schedule)
		return
	}
	changed, err := ParseSchedule(spec, place)
	if err != nil {
		f.refuse(cmp.Or(schedule, zone), "%w", err)
		return
	}
	if zone.value != nil && changed.Kind() != Calendar {
		f.refuse(zone, "%s: only a cron schedule has one, and this job is %s: leave it out", place, changed)
		return
	}
	j.Schedule = changed
}

// set reads the entry's value into to; where it is refused, to stays as it is.
func set[T any](f *jobsFile, e entry, to *T, read func(ast.Node) (T, error)) bool {
	value, err := read(e.value)
	if err != nil {
		f.refuse(e, "%s: %w", shown(e.value), err)
		return false
	}
	*to = value
	return true
}
