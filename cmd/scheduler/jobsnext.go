package main

import (
	"context"
	"fmt"
	"io"
	"time"

	"github.com/spf13/cobra"

	"rota/internal/registry"
	"rota/internal/status"
)

// mostTicks bounds what jobs next prints.
const mostTicks = 1000

func jobsNextCommand(env []string) *cobra.Command {
	cfg := Defaults()
	var (
		asJSON, last bool
		n            int
	)
	cmd := &cobra.Command{
		Use: "next NAME", Short: "Say when a job is due; needs no database",
		Long: `Next says when a job is due by the schedule compiled into this binary, or the one of --jobs-file, and by
this machine's clock. Where a database is named and answers, it says so if the replicas use another schedule,
since their jobs file changes it: with that file here too, the instants are theirs.

With --last it asks the database: the instants are by the database's clock, and the first line is the newest
tick that was taken, and what became of it.`,
		Args:              cobra.ExactArgs(1),
		ValidArgsFunction: completeJobs,
		RunE: func(cmd *cobra.Command, args []string) error {
			job, err := jobNamed(cfg.JobsFile, args[0])
			if err != nil {
				return err
			}
			if n < 1 || n > mostTicks {
				return coded(exitUsage, fmt.Errorf("-n %d: it must be between 1 and %d", n, mostTicks))
			}
			said := ticking{Job: job.Name, Next: nextTicks(job, time.Now(), n)}
			if !last {
				said.Counted = differing(job, countedBy(job, glance(cmd.Context(), cfg, env)))
			} else {
				if said, err = readTicking(cmd.Context(), cfg, env, job, n); err != nil {
					return err
				}
			}
			if asJSON {
				return printJSON(cmd.OutOrStdout(), said)
			}
			if said.Counted != "" {
				fmt.Fprintf(cmd.ErrOrStderr(), "%s: %s\n", job.Name, differs(said.Counted))
			}
			switch {
			case job.Disabled:
				fmt.Fprintf(cmd.ErrOrStderr(), "%s is disabled by %s: replicas with this file do not run it\n", job.Name, cfg.JobsFile)
			case len(said.Next) == 0:
				fmt.Fprintf(cmd.ErrOrStderr(), "%s has no ticks: %s\n", job.Name, job.Schedule.Words())
			}
			printTicking(cmd.OutOrStdout(), said)
			return nil
		},
	}
	cmd.Flags().IntVarP(&n, "number", "n", 5, "how many ticks")
	cmd.Flags().BoolVar(&last, "last", false, "begin with the newest tick that was taken; needs the database")
	jsonFlag(cmd, &asJSON)
	jobsFileFlag(cmd.Flags(), &cfg.JobsFile)
	databaseFlag(cmd.Flags(), &cfg)
	return cmd
}

// A ticking is when a job is due, and what became of its newest tick.
type ticking struct {
	Job  string      `json:"job"`
	AsOf *time.Time  `json:"as_of,omitempty"` // by the database's clock, where it was asked
	Last *lastTaken  `json:"last,omitempty"`
	Next []time.Time `json:"next"`

	Counted string `json:"replicas_schedule,omitempty"` // where the replicas use another, by the database
}

// A lastTaken is how far a job's schedule has come.
type lastTaken struct {
	Tick     *time.Time      `json:"tick"`      // the newest that was taken; null: none yet
	Since    *time.Time      `json:"since"`     // ticks count from then; null: nobody has led it
	Run      *status.RunJSON `json:"run"`       // what became of it; null: its history is pruned
	DueSince *time.Time      `json:"due_since"` // the oldest tick that is due and not taken
	run      *status.Run
	asOf     time.Time
}

func readTicking(ctx context.Context, cfg Config, env []string, job registry.Job, n int) (ticking, error) {
	var last status.LastTick
	err := reading(ctx, cfg, env, nil, func(r *status.Reader) (err error) {
		last, err = lastTick(ctx, r, job)
		return err
	})
	return tickingOf(job, last, n), err
}

// lastTick is how far the job's schedule has come: with shards, that one's which has come the least far.
func lastTick(ctx context.Context, r *status.Reader, job registry.Job) (least status.LastTick, err error) {
	for i, lease := range job.Leases() {
		t, err := r.LastTick(ctx, lease)
		if err != nil {
			return t, err
		}
		if i == 0 || least.Tick.IsZero() || !t.Tick.IsZero() && t.Tick.Before(least.Tick) {
			least = t
		}
	}
	return least, nil
}

// tickingOf says when the job is due after the moment at which its last tick was read.
func tickingOf(job registry.Job, last status.LastTick, n int) ticking {
	t := ticking{Job: job.Name, AsOf: &last.AsOf, Counted: differing(job, last.Schedule), Next: nextTicks(job, last.AsOf, n), Last: &lastTaken{run: last.Run, asOf: last.AsOf}}
	if last.Tick.IsZero() {
		return t
	}
	// What is kept before the first tick, and where the schedule changes, is the moment of that.
	counted := job.Schedule.Next(last.Tick.Add(-time.Second))
	switch {
	case last.Run != nil, counted.Equal(last.Tick):
		t.Last.Tick = &last.Tick
	default:
		t.Last.Since = &last.Tick
	}
	if last.Run != nil {
		run := last.Run.JSON()
		t.Last.Run = &run
	}
	due := job.Schedule.Next(last.Tick)
	if last.Schedule == job.Schedule.String() && !due.IsZero() && !due.After(last.AsOf) {
		t.Last.DueSince = &due
	}
	return t
}

func printTicking(out io.Writer, t ticking) {
	if l := t.Last; l != nil {
		switch {
		case l.Tick == nil && l.Since == nil:
			fmt.Fprintln(out, "last: none, nobody has led it yet")
		case l.Tick == nil:
			fmt.Fprintf(out, "last: none since %s\n", l.Since.Format(time.RFC3339))
		case l.run == nil:
			fmt.Fprintf(out, "last: %s, its history is pruned\n", l.Tick.Format(time.RFC3339))
		default:
			fmt.Fprintf(out, "last: %s %s, run %d, epoch %d\n", l.Tick.Format(time.RFC3339), outcome(*l.run), l.run.ID, l.run.Epoch)
		}
		if l.DueSince != nil {
			fmt.Fprintf(out, "due:  %s, and not taken yet at %s\n", l.DueSince.Format(time.RFC3339), l.asOf.Format(time.RFC3339))
		}
	}
	for _, at := range t.Next {
		fmt.Fprintln(out, at.Format(time.RFC3339))
	}
}

// jobNamed is a compiled-in job with what the file changes about it.
func jobNamed(file, name string) (registry.Job, error) {
	jobs, err := loadJobs(file)
	if err != nil {
		return registry.Job{}, coded(exitUsage, err)
	}
	return findJobIn(jobs, name)
}
