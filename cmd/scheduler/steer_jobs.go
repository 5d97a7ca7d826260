package main

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"rota/internal/control"
	"rota/internal/registry"
)

// steerJobsCommands are the orders that concern jobs. Unlike their siblings they need a database.
func steerJobsCommands(env []string) []*cobra.Command {
	return []*cobra.Command{jobsRunCommand(env), jobsPauseCommand(env), jobsResumeCommand(env)}
}

func jobsRunCommand(env []string) *cobra.Command {
	cfg := Defaults()
	var f orderFlags
	var args, key string
	var shard int
	cmd := &cobra.Command{
		Use: "run NAME", Short: "Run a job now, on the replica that leads it",
		Long: `Run asks the leader of a job for a run besides its ticks. It comes after the run that may be under way,
and a pause does not keep it back. Asked again with the same key, it is the same run. Of a job with shards
each runs, or the one that --shard names.

With --wait the exit code is 0 only if the run succeeded, and 6 if it was made and did not.`,
		Example:           `  scheduler jobs run reconciliation --args '{"MaxDays": 2}' --key ticket-4711 --wait`,
		Args:              cobra.ExactArgs(1),
		ValidArgsFunction: completeJobs,
		RunE: func(cmd *cobra.Command, names []string) error {
			if cmd.Flags().Changed("key") && key == "" {
				return coded(exitUsage, errors.New(`--key "": an empty key would be none; leave the flag out, or give one`))
			}
			return atDesk(cmd, cfg, env, func(ctx context.Context, desk *control.Desk) error {
				var a control.Asked
				var err error
				if cmd.Flags().Changed("shard") {
					a, err = desk.RunShard(ctx, f.order(), names[0], shard, json.RawMessage(args), key)
				} else {
					a, err = desk.RunNow(ctx, f.order(), names[0], json.RawMessage(args), key)
				}
				switch {
				case err != nil:
					return err
				case !f.wait:
					return reportAsked(cmd, &f, a)
				case len(a.Shards) == 0:
					return awaitRun(ctx, cmd, &f, desk, a)
				}
				var failed error // all are waited for, and the first that went wrong is told
				for _, one := range a.Shards {
					failed = cmp.Or(failed, awaitRun(ctx, cmd, &f, desk, one))
				}
				return failed
			})
		},
	}
	databaseFlag(cmd.Flags(), &cfg)
	f.add(cmd, "", "the run is over, with its retries")
	flags := cmd.Flags()
	flags.StringVar(&args, "args", "", "a JSON `object` that changes the job's arguments for this run")
	flags.StringVar(&key, "key", "", "a `text` that makes it safe to ask again: one key, one run")
	flags.IntVar(&shard, "shard", 0, "only this one of the job's shards, from `1`")
	for _, name := range []string{"args", "key", "shard"} {
		_ = flags.SetAnnotation(name, flagOnly, nil)
	}
	return cmd
}

func awaitRun(ctx context.Context, cmd *cobra.Command, f *orderFlags, desk *control.Desk, a control.Asked) error {
	fmt.Fprintf(cmd.ErrOrStderr(), "request %d\n", a.ID)
	tellExpected(cmd, a)
	if !a.Existed {
		fmt.Fprintf(cmd.ErrOrStderr(), "until it begins, requests withdraw %d --reason R takes it back\n", a.ID)
	}
	last, err := desk.AwaitRun(ctx, a, func(begun control.Attempt) {
		fmt.Fprintf(cmd.ErrOrStderr(), "run %d, attempt %d, has begun on %s\n", begun.Run, begun.Attempt, begun.Owner)
	})
	if err != nil {
		return err
	}
	if f.asJSON {
		err = printJSON(cmd.OutOrStdout(), struct {
			control.Asked
			Last control.Attempt `json:"last"`
		}{a, last})
	} else if last.Run != 0 {
		fmt.Fprintf(cmd.OutOrStdout(), "run %d: %s\n", last.Run, last.Outcome)
	}
	switch {
	case err != nil:
		return err
	case last.Run == 0:
		return fmt.Errorf("request %d was not run: %s", a.ID, firstLine(last.Error))
	case last.Outcome != "success":
		return coded(exitRun, fmt.Errorf("run %d of %s: %s: %s", last.Run, a.Job, last.Outcome, firstLine(last.Error)))
	}
	return nil
}

// target is the job that a command names, or all of them.
func target(names []string, all bool) (string, error) {
	switch {
	case all && len(names) > 0:
		return "", coded(exitUsage, fmt.Errorf("%s and --all: give one of them", names[0]))
	case all:
		return control.AllJobs, nil
	case len(names) == 0:
		return "", coded(exitUsage, errors.New("no job is named: give its name, or --all"))
	case names[0] == control.AllJobs:
		return "", coded(exitUsage, errors.New("* is no job's name: give --all"))
	}
	return names[0], nil
}

// A pauseJSON is a pause as the commands print it.
type pauseJSON struct {
	Job    string     `json:"job"` // *: all
	Reason string     `json:"reason"`
	By     string     `json:"by"`
	At     time.Time  `json:"at"`
	Until  *time.Time `json:"until"` // null: until it is resumed
}

func pauseOut(p *control.Pause) *pauseJSON {
	if p == nil {
		return nil
	}
	out := &pauseJSON{Job: p.Job, Reason: p.Reason, By: p.By, At: p.At}
	if !p.Until.IsZero() {
		out.Until = &p.Until
	}
	return out
}

