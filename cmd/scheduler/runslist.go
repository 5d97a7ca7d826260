package main

import (
	"fmt"
	"io"
	"text/tabwriter"
	"time"

	"github.com/spf13/cobra"

	"rota/internal/status"
)

func runsListCommand(env []string, cfg *Config) *cobra.Command {
	var (
		asJSON bool
		of     status.RunsOf
		job    string
	)
	cmd := &cobra.Command{
		Use: "list", Short: "List runs, and the ticks that were skipped or missed, newest first",
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			of.Job = job
			if err := validList(of, of.Limit); err != nil {
				return coded(exitUsage, err)
			}
			var page status.RunsPage
			err := reading(cmd.Context(), *cfg, env, nil, func(r *status.Reader) (err error) {
				if page, err = r.Runs(cmd.Context(), of); err != nil || len(page.Runs) > 0 {
					return err
				}
				return tellUnknown(cmd, r, job)
			})
			switch {
			case err != nil:
				return err
			case asJSON:
				return printJSON(cmd.OutOrStdout(), page.JSON())
			}
			if page.Next > 0 {
				defer fmt.Fprintf(cmd.ErrOrStderr(), "there are more: --before %d\n", page.Next)
			}
			return printRuns(cmd.OutOrStdout(), page.AsOf, page.Runs)
		},
	}
	cmd.Flags().StringVar(&job, "job", "", "only runs of this job")
	cmd.Flags().StringVar(&of.Outcome, "outcome", "", "only runs of this outcome, or running")
	cmd.Flags().Int64Var(&of.Before, "before", 0, "only runs with a lower `id`")
	cmd.Flags().IntVar(&of.Limit, "limit", 20, "how many at most")
	for flag, words := range map[string]cobra.CompletionFunc{
		"job":     completeJobs,
		"outcome": cobra.FixedCompletions(status.Outcomes, cobra.ShellCompDirectiveNoFileComp),
	} {
		if err := cmd.RegisterFlagCompletionFunc(flag, words); err != nil {
			panic(err) // there is no such flag
		}
	}
	jsonFlag(cmd, &asJSON)
	return cmd
}

// validList refuses a list of nothing too, which the question takes for one of the usual length.
func validList(of interface{ Validate() error }, limit int) error {
	if limit == 0 {
		return fmt.Errorf("limit 0: it must be 1 to %d", status.Most)
	}
	return of.Validate()
}

func printRuns(out io.Writer, asOf time.Time, runs []status.Run) error {
	w := tabwriter.NewWriter(out, 0, 0, 2, ' ', 0)
	fmt.Fprintln(w, "RUN\tLEASE\tTICK\tTRIGGER\tOUTCOME\tATTEMPT\tTOOK\tEPOCH\tOWNER\tWHY")
	for _, r := range runs {
		fmt.Fprintf(w, "%d\t%s\t%s\t%s\t%s\t%d\t%s\t%d\t%s\t%s\n",
			r.ID, plain(r.Lease, 80), stamp(r.Tick), trigger(r), outcome(r), r.Attempt, took(r, asOf), r.Epoch, plain(r.Owner, 80), dash(plain(firstLine(r.Error), 80)))
	}
	fmt.Fprintf(w, asOfLine, stamp(asOf))
	return w.Flush()
}

// trigger is what it was run for.
func trigger(r status.Run) string {
	if r.Request > 0 {
		return fmt.Sprintf("request %d", r.Request)
	}
	return "schedule"
}

// outcome is the run's, and how many ticks it is for where these are several.
func outcome(r status.Run) string {
	switch {
	case r.Outcome == "":
		return status.Running
	case r.Ticks > 1:
		return fmt.Sprintf("%s (%d ticks since %s)", r.Outcome, r.Ticks, stamp(r.FirstTick))
	}
	return r.Outcome
}

// took is how long the run took, or has been running; nothing for what was not run.
func took(r status.Run, asOf time.Time) string {
	switch r.Outcome {
	case "":
		return span(max(0, asOf.Sub(r.StartedAt)))
	case "skipped", "missed":
		return "-"
	}
	return span(r.EndedAt.Sub(r.StartedAt))
}
