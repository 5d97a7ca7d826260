// Command scheduler runs named jobs, each led by exactly one of its replicas at a time.
package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/signal"
	"strings"
	"syscall"
	"time"

	"github.com/spf13/cobra"

	_ "rota/jobs" // every job in there registers itself; this is the only such import
)

// The exit codes. Those of a second signal are the shell's: 128 and the signal's number.
const (
	exitOK     = 0
	exitFailed = 1 // it could not be done; the line on stderr says why
	exitUsage  = 2 // wrong arguments, settings or jobs: trying again cannot help
	exitSchema = 3 // the database's schema is not one that this binary can work with
	exitLeft   = 4 // shut down with a lease left to expire, since a job did not return
	exitStory  = 5 // dev --story: a step did not come out as promised
	exitRun    = 6 // jobs run --wait: the run did not succeed
)

const exitCodes = `Exit codes:
  0  done
  1  it could not be done; the line on stderr says why
  2  wrong arguments, settings or jobs
  3  the schema of the database is not one that this binary can work with
  4  shut down, but a lease was left to expire because a job did not return
  5  dev --story: a step did not come out as promised
  6  jobs run --wait: the run was made, and did not succeed
  128 + the signal's number, when a second signal cut the shutdown short`

func main() {
	os.Exit(run(signals(context.Background(), os.Stderr), os.Args[1:], os.Environ(), os.Stdin, os.Stdout, os.Stderr))
}

// signalEcho is how soon after the first a signal is taken for the same one: a supervisor may send
// it to the process and to its group, as timeout(1) does.
const signalEcho = 200 * time.Millisecond

// signals returns a context that ends at the first SIGINT or SIGTERM. The second ends the process.
func signals(ctx context.Context, stderr io.Writer) context.Context {
	ctx, cancel := context.WithCancelCause(ctx)
	caught := make(chan os.Signal, 2)
	signal.Notify(caught, syscall.SIGINT, syscall.SIGTERM)
	go func() {
		cancel(fmt.Errorf("received %v", <-caught))
		first := time.Now()
		again := (<-caught).(syscall.Signal)
		for time.Since(first) < signalEcho {
			again = (<-caught).(syscall.Signal)
		}
		fmt.Fprintf(stderr, "second signal (%v): exiting at once, leases are left to expire\n", again)
		os.Exit(128 + int(again))
	}()
	return ctx
}

// run is main with everything that it touches handed to it, and returns the exit code. Results go
// to stdout, all else to stderr.
func run(ctx context.Context, args, env []string, stdin io.Reader, stdout, stderr io.Writer) int {
	out := &results{to: stdout}
	root := newRoot(env, out)
	root.SetArgs(args)
	root.SetIn(stdin)
	root.SetErr(stderr)
	err := root.ExecuteContext(ctx)
	if err == nil {
		err = out.lost()
	}
	if err == nil {
		return exitOK
	}
	var exit *exitError
	if errors.As(err, &exit) {
		return exit.code
	}
	for _, line := range lines(err) {
		fmt.Fprintf(stderr, "scheduler: %s\n", line)
	}
	var coded *codedError
	if errors.As(err, &coded) {
		return coded.code
	}
	return exitFailed
}

func newRoot(env []string, stdout io.Writer) *cobra.Command {
	root := &cobra.Command{
		Use:   "scheduler",
		Short: "Runs named jobs, each led by exactly one replica at a time",
		Long: `Scheduler answers one question: who does this job?

Several identical replicas of it run. Each job is led by exactly one of them at a time, and what a
former leader does when it wakes up late is refused by the database.`,
		Example: `  scheduler dev              three replicas, a page and a database to play with
  scheduler serve            a replica; DATABASE_URL or PG* name the database
  scheduler jobs next NAME   when a job is due`,
		SilenceUsage: true, SilenceErrors: true,
		Args: noSuchCommand,
		RunE: func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
		PersistentPreRunE: func(cmd *cobra.Command, _ []string) error {
			return coded(exitUsage, fromEnvironment(cmd, env))
		},
	}
	root.SetHelpTemplate(root.HelpTemplate() + "\n" + exitCodes + "\n")
	root.SetFlagErrorFunc(func(cmd *cobra.Command, err error) error {
		return coded(exitUsage, fmt.Errorf("%w; see %s --help", flagError(cmd, err), cmd.CommandPath()))
	})
	root.AddCommand(serveCommand(env), devCommand(env), migrateCommand(env), checkCommand(), configCommand(env), doctorCommand(env),
		jobsCommand(env), runsCommand(env), leasesCommand(env), replicasCommand(env), requestsCommand(env), auditCommand(env), watchCommand(env),
		newCommand(), healthCommand(), versionCommand())
	root.SetOut(stdout) // which completion keeps when it is made
	// Cobra would make it later, and show its help to those who name no shell, or one that it lacks.
	root.InitDefaultCompletionCmd()
	for _, cmd := range root.Commands() {
		if cmd.Name() == "completion" {
			cmd.RunE = needsMore
		}
	}
	usageErrors(root)
	return root
}

// usageErrors gives wrong arguments the exit code of their own.
func usageErrors(cmd *cobra.Command) {
	if check := cmd.Args; check != nil {
		cmd.Args = func(cmd *cobra.Command, args []string) error { return coded(exitUsage, check(cmd, args)) }
	}
	for _, sub := range cmd.Commands() {
		usageErrors(sub)
	}
}

// group is a command that only holds others.
func group(use, short string, subs ...*cobra.Command) *cobra.Command {
	cmd := &cobra.Command{
		Use: use, Short: short,
		Args: noSuchCommand,
		RunE: needsMore,
	}
	cmd.AddCommand(subs...)
	return cmd
}

// noSuchCommand refuses a word that is no command here, and names those that were perhaps meant.
func noSuchCommand(cmd *cobra.Command, args []string) error {
	if len(args) == 0 {
		return nil
	}
	cmd.SuggestionsMinimumDistance = 2
	hint := "see " + cmd.CommandPath() + " --help"
	if meant := cmd.SuggestionsFor(args[0]); len(meant) > 0 {
		hint = "did you mean " + strings.Join(meant, " or ") + "?"
	}
	return fmt.Errorf("unknown command %.80q for %q: %s", args[0], cmd.CommandPath(), hint)
}

// needsMore refuses a command that only holds others: help in its place would look like success to a
// script.
func needsMore(cmd *cobra.Command, _ []string) error {
	var names []string
	for _, sub := range cmd.Commands() {
		if sub.IsAvailableCommand() {
			names = append(names, sub.Name())
		}
	}
	return coded(exitUsage, fmt.Errorf("%s: a further word is missing, one of: %s", cmd.Name(), strings.Join(names, ", ")))
}

// A codedError carries the exit code that an error leads to.
type codedError struct {
	code int
	err  error
}

func (e *codedError) Error() string   { return e.err.Error() }
func (e *codedError) Unwrap() []error { return []error{e.err} }

func coded(code int, err error) error {
	if err == nil {
		return nil
	}
	return &codedError{code, err}
}

// lines is an error for a person: one line for each of several errors that were joined, and each of
// these in one line whatever it holds.
func lines(err error) []string {
	if joined, ok := err.(interface{ Unwrap() []error }); ok && err.Error() == errors.Join(joined.Unwrap()...).Error() {
		var all []string
		for _, e := range joined.Unwrap() {
			all = append(all, lines(e)...)
		}
		return all
	}
	return []string{strings.Join(strings.Fields(err.Error()), " ")}
}
