package main

import (
	"context"

	"github.com/spf13/cobra"

	"rota/internal/control"
)

func replicasDrainCommand(env []string, cfg *Config) *cobra.Command {
	var f orderFlags
	cmd := &cobra.Command{
		Use: "drain ID", Short: "Have a replica give up all that it leads, for good",
		Long: `Drain has a replica give up all that it leads, each lease once its run is over, and take none again until
it is restarted. It stays a member, and goes on serving the page. ID is the replica's id, the beginning of
it, or its host, if only one replica has that.`,
		Example: `  scheduler replicas drain web-3 --reason "new kernel" --wait`,
		Args:    cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			return atDesk(cmd, *cfg, env, func(ctx context.Context, desk *control.Desk) error {
				a, err := desk.Drain(ctx, f.order(), args[0])
				if err != nil {
					return err
				}
				return settled(ctx, cmd, &f, desk, a)
			})
		},
	}
	f.add(cmd, required, "it leads nothing any more")
	return cmd
}
