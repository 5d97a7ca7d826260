package main

import (
	"fmt"
	"io"
	"text/tabwriter"
	"time"

	"github.com/spf13/cobra"

	"rota/internal/status"
)

func replicasListCommand(env []string, cfg *Config) *cobra.Command {
	var asJSON bool
	cmd := &cobra.Command{
		Use: "list", Short: "List the replicas, those that are gone within the last hour too",
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			snap, err := readStatus(cmd.Context(), *cfg, env)
			switch {
			case err != nil:
				return err
			case asJSON:
				all, _ := snap.ReplicasJSON("", 0)
				return printJSON(cmd.OutOrStdout(), all)
			}
			return printReplicas(cmd.OutOrStdout(), snap)
		},
	}
	jsonFlag(cmd, &asJSON)
	return cmd
}

func printReplicas(out io.Writer, snap status.Snapshot) error {
	w := tabwriter.NewWriter(out, 0, 0, 2, ' ', 0)
	fmt.Fprintln(w, "REPLICA\tSTANDING\tLEASES\tVERSION\tPID\tSTARTED\tSEEN\tCLOCK")
	for _, r := range snap.Replicas {
		if r.Standing == status.Outside {
			fmt.Fprintf(w, "%s\t%s\t%d\t-\t-\t-\t-\t-\n", plain(r.ID, 100), r.Standing, r.Leases)
			continue
		}
		standing := string(r.Standing)
		if r.Standing == status.Draining && r.Leases == 0 {
			standing = "drained" // it has given up all it led, as the page says too
		}
		fmt.Fprintf(w, "%s\t%s\t%d\t%s\t%d\t%s\t%s ago\t%+.1f ms\n", plain(r.ID, 100), standing, r.Leases, plain(r.Version, 40), r.PID,
			stamp(r.StartedAt), max(0, snap.AsOf.Sub(r.SeenAt)).Round(100*time.Millisecond), float64(r.ClockOffset)/float64(time.Millisecond))
	}
	fmt.Fprintf(w, asOfLine, stamp(snap.AsOf))
	return w.Flush()
}
