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

func jobsCommand(env []string) *cobra.Command {
	cmd := group("jobs", "What is compiled in, when it is due, and orders about it", jobsListCommand(), jobsShowCommand(env), jobsNextCommand(env))
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
