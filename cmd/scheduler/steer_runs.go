package main

import (
	"context"
	"fmt"
	"strconv"

	"github.com/spf13/cobra"

	"rota/internal/control"
)

func runsCancelCommand(env []string, cfg *Config) *cobra.Command {
	var f orderFlags
	cmd := &cobra.Command{
		Use: "cancel ID", Short: "End a run that is under way",
		Long: `Cancel ends the context of a run. The run is over once its job has returned; it is not tried again.`,
		Args: cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			id, err := strconv.ParseInt(args[0], 10, 64)
			if err != nil || id <= 0 {
				return coded(exitUsage, fmt.Errorf("run %q: it must be the number of a run", args[0]))
			}
			return atDesk(cmd, *cfg, env, func(ctx context.Context, desk *control.Desk) error {
				a, err := desk.Cancel(ctx, f.order(), id)
				if err != nil {
					return err
				}
				return settled(ctx, cmd, &f, desk, a)
			})
		},
	}
	f.add(cmd, required, "the run is over")
	return cmd
}
