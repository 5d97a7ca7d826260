package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"os/user"
	"time"

	"github.com/jackc/pgx/v5/pgconn"
	"github.com/spf13/cobra"

	"rota/internal/control"
)

// orderFlags are those of every command by which an operator asks for something.
type orderFlags struct {
	by     string
	reason string
	wait   bool
	asJSON bool
}

// add declares them; why says what the reason is for, and waited what --wait waits for: empty, there
// is no such flag.
func (f *orderFlags) add(cmd *cobra.Command, why, waited string) {
	flags := cmd.Flags()
	flags.StringVar(&f.by, "by", operator(), "`who` asks, for the audit")
	flags.StringVar(&f.reason, "reason", "", "`why`, for the audit"+why)
	_ = flags.SetAnnotation("reason", flagOnly, nil)
	if waited != "" {
		flags.BoolVar(&f.wait, "wait", false, "wait until "+waited)
	}
	jsonFlag(cmd, &f.asJSON)
}

// Where a reason must be given.
const required = "; required"

func (f *orderFlags) order() control.Order {
	return control.Order{By: f.by, Via: control.CLI, Reason: f.reason}
}

// operator is the user and the host that a command is run by.
func operator() string {
	name := "uid " + fmt.Sprint(os.Getuid())
	if u, err := user.Current(); err == nil && u.Username != "" {
		name = u.Username
	} else if env := cmp.Or(os.Getenv("USER"), os.Getenv("LOGNAME")); env != "" {
		name = env
	}
	host, err := os.Hostname()
	if err != nil {
		host = "unknown"
	}
	return name + "@" + host
}

// deskPatience bounds the way to the desk, at which an order has as long again.
const deskPatience = 2 * time.Second

// atDesk has f give an order at the database, and gives its error the exit code.
func atDesk(cmd *cobra.Command, cfg Config, env []string, f func(context.Context, *control.Desk) error) error {
	ctx := cmd.Context()
	if err := reachableWithin(ctx, cfg, env, deskPatience); err != nil {
		return fmt.Errorf("nothing was done: %w", err)
	}
	jobs, err := loadJobs("")
	if err != nil {
		return coded(exitUsage, err)
	}
	db, err := openPool(ctx, cfg.DatabaseURL, "rota cli", 1)
	if err != nil {
		return err
	}
	defer db.Close()
	return deskError(f(ctx, control.NewDesk(db, jobs)))
}

func deskError(err error) error {
	if errors.Is(err, control.ErrInvalid) || errors.Is(err, control.ErrNotFound) {
		return coded(exitUsage, err)
	}
	return schemaError(err)
}

// schemaError gives what a database without our schema, or with an older one, or one that refuses
// our text says the exit code and the way out.
func schemaError(err error) error {
	var pg *pgconn.PgError
	if !errors.As(err, &pg) {
		return err
	}
	switch pg.Code {
	case "42P01", "42703", "42883": // no such table, column, function
		return coded(exitSchema, fmt.Errorf("the schema of the database is older than this binary needs: scheduler migrate up brings it up to date (%s)", pg.Message))
	case "22021", "22P05": // what is no text to it
		return coded(exitUsage, fmt.Errorf("a name or a text that was given is not valid UTF-8, or holds a zero byte: give plain text (%s)", pg.Message))
	}
	return err
}

// askedJSON is a request, and with --wait what became of it.
type askedJSON struct {
	control.Asked
	Result string `json:"result,omitempty"`
}

// reportAsked prints a request: its number to stdout, and what to expect to stderr.
func reportAsked(cmd *cobra.Command, f *orderFlags, a control.Asked) error {
	if f.asJSON {
		return printJSON(cmd.OutOrStdout(), askedJSON{Asked: a})
	}
	if len(a.Shards) == 0 {
		a.Shards = []control.Asked{a}
	}
	for _, one := range a.Shards {
		fmt.Fprintf(cmd.OutOrStdout(), "request %d\n", one.ID)
	}
	tellExpected(cmd, a)
	return nil
}

func tellExpected(cmd *cobra.Command, a control.Asked) {
	if a.Existed {
		fmt.Fprintf(cmd.ErrOrStderr(), "request %d was made before\n", a.ID)
	}
	fmt.Fprintln(cmd.ErrOrStderr(), a.Expect)
}

// settled waits for a request if that is wanted, and prints what became of it.
func settled(ctx context.Context, cmd *cobra.Command, f *orderFlags, desk *control.Desk, a control.Asked) error {
	if !f.wait {
		return reportAsked(cmd, f, a)
	}
	tellExpected(cmd, a)
	result, err := desk.Await(ctx, a.ID)
	if err != nil {
		return err
	}
	if f.asJSON {
		return printJSON(cmd.OutOrStdout(), askedJSON{a, result})
	}
	fmt.Fprintf(cmd.OutOrStdout(), "request %d: %s\n", a.ID, result)
	return nil
}
