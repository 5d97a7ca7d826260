package main

import (
	"fmt"
	"io"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/spf13/cobra"

	"rota/internal/registry"
)

// mostTicks bounds what jobs next prints.
const mostTicks = 1000

func jobsCommand(env []string) *cobra.Command {
	cmd := group("jobs", "What is compiled in, when it is due, and orders about it", jobsListCommand(), jobsNextCommand())
	cmd.AddCommand(steerJobsCommands(env)...)
	return cmd
}

func jobsListCommand() *cobra.Command {
	var (
		asJSON bool
		file   string
	)
	cmd := &cobra.Command{
		Use: "list", Short: "List the jobs compiled into this binary; needs no database",
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			jobs, err := loadJobs(file)
			if err != nil {
				return coded(exitUsage, err)
			}
			rows := describeJobs(jobs, time.Now(), 1)
			if asJSON {
				return printJSON(cmd.OutOrStdout(), map[string]any{"jobs": rows})
			}
			return printJobs(cmd.OutOrStdout(), rows)
		},
	}
	jsonFlag(cmd, &asJSON)
	jobsFileFlag(cmd.Flags(), &file)
	return cmd
}

func printJobs(out io.Writer, rows []jobRow) error {
	w := tabwriter.NewWriter(out, 0, 0, 2, ' ', 0)
	fmt.Fprintln(w, "JOB\tSCHEDULE\tPROTECTS\tNEXT")
	for _, r := range rows {
		next := make([]string, 0, len(r.Next))
		for _, t := range r.Next {
			next = append(next, stamp(t))
		}
		if !r.Enabled {
			next = []string{"disabled"}
		}
		fmt.Fprintf(w, "%s\t%s\t%s\t%s\n", r.Name, r.Words, dashed(r.Protects), dashed(next))
	}
	return w.Flush()
}

func dashed(words []string) string {
	if len(words) == 0 {
		return "-"
	}
	return strings.Join(words, ", ")
}

func jobsNextCommand() *cobra.Command {
	var (
		asJSON bool
		file   string
		n      int
	)
	cmd := &cobra.Command{
		Use: "next NAME", Short: "Say when a job is due; needs no database",
		Args:              cobra.ExactArgs(1),
		ValidArgsFunction: completeJobs,
		RunE: func(cmd *cobra.Command, args []string) error {
			jobs, err := loadJobs(file)
			if err != nil {
				return coded(exitUsage, err)
			}
			job, err := findJobIn(jobs, args[0])
			if err != nil {
				return err
			}
			if n < 1 || n > mostTicks {
				return coded(exitUsage, fmt.Errorf("-n %d: it must be between 1 and %d", n, mostTicks))
			}
			ticks := nextTicks(job, time.Now(), n)
			if asJSON {
				return printJSON(cmd.OutOrStdout(), map[string]any{"job": job.Name, "next": ticks})
			}
			switch {
			case job.Disabled:
				fmt.Fprintf(cmd.ErrOrStderr(), "%s is disabled by %s: replicas with this file do not run it\n", job.Name, file)
			case len(ticks) == 0:
				fmt.Fprintf(cmd.ErrOrStderr(), "%s has no ticks: %s\n", job.Name, job.Schedule.Words())
			}
			for _, t := range ticks {
				fmt.Fprintln(cmd.OutOrStdout(), t.Format(time.RFC3339))
			}
			return nil
		},
	}
	cmd.Flags().IntVarP(&n, "number", "n", 5, "how many ticks")
	jsonFlag(cmd, &asJSON)
	jobsFileFlag(cmd.Flags(), &file)
	return cmd
}

// findJob is for commands that ask only whether there is such a job: no jobs file changes that.
func findJob(name string) (registry.Job, error) {
	jobs, err := registry.Jobs()
	if err != nil {
		return registry.Job{}, coded(exitUsage, err)
	}
	return findJobIn(jobs, name)
}

func findJobIn(jobs []registry.Job, name string) (registry.Job, error) {
	names := make([]string, 0, len(jobs))
	for _, j := range jobs {
		if j.Name == name {
			return j, nil
		}
		names = append(names, j.Name)
	}
	return registry.Job{}, coded(exitUsage, fmt.Errorf("there is no job %q; there are: %s", name, strings.Join(names, ", ")))
}

func completeJobs(*cobra.Command, []string, string) ([]string, cobra.ShellCompDirective) {
	jobs, _ := registry.Jobs()
	names := make([]string, 0, len(jobs))
	for _, j := range jobs {
		names = append(names, j.Name)
	}
	return names, cobra.ShellCompDirectiveNoFileComp
}