// jobWords is a job as a sentence names it.
func jobWords(job string) string {
	if job == control.AllJobs {
		return "all jobs"
	}
	return job
}

func jobsPauseCommand(env []string) *cobra.Command {
	cfg := Defaults()
	var f orderFlags
	var all bool
	var until string
	var lasts time.Duration
	cmd := &cobra.Command{
		Use: "pause NAME | --all", Short: "Keep a job, or all, from taking ticks",
		Long: `Pause keeps a job from taking ticks until it is resumed, or until a time. It is led on; its ticks are
recorded as skipped, and not made up for. A run under way is let finish, but for that of a Continuous job.`,
		Example:           `  scheduler jobs pause reconciliation --for 2h --reason "the ledger is being moved"`,
		Args:              cobra.MaximumNArgs(1),
		ValidArgsFunction: completeJobs,
		RunE: func(cmd *cobra.Command, names []string) error {
			job, err := target(names, all)
			if err != nil {
				return err
			}
			end, err := pauseEnd(cmd, until, lasts)
			if err != nil {
				return coded(exitUsage, err)
			}
			return atDesk(cmd, cfg, env, func(ctx context.Context, desk *control.Desk) error {
				if lasts > 0 {
					now, err := desk.Now(ctx)
					if err != nil {
						return err
					}
					end = now.Add(lasts)
				}
				p, err := desk.Pause(ctx, f.order(), job, end)
				if err != nil {
					return err
				}
				return printPaused(cmd, &f, p)
			})
		},
	}
	databaseFlag(cmd.Flags(), &cfg)
	f.add(cmd, required, "")
	flags := cmd.Flags()
	flags.BoolVar(&all, "all", false, "all jobs, those that come later included")
	flags.StringVar(&until, "until", "", "the `time` at which it ends by itself, as in 2026-03-01T08:00:00Z")
	flags.DurationVar(&lasts, "for", 0, "how long until it ends by itself")
	for _, name := range []string{"all", "until", "for"} {
		_ = flags.SetAnnotation(name, flagOnly, nil)
	}
	return cmd
}

func pauseEnd(cmd *cobra.Command, until string, lasts time.Duration) (end time.Time, err error) {
	switch {
	case until != "" && cmd.Flags().Changed("for"):
		return end, errors.New("--until and --for: give one of them")
	case cmd.Flags().Changed("for") && lasts <= 0:
		return end, fmt.Errorf("--for %s: it must be positive; leave it out to pause until resumed", registry.Span(lasts))
	case until == "":
		return end, nil
	}
	if end, err = time.Parse(time.RFC3339, until); err != nil || end.IsZero() {
		return end, fmt.Errorf("--until %q: it must be a time with its zone, as in 2026-03-01T08:00:00Z", until)
	}
	return end, nil
}

func printPaused(cmd *cobra.Command, f *orderFlags, p control.Paused) error {
	if f.asJSON {
		return printJSON(cmd.OutOrStdout(), map[string]any{"pause": pauseOut(&p.Pause), "replaced": pauseOut(p.Replaced)})
	}
	if p.Pause.Until.IsZero() {
		fmt.Fprintf(cmd.OutOrStdout(), "%s: paused until resumed\n", jobWords(p.Pause.Job))
	} else {
		fmt.Fprintf(cmd.OutOrStdout(), "%s: paused until %s\n", jobWords(p.Pause.Job), stamp(p.Pause.Until))
	}
	if r := p.Replaced; r != nil {
		fmt.Fprintf(cmd.ErrOrStderr(), "this replaces the pause by %s: %s\n", r.By, r.Reason)
	}
	return nil
}

func jobsResumeCommand(env []string) *cobra.Command {
	cfg := Defaults()
	var f orderFlags
	var all bool
	cmd := &cobra.Command{
		Use: "resume NAME | --all", Short: "End the pause of a job, or the pause of all",
		Long: `Resume ends a pause. --all ends the pause of all jobs, and not those that single jobs have of their own;
and a job that is resumed stays paused as long as all are.`,
		Args:              cobra.MaximumNArgs(1),
		ValidArgsFunction: completeJobs,
		RunE: func(cmd *cobra.Command, names []string) error {
			job, err := target(names, all)
			if err != nil {
				return err
			}
			return atDesk(cmd, cfg, env, func(ctx context.Context, desk *control.Desk) error {
				r, err := desk.Resume(ctx, f.order(), job)
				if err != nil {
					return err
				}
				return printResumed(cmd, &f, r)
			})
		},
	}
	databaseFlag(cmd.Flags(), &cfg)
	f.add(cmd, required, "")
	cmd.Flags().BoolVar(&all, "all", false, "the pause of all jobs")
	_ = cmd.Flags().SetAnnotation("all", flagOnly, nil)
	return cmd
}

func printResumed(cmd *cobra.Command, f *orderFlags, r control.Resumed) error {
	if f.asJSON {
		return printJSON(cmd.OutOrStdout(), map[string]any{"ended": pauseOut(&r.Ended), "still_paused": pauseOut(r.Still)})
	}
	fmt.Fprintf(cmd.OutOrStdout(), "%s: resumed\n", jobWords(r.Ended.Job))
	if s := r.Still; s != nil {
		fmt.Fprintf(cmd.ErrOrStderr(), "it stays paused, for all jobs are, by %s: %s (jobs resume --all ends that)\n", s.By, s.Reason)
	}
	return nil
}

// firstLine is what an error says before its stack.
func firstLine(s string) string {
	line, _, _ := strings.Cut(s, "\n")
	return line
}
