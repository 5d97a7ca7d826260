package main

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/spf13/cobra"

	"rota/internal/control"
	"rota/internal/registry"
	"rota/internal/status"
)

func jobsShowCommand(env []string) *cobra.Command {
	cfg := Defaults()
	var asJSON bool
	cmd := &cobra.Command{
		Use: "show NAME", Short: "Show a job: its schedule and policies, who leads it, whether it is paused, its last and next ticks",
		Args:              cobra.ExactArgs(1),
		ValidArgsFunction: completeJobs,
		RunE: func(cmd *cobra.Command, args []string) error {
			job, err := jobNamed(cfg.JobsFile, args[0])
			if err != nil {
				return err
			}
			shown, err := readJob(cmd.Context(), cfg, env, job)
			switch {
			case err != nil:
				return err
			case asJSON:
				return printJSON(cmd.OutOrStdout(), shown)
			}
			return printJob(cmd.OutOrStdout(), shown)
		},
	}
	jsonFlag(cmd, &asJSON)
	jobsFileFlag(cmd.Flags(), &cfg.JobsFile)
	databaseFlag(cmd.Flags(), &cfg)
	return cmd
}

// A shownJob is all that there is to say of a job.
type shownJob struct {
	status.Moment
	Job      status.JobJSON       `json:"job"`    // of a job with shards, the first
	Leases   []status.JobJSON     `json:"leases"` // one, or one for each shard
	Enabled  bool                 `json:"enabled"`
	Policies policies             `json:"policies"`
	Protects []string             `json:"protects"`
	Args     json.RawMessage      `json:"args"`
	Source   string               `json:"source"`
	Next     []time.Time          `json:"next"`
	LastRuns []status.RunJSON     `json:"last_runs"`
	Waiting  []status.RequestJSON `json:"waiting"`                     // requests for a run that has not begun
	Counted  string               `json:"replicas_schedule,omitempty"` // where the replicas use another, by the database

	lease status.Lease
	all   []status.Lease
	runs  []status.Run
	open  []status.Request
}

// The policies are in the words of the registry.
type policies struct {
	Timeout  string `json:"timeout"` // 0s: none
	Attempts int    `json:"attempts"`
	Pause    string `json:"pause"`
	Longest  string `json:"longest_pause"`
	Jitter   string `json:"jitter"`
	Missed   string `json:"missed"`
	Overlap  string `json:"overlap"`
	IfLost   string `json:"if_lost"`
}

const shownTicks = 5

func readJob(ctx context.Context, cfg Config, env []string, job registry.Job) (shownJob, error) {
	s := shownJob{Enabled: !job.Disabled, Policies: policiesOf(job), Protects: []string{}, Args: job.ArgsJSON(), Source: job.Source}
	for _, t := range job.Protects {
		s.Protects = append(s.Protects, t.Name)
	}
	err := reading(ctx, cfg, env, []registry.Job{job}, func(r *status.Reader) error {
		snap, err := r.Snapshot(ctx)
		if err != nil {
			return err
		}
		for _, l := range snap.Leases { // a job that is known is in every snapshot
			if l.Job == job.Name {
				s.all, s.Leases = append(s.all, l), append(s.Leases, l.JobJSON())
			}
		}
		s.Moment, s.lease = snap.Moment(), s.all[0]
		s.Job, s.Next = s.lease.JobJSON(), nextTicks(job, snap.AsOf, shownTicks)
		counted, err := r.Schedules(ctx)
		if err != nil {
			return err
		}
		s.Counted = differing(job, countedBy(job, counted))
		if err := s.readWaiting(ctx, r, job.Name); err != nil {
			return err
		}
		page, err := r.Runs(ctx, status.RunsOf{Job: job.Name, Limit: 10})
		s.runs, s.LastRuns = page.Runs, []status.RunJSON{}
		for _, run := range page.Runs {
			s.LastRuns = append(s.LastRuns, run.JSON())
		}
		return err
	})
	return s, err
}

func (s *shownJob) readWaiting(ctx context.Context, r *status.Reader, job string) error {
	page, err := r.Requests(ctx, status.RequestsOf{})
	if err != nil {
		return err
	}
	s.Waiting = []status.RequestJSON{}
	for _, q := range page.Open {
		if q.Kind == string(control.Run) && q.Job == job {
			s.open, s.Waiting = append(s.open, q), append(s.Waiting, q.JSON())
		}
	}
	return nil
}

