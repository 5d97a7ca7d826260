package main

import (
	"bufio"
	"context"
	"fmt"
	"strings"

	"github.com/spf13/cobra"

	"rota/internal/control"
)

func leasesStepDownCommand(env []string, cfg *Config) *cobra.Command {
	var f orderFlags
	cmd := &cobra.Command{
		Use: "step-down NAME", Short: "Have the leader of a lease give it up",
		Long: `Step-down has the replica that leads a lease now give it up, once its run is over. Any replica may take it
then, that one included.`,
		Args:              cobra.ExactArgs(1),
		ValidArgsFunction: completeJobs,
		RunE: func(cmd *cobra.Command, args []string) error {
			return atDesk(cmd, *cfg, env, func(ctx context.Context, desk *control.Desk) error {
				a, err := desk.StepDown(ctx, f.order(), args[0])
				if err != nil {
					return err
				}
				if !f.wait {
					return reportAsked(cmd, &f, a)
				}
				return awaitLeader(ctx, cmd, &f, desk, a)
			})
		},
	}
	f.add(cmd, required, "somebody leads it under a later epoch")
	return cmd
}

func awaitLeader(ctx context.Context, cmd *cobra.Command, f *orderFlags, desk *control.Desk, a control.Asked) error {
	tellExpected(cmd, a)
	result, err := desk.Await(ctx, a.ID)
	if err != nil {
		return err
	}
	fmt.Fprintf(cmd.ErrOrStderr(), "request %d: %s\n", a.ID, result)
	owner, epoch, err := desk.AwaitLeader(ctx, a.Lease, a.Epoch)
	if err != nil {
		return err
	}
	if f.asJSON {
		return printJSON(cmd.OutOrStdout(), struct {
			askedJSON
			Next      string `json:"next_owner"`
			NextEpoch int64  `json:"next_epoch"`
		}{askedJSON{a, result}, owner, epoch})
	}
	fmt.Fprintf(cmd.OutOrStdout(), "%s: led by %s under epoch %d\n", a.Lease, owner, epoch)
	return nil
}

func leasesRevokeCommand(env []string, cfg *Config) *cobra.Command {
	var f orderFlags
	var above int64
	var yes bool
	cmd := &cobra.Command{
		Use: "revoke NAME", Short: "End a term at once, whatever its leader does",
		Long: `Revoke ends the term of a lease without asking its leader: whatever that one still writes through its fence
is refused, and another takes over while it may still be at work. It is for a leader that hangs; step-down
is for one that does not. The epoch is raised, with --above to more than the given one: that puts epochs in
order after a database was restored.

It asks for the lease's name to be typed, unless --yes is given.`,
		Example:           `  scheduler leases revoke reconciliation --reason "hangs since 08:00"`,
		Args:              cobra.ExactArgs(1),
		ValidArgsFunction: completeJobs,
		RunE: func(cmd *cobra.Command, args []string) error {
			if !yes {
				if err := confirm(cmd, args[0]); err != nil {
					return coded(exitUsage, err)
				}
			}
			return atDesk(cmd, *cfg, env, func(ctx context.Context, desk *control.Desk) error {
				r, err := desk.Revoke(ctx, f.order(), args[0], above)
				if err != nil {
					return err
				}
				if f.asJSON {
					return printJSON(cmd.OutOrStdout(), r)
				}
				if r.Owner != "" {
					fmt.Fprintf(cmd.ErrOrStderr(), "the term of %s under epoch %d is over\n", r.Owner, r.Epoch)
				}
				fmt.Fprintf(cmd.OutOrStdout(), "%s: epoch %d\n", r.Lease, r.NewEpoch)
				return nil
			})
		},
	}
	f.add(cmd, required, "")
	flags := cmd.Flags()
	flags.Int64Var(&above, "above", 0, "an `epoch` that the next one must be above")
	flags.BoolVar(&yes, "yes", false, "do not ask for the name")
	for _, name := range []string{"above", "yes"} {
		_ = flags.SetAnnotation(name, flagOnly, nil)
	}
	return cmd
}

// confirm has the lease's name typed.
func confirm(cmd *cobra.Command, name string) error {
	fmt.Fprintf(cmd.ErrOrStderr(), "This ends a term under its leader. Type the name of the lease to go on: ")
	typed, err := bufio.NewReader(cmd.InOrStdin()).ReadString('\n')
	if err != nil {
		fmt.Fprintln(cmd.ErrOrStderr())
	}
	if strings.TrimSpace(typed) != name {
		return fmt.Errorf("not confirmed, and nothing was done: type %s, or give --yes", name)
	}
	return nil
}
