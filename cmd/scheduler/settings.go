package main

import (
	"fmt"
	"io"
	"regexp"
	"slices"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"rota/internal/registry"
)

// A setting is one flag of serve, with what it is now and where that comes from.
type setting struct {
	Flag     string `json:"flag"`
	Variable string `json:"variable"`
	Value    string `json:"value"`
	From     string `json:"from"` // flag, environment or default
	Default  string `json:"default"`
}

// fromVariable marks a flag whose value comes from its variable.
const fromVariable = "from-variable"

func configCommand(env []string) *cobra.Command {
	cfg := Defaults()
	var asJSON bool
	cmd := &cobra.Command{
		Use: "config", Short: "Print the settings that serve would have here, and where each comes from",
		Long: `Config prints every setting of serve: its value, and whether a flag, the environment or the default gave
it. It takes serve's flags. Passwords are not printed. Variables that begin with ROTA_ and name no flag
of any command are warned of: they are misspelt.`,
		Example: `  scheduler config
  ROTA_LEASE=30s scheduler config --renew 10s`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			rows := settingsOf(cmd, cfg)
			warnings := misspelt(cmd.Root(), env)
			for _, w := range warnings {
				fmt.Fprintf(cmd.ErrOrStderr(), "warning: %s\n", w)
			}
			if asJSON {
				return printJSON(cmd.OutOrStdout(), map[string]any{"settings": rows, "warnings": warnings})
			}
			if err := printSettings(cmd.OutOrStdout(), rows); err != nil {
				return err
			}
			return coded(exitUsage, cfg.Validate())
		},
	}
	serveFlags(cmd.Flags(), &cfg)
	jsonFlag(cmd, &asJSON)
	return cmd
}

// settingsOf are all settings of serve in the order of their names, that of the database first.
func settingsOf(cmd *cobra.Command, cfg Config) []setting {
	var rows []setting
	settingFlags().VisitAll(func(known *pflag.Flag) {
		f := cmd.Flags().Lookup(known.Name)
		s := setting{Flag: "--" + f.Name, Variable: variable(f.Name), Value: asGiven(f, f.Value.String()), From: "default", Default: asGiven(f, f.DefValue)}
		if f.Changed {
			s.From = "flag"
			if _, ok := f.Annotations[fromVariable]; ok {
				s.From = "environment"
			}
		}
		if f.Name == "database-url" {
			s.Value, s.Default = cfg.masked(), "the PG* variables"
			if pool, err := poolConfig(cfg.DatabaseURL); err == nil && !f.Changed {
				c := pool.ConnConfig
				s.Value = fmt.Sprintf("the PG* variables: host %s, port %d, user %s, database %s", c.Host, c.Port, c.User, c.Database)
			}
		}
		rows = append(rows, s)
	})
	slices.SortStableFunc(rows, func(a, b setting) int {
		switch {
		case a.Flag == "--database-url":
			return -1
		case b.Flag == "--database-url":
			return 1
		}
		return 0
	})
	return rows
}

// asGiven is a flag's value as it is given: a list without the brackets that it is
// printed in, and a duration without the units that it has none of.
func asGiven(f *pflag.Flag, value string) string {
	switch f.Value.Type() {
	case "stringSlice":
		value = strings.TrimSuffix(strings.TrimPrefix(value, "["), "]")
	case "duration":
		if d, err := time.ParseDuration(value); err == nil {
			value = registry.Span(d)
		}
	}
	return value
}

// settingFlags are the flags of serve, with their defaults.
func settingFlags() *pflag.FlagSet {
	cfg := Defaults()
	flags := pflag.NewFlagSet("serve", pflag.ContinueOnError)
	serveFlags(flags, &cfg)
	return flags
}

// ofAService are the variables that Kubernetes gives each pod of a namespace in which a Service is
// called rota, or rota- and something.
var ofAService = regexp.MustCompile(`^ROTA_(.*_)?(SERVICE_HOST|SERVICE_PORT(_.+)?|PORT(_[0-9]+_(TCP|UDP|SCTP)(_(PROTO|PORT|ADDR))?)?)$`)

// misspelt are the variables that begin as ours do and set nothing.
func misspelt(root *cobra.Command, env []string) []string {
	known := map[string]bool{}
	var visit func(cmd *cobra.Command)
	visit = func(cmd *cobra.Command) {
		note := func(f *pflag.Flag) {
			if _, hidden := f.Annotations[flagOnly]; !hidden {
				known[variable(f.Name)] = true
			}
		}
		cmd.Flags().VisitAll(note)
		cmd.PersistentFlags().VisitAll(note)
		for _, sub := range cmd.Commands() {
			visit(sub)
		}
	}
	visit(root)
	warnings := []string{}
	for _, pair := range env {
		name, _, _ := strings.Cut(pair, "=")
		switch {
		case !strings.HasPrefix(name, "ROTA_") || known[name]:
		case ofAService.MatchString(name):
			warnings = append(warnings, name+" names no setting, and is not read; Kubernetes sets it for a Service, unless enableServiceLinks is false")
		default:
			warnings = append(warnings, name+" names no setting, and is not read")
		}
	}
	slices.Sort(warnings)
	return slices.Compact(warnings)
}

func printSettings(out io.Writer, rows []setting) error {
	w := tabwriter.NewWriter(out, 0, 0, 2, ' ', 0)
	fmt.Fprintln(w, "SETTING\tVARIABLE\tVALUE\tFROM")
	for _, s := range rows {
		fmt.Fprintf(w, "%s\t%s\t%s\t%s\n", s.Flag, s.Variable, dash(plain(s.Value, 200)), s.From)
	}
	return w.Flush()
}