func policiesOf(j registry.Job) policies {
	p := policies{
		Timeout: registry.Span(j.Timeout), Attempts: max(1, j.Retry.Attempts), Jitter: registry.Span(j.Jitter),
		Missed: j.Missed.String(), Overlap: j.Overlap.String(), IfLost: j.IfLost.String(),
	}
	if p.Attempts > 1 {
		pause, _ := j.Retry.After(1)
		longest, _ := registry.Retry{Attempts: 1000, Pause: j.Retry.Pause, Longest: j.Retry.Longest}.After(999)
		p.Pause, p.Longest = registry.Span(pause), registry.Span(longest)
	}
	return p
}

// words are the policies for people; those of a schedule are left out where there is none.
func (p policies) words() string {
	words := []string{"timeout " + p.Timeout, "one attempt", "missed: " + p.Missed, "overlap: " + p.Overlap, "if lost: " + p.IfLost}
	if p.Timeout == "0s" {
		words[0] = "no timeout"
	}
	if p.Attempts > 1 {
		words[1] = fmt.Sprintf("%d attempts, %s to %s apart", p.Attempts, p.Pause, p.Longest)
	}
	if p.Jitter != "0s" {
		words = append(words, "jitter up to "+p.Jitter)
	}
	return strings.Join(words, "; ")
}

func printJob(out io.Writer, s shownJob) error {
	w := tabwriter.NewWriter(out, 0, 0, 2, ' ', 0)
	line := func(name, format string, args ...any) { fmt.Fprintf(w, name+"\t"+format+"\n", args...) }
	l := s.lease
	line("job", "%s", l.Job)
	line("about", "%s", dash(l.About))
	line("runbook", "%s", dash(l.Runbook))
	line("source", "%s", s.Source)
	line("schedule", "%s (%s)", l.Words, l.Schedule)
	if s.Counted != "" {
		line("but", "%s", differs(s.Counted))
	}
	line("policies", "%s", s.Policies.words())
	line("protects", "%s", dashed(s.Protects))
	if len(s.Args) > 0 {
		line("arguments", "%s", plain(string(s.Args), 1000))
	}
	if p := l.Paused; p != nil {
		line("paused", "%s", pausedWords(p))
	}
	for _, l := range s.all {
		of := ""
		if l.Of > 1 {
			line("shard", "%d of %d, lease %s", l.Shard, l.Of, l.Name)
			of = " "
		}
		line(of+"state", "%s", stateOf(l, s.Enabled))
		if t := l.LastEnd; t != nil {
			line(of+"before", "epoch %d of %s ended %s: %s", t.Epoch, plain(t.Owner, 80), stamp(t.EndedAt), plain(t.Reason, 80))
		}
		if l.Of > 1 {
			tellSuccess(line, of, l)
		}
	}
	for _, q := range s.open {
		line("waiting", "request %d by %s, since %s%s", q.ID, plain(q.By, 80), stamp(q.MadeAt), because(q.Reason, 80))
	}
	if l.Of < 2 {
		tellSuccess(line, "", l)
	}
	for i, t := range s.Next {
		line([]string{"next ticks", ""}[min(i, 1)], "%s", stamp(t))
	}
	if err := w.Flush(); err != nil {
		return err
	}
	return printRuns(out, s.AsOf, s.runs)
}

// tellSuccess tells how a lease's work goes.
func tellSuccess(line func(name, format string, args ...any), of string, l status.Lease) {
	line(of+"last success", "%s", stamp(l.LastSuccess))
	line(of+"refused", "%s, over the kept history", plural(l.Refused, "late writes"))
	if !l.DueSince.IsZero() {
		line(of+"due", "%s, and not taken yet", stamp(l.DueSince))
	}
}

func stateOf(l status.Lease, enabled bool) string {
	state := string(l.State)
	switch {
	case l.State == status.Held:
		state = fmt.Sprintf("held by %s, epoch %d, since %s, %s left", plain(l.Owner, 80), l.Epoch, stamp(l.AcquiredAt), span(l.Left))
	case !l.Registered:
		state += ", and no replica that may lead it has started here"
	case l.State == status.Free:
		state = fmt.Sprintf("free, after epoch %d", l.Epoch)
	}
	if l.Stranded {
		state += "; no live replica can lead it"
	}
	if !enabled {
		state += "; disabled by the jobs file"
	}
	return state
}

func pausedWords(p *status.Pause) string {
	until := "until it is resumed"
	if !p.Until.IsZero() {
		until = "until " + stamp(p.Until)
	}
	what := ""
	if p.Job == status.AllJobs {
		what = "with all jobs, "
	}
	return fmt.Sprintf("%sby %s, since %s, %s: %s", what, plain(p.By, 80), stamp(p.At), until, plain(p.Reason, 300))
}
