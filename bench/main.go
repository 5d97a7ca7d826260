// Command bench measures Rota beside what it is compared with, in one run on one private
// PostgreSQL with durable commits, and prints each figure with its bar. It judges nothing: a shared
// machine is noisy, so read the ratios, and run it when the machine is quiet.
package main

import (
	"context"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"regexp"
	"strings"
	"text/tabwriter"
)

// A measurement is one kind of work and its comparison.
type measurement struct {
	name string
	run  func(ctx context.Context, w *world) ([]row, error)
}

// A row is one line of the table.
type row struct{ work, figure, against, ratio, bar string }

var measurements = []measurement{
	{"handover", handover},
	{"fence", fencedUpsert},
	{"heartbeat", heartbeats},
}

func main() {
	only := flag.String("run", "", "measure only what matches this regular expression: handover, fence, heartbeat")
	short := flag.Bool("short", false, "a tenth of the work, to see that it runs")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	if err := run(ctx, *only, *short); err != nil {
		fmt.Fprintln(os.Stderr, "bench:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context, only string, short bool) error {
	match, err := regexp.Compile(only)
	if err != nil {
		return fmt.Errorf("-run: %w", err)
	}
	table := tabwriter.NewWriter(os.Stdout, 0, 0, 2, ' ', 0)
	fmt.Fprintln(table, "work\tfigure\tagainst\tratio\tbar")
	for _, m := range measurements {
		if !match.MatchString(m.name) {
			continue
		}
		fmt.Fprintln(os.Stderr, "measuring", m.name)
		rows, err := inWorld(ctx, short, m.run)
		if err != nil {
			return fmt.Errorf("%s: %w", m.name, err)
		}
		for _, r := range rows {
			fmt.Fprintln(table, strings.Join([]string{r.work, r.figure, r.against, r.ratio, r.bar}, "\t"))
		}
	}
	return table.Flush()
}
