// Command bench measures Rota beside what it is compared with, in one run on one machine, each kind
// of work on a private PostgreSQL with durable commits, and prints each figure with its bar. It
// judges nothing: a shared machine is noisy, so read the ratios, and run it when the machine is quiet.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"regexp"
	"strings"
)

// A measurement is one kind of work and its comparison.
type measurement struct {
	name string
	run  func(ctx context.Context, w *world) ([]row, error)
}

var measurements = []measurement{
	{"handover", handover},
	{"takeover", takeover},
	{"kill", kills},
	{"spread", spreads},
	{"heartbeat", heartbeats},
	{"crowd", crowds},
	{"fence", fences},
	{"ticks", ticks},
	{"ticks-records", records},
}

func main() {
	only := flag.String("run", "", "measure only what matches this regular expression: "+names())
	short := flag.Bool("short", false, "a tenth of the work, to see that it runs")
	asJSON := flag.Bool("json", false, "print JSON in place of the table")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	write := printTable
	if *asJSON {
		write = printJSON
	}
	rows, err := measure(ctx, *only, *short)
	if err := errors.Join(err, write(os.Stdout, rows)); err != nil {
		fmt.Fprintln(os.Stderr, "bench:", err)
		os.Exit(1)
	}
}

// measure makes all measurements that match. One that fails does not take the others' rows with it.
func measure(ctx context.Context, only string, short bool) (rows []row, err error) {
	match, err := regexp.Compile(only)
	if err != nil {
		return nil, fmt.Errorf("-run: %w", err)
	}
	var failures []error
	matched := false
	for _, m := range measurements {
		if ctx.Err() != nil || !match.MatchString(m.name) {
			continue
		}
		matched = true
		fmt.Fprintln(os.Stderr, "measuring", m.name)
		more, err := inWorld(ctx, short, m.run)
		if err != nil {
			failures = append(failures, fmt.Errorf("%s: %w", m.name, err))
		}
		rows = append(rows, more...)
	}
	if !matched && ctx.Err() == nil {
		return nil, fmt.Errorf("-run %q matches none of %s", only, names())
	}
	return rows, errors.Join(failures...)
}

func names() string {
	all := make([]string, len(measurements))
	for i, m := range measurements {
		all[i] = m.name
	}
	return strings.Join(all, ", ")
}
