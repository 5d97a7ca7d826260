package main

import "github.com/spf13/cobra"

func runsCommand(env []string) *cobra.Command {
	cfg := Defaults()
	cmd := group("runs", "What was run, and what is running", runsListCommand(env, &cfg), runsShowCommand(env, &cfg),
		runsCancelCommand(env, &cfg))
	databaseFlag(cmd.PersistentFlags(), &cfg)
	return cmd
}
