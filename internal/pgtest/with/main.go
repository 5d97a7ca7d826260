// Command with runs a command with a Postgres server for tests, and ends with
// the command's exit status:
//
//	go run ./internal/pgtest/with go test ./...
package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"syscall"

	"rota/internal/devdb"
	"rota/internal/pgtest"
)

func main() { os.Exit(run(os.Args[1:])) }

func run(args []string) int {
	if len(args) == 0 {
		fmt.Fprintln(os.Stderr, "usage: with COMMAND [ARGUMENT...]")
		return 2
	}
	// Ctrl-C reaches the command by itself, from the terminal; we only have to
	// outlive it. SIGTERM is for us alone and is passed on.
	signals := make(chan os.Signal, 8)
	signal.Notify(signals, os.Interrupt, syscall.SIGTERM)
	defer signal.Stop(signals)

	cluster, err := devdb.Start(context.Background(), devdb.Config{Settings: pgtest.FastSettings()})
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	defer func() {
		if err := cluster.Stop(); err != nil {
			fmt.Fprintln(os.Stderr, err)
		}
	}()
	return command(args, cluster.URL("postgres"), signals)
}

func command(args []string, url string, signals <-chan os.Signal) int {
	cmd := exec.Command(args[0], args[1:]...)
	cmd.Env = append(os.Environ(), pgtest.Env+"="+url)
	cmd.Stdin, cmd.Stdout, cmd.Stderr = os.Stdin, os.Stdout, os.Stderr
	if err := cmd.Start(); err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	done := make(chan error, 1)
	go func() { done <- cmd.Wait() }()
	for {
		select {
		case sig := <-signals:
			if sig != os.Interrupt {
				_ = cmd.Process.Signal(sig)
			}
		case err := <-done:
			return status(err)
		}
	}
}

func status(err error) int {
	var exit *exec.ExitError
	switch {
	case err == nil:
		return 0
	case errors.As(err, &exit) && exit.Exited():
		return exit.ExitCode()
	default:
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
}
