package main

import (
	"fmt"
	"time"

	"github.com/spf13/cobra"

	"rota/internal/registry"
)

func checkCommand() *cobra.Command {
	cfg := Defaults()
	var asJSON bool
	cmd := &cobra.Command{
		Use: "check", Short: "Check settings and jobs without a database, and print when each job is due",
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			// What serve would refuse, save for the lack of a database.
			jobs, err := validate(cfg, []string{"PGHOST=unused"})
			if err != nil {
				return err
			}
			for _, j := range jobs {
				for _, w := range j.Schedule.Warnings() {
					fmt.Fprintf(cmd.ErrOrStderr(), "warning: job %q (%s): schedule: %s\n", j.Name, j.Source, w)
				}
			}
			rows := describeJobs(jobs, time.Now(), 3)
			if asJSON {
				return printJSON(cmd.OutOrStdout(), map[string]any{"jobs": rows})
			}
			if err := printJobs(cmd.OutOrStdout(), rows); err != nil {
				return err
			}
			fmt.Fprintf(cmd.ErrOrStderr(), "settings and %s are well\n", plural(len(jobs), "jobs"))
			return nil
		},
	}
	serveFlags(cmd.Flags(), &cfg)
	jsonFlag(cmd, &asJSON)
	return cmd
}

// A jobRow is a job as the commands list it.
type jobRow struct {
	Name     string      `json:"name"`
	About    string      `json:"about"`
	Schedule string      `json:"schedule"`
	Words    string      `json:"schedule_words"`
	Shards   int         `json:"shards"` // leases; 1: it is whole
	Protects []string    `json:"protects"`
	Next     []time.Time `json:"next"` // empty: continuous, or only when asked
	Enabled  bool        `json:"enabled"`
	Warnings []string    `json:"warnings"` // of what its schedule can hardly mean
	Source   string      `json:"source"`
	Counted  string      `json:"replicas_schedule,omitempty"` // where the replicas use another, by the database
}

// describeJobs says what is compiled in, and the next n ticks of each after now.
func describeJobs(jobs []registry.Job, now time.Time, n int) []jobRow {
	rows := make([]jobRow, 0, len(jobs))
	for _, j := range jobs {
		row := jobRow{
			Shards: max(1, j.Shards),
			Name:   j.Name, About: j.About, Schedule: j.Schedule.String(), Words: j.Schedule.Words(),
			Protects: []string{}, Next: nextTicks(j, now, n), Enabled: !j.Disabled, Warnings: j.Schedule.Warnings(), Source: j.Source,
		}
		for _, t := range j.Protects {
			row.Protects = append(row.Protects, t.Name)
		}
		rows = append(rows, row)
	}
	return rows
}

// nextTicks are the job's next n instants; fewer where it has no more, and none where it is disabled.
func nextTicks(j registry.Job, after time.Time, n int) []time.Time {
	ticks := make([]time.Time, 0, n)
	for range n {
		if after = j.Schedule.Next(after); j.Disabled || after.IsZero() {
			break
		}
		ticks = append(ticks, after.UTC())
	}
	return ticks
}
