package main

import (
	"context"
	"fmt"
	"io"
	"strconv"
	"text/tabwriter"
	"time"

	"github.com/spf13/cobra"

	"rota/internal/control"
	"rota/internal/status"
)

func requestsCommand(env []string) *cobra.Command {
	cfg := Defaults()
	cmd := group("requests", "What was asked for and waits", requestsListCommand(env, &cfg), requestsWithdrawCommand(env, &cfg))
	databaseFlag(cmd.PersistentFlags(), &cfg)
	return cmd
}

func requestsListCommand(env []string, cfg *Config) *cobra.Command {
	var asJSON bool
	cmd := &cobra.Command{
		Use: "list", Short: "List the requests that no replica has carried out yet, oldest first",
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			var page status.RequestsPage
			err := reading(cmd.Context(), *cfg, env, nil, func(r *status.Reader) (err error) {
				page, err = r.Requests(cmd.Context(), status.RequestsOf{})
				return err
			})
			switch {
			case err != nil:
				return err
			case asJSON:
				return printJSON(cmd.OutOrStdout(), page.JSON())
			}
			return printRequests(cmd.OutOrStdout(), page.AsOf, page.Open)
		},
	}
	jsonFlag(cmd, &asJSON)
	return cmd
}

func printRequests(out io.Writer, asOf time.Time, open []status.Request) error {
	w := tabwriter.NewWriter(out, 0, 0, 2, ' ', 0)
	fmt.Fprintln(w, "REQUEST\tWHAT\tON\tARGUMENTS\tASKED BY\tWAITS\tWHY")
	for _, q := range open {
		on := subject(status.Line{Job: q.Job, Lease: q.Lease, Replica: q.Replica, Run: q.Run})
		fmt.Fprintf(w, "%d\t%s\t%s\t%s\t%s\t%s\t%s\n", q.ID, plain(q.Kind, 20), plain(on, 200), dash(plain(string(q.Args), 80)),
			plain(q.By, 80), span(max(0, asOf.Sub(q.MadeAt))), dash(plain(q.Reason, 80)))
	}
	fmt.Fprintf(w, asOfLine, stamp(asOf))
	return w.Flush()
}

func requestsWithdrawCommand(env []string, cfg *Config) *cobra.Command {
	var f orderFlags
	cmd := &cobra.Command{
		Use: "withdraw ID", Short: "Take back a request to run a job that has not begun",
		Long: `Withdraw settles a request to run a job of which no run has begun; none begins from then on. A run that has
begun is ended by runs cancel.`,
		Example: `  scheduler requests withdraw 4711 --reason "the file came after all"`,
		Args:    cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			id, err := strconv.ParseInt(args[0], 10, 64)
			if err != nil || id <= 0 {
				return coded(exitUsage, fmt.Errorf("request %q: it must be the number of a request", args[0]))
			}
			return atDesk(cmd, *cfg, env, func(ctx context.Context, desk *control.Desk) error {
				w, err := desk.Withdraw(ctx, f.order(), id)
				switch {
				case err != nil:
					return err
				case f.asJSON:
					return printJSON(cmd.OutOrStdout(), w)
				}
				fmt.Fprintf(cmd.OutOrStdout(), "request %d: %s\n", w.ID, w.Result)
				return nil
			})
		},
	}
	f.add(cmd, required, "")
	return cmd
}
