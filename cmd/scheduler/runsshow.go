package main

import (
	"errors"
	"fmt"
	"io"
	"strconv"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/spf13/cobra"

	"rota/internal/status"
)

func runsShowCommand(env []string, cfg *Config) *cobra.Command {
	var asJSON bool
	cmd := &cobra.Command{
		Use: "show ID", Short: "Show one run: how it ended, why, what it logged, and who asked for it",
		Args: cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			id, err := strconv.ParseInt(args[0], 10, 64)
			if err != nil || id < 1 {
				return coded(exitUsage, fmt.Errorf("run %q: it must be the number that `scheduler runs list` shows", args[0]))
			}
			var record status.RunRecord
			err = reading(cmd.Context(), *cfg, env, nil, func(r *status.Reader) (err error) {
				record, err = r.Run(cmd.Context(), id)
				return err
			})
			switch {
			case errors.Is(err, status.ErrNoRun):
				return coded(exitUsage, fmt.Errorf("%w (it was pruned, or never was); `scheduler runs list` shows what there is", err))
			case err != nil:
				return err
			case asJSON:
				return printJSON(cmd.OutOrStdout(), record.JSON())
			}
			return printRun(cmd.OutOrStdout(), record)
		},
	}
	jsonFlag(cmd, &asJSON)
	return cmd
}

func printRun(out io.Writer, rec status.RunRecord) error {
	r := rec.Run
	w := tabwriter.NewWriter(out, 0, 0, 2, ' ', 0)
	line := func(name, format string, args ...any) { fmt.Fprintf(w, name+"\t"+format+"\n", args...) }
	line("run", "%d", r.ID)
	line("job", "%s", plain(r.Job, 200))
	if r.Lease != r.Job {
		line("lease", "%s", plain(r.Lease, 200))
	}
	line("tick", "%s", stamp(r.Tick))
	line("outcome", "%s", outcome(r))
	line("attempt", "%s", attemptWords(rec))
	line("owner", "%s, epoch %d", plain(r.Owner, 200), r.Epoch)
	line("started", "%s", stamp(r.StartedAt))
	line("ended", "%s", stamp(r.EndedAt))
	line("took", "%s", took(r, rec.AsOf))
	if r.Refused > 0 {
		line("refused", "%s, by its fence", plural(r.Refused, "writes"))
	}
	printAsked(line, r, rec.Request)
	for _, a := range rec.Attempts {
		if a.ID != r.ID {
			line("also", "run %d, attempt %d: %s%s", a.ID, a.Attempt, outcome(a), because(a.Error, 80))
		}
	}
	if err := w.Flush(); err != nil {
		return err
	}
	printText(out, "why", r.Error)
	printText(out, "log", rec.Log)
	fmt.Fprintf(out, asOfLine, stamp(rec.AsOf))
	return nil
}

// attemptWords counts the attempts at the run's tick, and says whether another may follow.
func attemptWords(rec status.RunRecord) string {
	last := rec.Run
	if n := len(rec.Attempts); n > 0 && rec.Attempts[n-1].Attempt > last.Attempt {
		last = rec.Attempts[n-1]
	}
	words := fmt.Sprintf("%d of %d", rec.Run.Attempt, last.Attempt)
	if last.EndedAt.IsZero() || rec.Again || retried(last, rec.AsOf) {
		words += " so far"
	}
	return words
}

// retried reports whether the policy of this binary's job has a further attempt, and its time has not
// passed long since: a newer tick ends the tries.
func retried(r status.Run, asOf time.Time) bool {
	switch r.Outcome {
	case "failed", "panicked", "timed_out":
	default:
		return false
	}
	job, err := findJob(r.Job)
	if err != nil {
		return false
	}
	pause, more := job.Retry.After(r.Attempt)
	return more && asOf.Sub(r.EndedAt) < pause*5/4+10*time.Second
}

// because is a reason behind a colon; nothing where none was given.
func because(reason string, n int) string {
	if reason == "" {
		return ""
	}
	return ": " + plain(reason, n)
}

// printAsked says why it was run.
func printAsked(line func(name, format string, args ...any), r status.Run, q *status.Request) {
	switch {
	case q != nil:
		line("asked for", "by %s, %s%s", plain(q.By, 80), stamp(q.MadeAt), because(q.Reason, 300))
		if len(q.Args) > 0 {
			line("arguments", "%s", plain(string(q.Args), 1000))
		}
	case r.Request > 0:
		line("asked for", "by request %d, which is no longer kept", r.Request)
	default:
		line("asked for", "by its schedule")
	}
}

// printText prints a text of several lines, indented so that none of it looks like ours.
func printText(out io.Writer, name, text string) {
	if text == "" {
		return
	}
	fmt.Fprintf(out, "%s:\n", name)
	for l := range strings.Lines(text) {
		fmt.Fprintf(out, "  %s\n", plain(strings.TrimRight(l, "\r\n"), 10_000))
	}
}
