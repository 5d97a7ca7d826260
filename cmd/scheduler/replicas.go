package main

import "github.com/spf13/cobra"

func replicasCommand(env []string) *cobra.Command {
	cfg := Defaults()
	cmd := group("replicas", "Who is there", replicasListCommand(env, &cfg), replicasDrainCommand(env, &cfg))
	databaseFlag(cmd.PersistentFlags(), &cfg)
	return cmd
}
