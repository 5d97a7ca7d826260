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
	cmd := group("jobs", "What is compiled in, when it is due, and orders about it", jobsListCommand(env), jobsShowCommand(env), jobsNextCommand(env))
	cmd.AddCommand(steerJobsCommands(env)...)
	return cmd
}

func jobsListCommand(env []string) *cobra.Command {
	cfg := Defaults()
	var asJSON bool
	cmd := &cobra.Command{
		Use: "list", Short: "List the jobs compiled into this binary; needs no database",
		Long: `List names the jobs compiled into this binary, with what a jobs file changes about them.

It needs no database. Where one is named and answers, it says which jobs the replicas run by another
schedule, since their jobs file changes it.`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			jobs, err := loadJobs(cfg.JobsFile)
			if err != nil {
				return coded(exitUsage, err)
			}
			rows := describeJobs(jobs, time.Now(), 1)
			counted := glance(cmd.Context(), cfg, env)
			for i, j := range jobs {
				rows[i].Counted = differing(j, countedBy(j, counted))
			}
			if asJSON {
				return printJSON(cmd.OutOrStdout(), map[string]any{"jobs": rows})
			}
			for _, r := range rows {
				if r.Counted != "" {
					fmt.Fprintf(cmd.ErrOrStderr(), "%s: %s\n", r.Name, differs(r.Counted))
				}
			}
			return printJobs(cmd.OutOrStdout(), rows)
		},
	}
	jsonFlag(cmd, &asJSON)
	jobsFileFlag(cmd.Flags(), &cfg.JobsFile)
	databaseFlag(cmd.Flags(), &cfg)
	return cmd
}

func printJobs(out io.Writer, rows []jobRow) error {
	w := tabwriter.NewWriter(out, 0, 0, 2, ' ', 0)
	fmt.Fprintln(w, "JOB\tSHARDS\tSCHEDULE\tPROTECTS\tNEXT")
	for _, r := range rows {
		next := make([]string, 0, len(r.Next))
		for _, t := range r.Next {
			next = append(next, stamp(t))
		}
		if !r.Enabled {
			next = []string{"disabled"}
		}
		shards := "-"
		if r.Shards > 1 {
			shards = fmt.Sprint(r.Shards)
		}
		fmt.Fprintf(w, "%s\t%s\t%s\t%s\t%s\n", r.Name, shards, r.Words, dashed(r.Protects), dashed(next))
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
	whole, k, _ := registry.LeaseOf(name)
	names := make([]string, 0, len(jobs))
	for _, j := range jobs {
		if j.Name == name {
			return j, nil
		}
		if k > 0 && j.Name == whole {
			return registry.Job{}, coded(exitUsage, ofAShard(name, whole))
		}
		names = append(names, j.Name)
	}
	return registry.Job{}, coded(exitUsage, fmt.Errorf("there is no job %q; there are: %s", name, strings.Join(names, ", ")))
}

// ofAShard refuses the lease of a shard where a job is to be named.
func ofAShard(name, job string) error {
	return fmt.Errorf("there is no job %q: that is the lease of a shard; name its job, %q", name, job)
}

func completeJobs(*cobra.Command, []string, string) ([]string, cobra.ShellCompDirective) {
	jobs, _ := registry.Jobs()
	names := make([]string, 0, len(jobs))
	for _, j := range jobs {
		names = append(names, j.Name)
	}
	return names, cobra.ShellCompDirectiveNoFileComp
}
