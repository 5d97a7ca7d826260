package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"text/tabwriter"
	"time"

	"github.com/spf13/cobra"

	"rota/internal/registry"
	"rota/internal/status"
)

func leasesCommand(env []string) *cobra.Command {
	cfg := Defaults()
	cmd := group("leases", "Who leads what", leasesListCommand(env, &cfg),
		leasesStepDownCommand(env, &cfg), leasesRevokeCommand(env, &cfg))
	databaseFlag(cmd.PersistentFlags(), &cfg)
	return cmd
}

func leasesListCommand(env []string, cfg *Config) *cobra.Command {
	var asJSON bool
	cmd := &cobra.Command{
		Use: "list", Short: "List the leases, as the database's rows and clock have them",
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			snap, err := readStatus(cmd.Context(), *cfg, env)
			if err != nil {
				return err
			}
			if asJSON {
				return printJSON(cmd.OutOrStdout(), snap.LeasesJSON(""))
			}
			return printLeases(cmd.OutOrStdout(), snap)
		},
	}
	jsonFlag(cmd, &asJSON)
	return cmd
}

// reachable refuses a command that needs a database and has not been told of one, or of one that
// does not answer.
func reachable(ctx context.Context, cfg Config, env []string) error {
	return reachableWithin(ctx, cfg, env, 5*time.Second)
}

func reachableWithin(ctx context.Context, cfg Config, env []string, patience time.Duration) error {
	if err := errors.Join(requireDatabase(cfg, env), cfg.validateDatabase()); err != nil {
		return coded(exitUsage, err)
	}
	return awaitDatabase(ctx, cfg.DatabaseURL, patience, cfg.logger(io.Discard))
}

// requireDatabase refuses to guess: libpq's own default, a socket and the user's name, would hide
// that a setting has been forgotten.
func requireDatabase(cfg Config, env []string) error {
	if cfg.DatabaseURL != "" {
		return nil
	}
	for _, name := range []string{"PGHOST", "PGSERVICE", "PGDATABASE", "PGUSER", "PGPORT"} {
		if _, ok := lookup(env, name); ok {
			return nil
		}
	}
	return errors.New("no database is named: set DATABASE_URL or the PG* variables (`scheduler dev` needs neither)")
}

func printLeases(out io.Writer, snap status.Snapshot) error {
	w := tabwriter.NewWriter(out, 0, 0, 2, ' ', 0)
	fmt.Fprintln(w, "LEASE\tSTATE\tOWNER\tEPOCH\tLEFT\tSINCE\tBEFORE")
	for _, l := range snap.Leases {
		owner, left, since, before := "-", "-", "-", "-"
		if l.State == status.Held {
			owner, left, since = plain(l.Owner, 100), registry.Span(l.Left.Round(100*time.Millisecond)), stamp(l.AcquiredAt)
		}
		if t := l.LastEnd; t != nil {
			before = fmt.Sprintf("%s, until %s: %s", plain(t.Owner, 100), stamp(t.EndedAt), plain(t.Reason, 40))
		}
		fmt.Fprintf(w, "%s\t%s\t%s\t%d\t%s\t%s\t%s\n", l.Name, l.State, owner, l.Epoch, left, since, before)
	}
	fmt.Fprintf(w, "as of %s, by the database's clock\n", stamp(snap.AsOf))
	return w.Flush()
}
