package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"path"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"golang.org/x/sys/unix"

	"rota/internal/registry"
	"rota/internal/status"
)

const shortestInterval = 200 * time.Millisecond

// A watching is what the command is told.
type watching struct {
	url, listen, token, user string
	every                    time.Duration
	asJSON, dumb             bool     // dumb: the terminal cannot redraw
	jobs                     []string // names or patterns; none: all
}

func watchCommand(env []string) *cobra.Command {
	cfg := Defaults()
	term, _ := lookup(env, "TERM")
	w := watching{every: 2 * time.Second, dumb: term == "dumb"}
	cmd := &cobra.Command{
		Use: "watch [JOB...]", Short: "Watch who leads the jobs, until Ctrl-C: a live table, from a replica's API",
		Long: `Watch shows all jobs, or those whose names or patterns it is given: holder, epoch, what is left of the
lease, state, next tick and last run, as a replica's API tells them. It needs no database, and may run
on another machine.

On a terminal it redraws a table in place. Elsewhere it prints a line for each change, and with --json
a line of JSON for each snapshot that differs. A server that goes away is asked again until it is back.`,
		Example: `  scheduler watch
  scheduler watch 'sync-*' reconciliation
  ROTA_TOKEN=... scheduler watch --url https://ops.example.com/ops/rota/
  scheduler watch --json | jq '.jobs[] | select(.state != "held") | .name'`,
		ValidArgsFunction: completeJobs,
		RunE: func(cmd *cobra.Command, args []string) error {
			w.listen, w.jobs = cfg.Listen, args
			return w.run(cmd.Context(), cmd.OutOrStdout(), cmd.ErrOrStderr())
		},
	}
	cmd.Flags().StringVar(&w.url, "url", "", "`URL` of the page, with the path that a proxy has it under; if none is given, that of the replica here that listens as --listen says")
	listenFlag(cmd.Flags(), &cfg)
	cmd.Flags().StringVar(&w.token, "token", "", "`token`, where the server has --auth token; ROTA_TOKEN keeps it out of the list of processes")
	cmd.Flags().StringVar(&w.user, "user", "", "`name:password`, where it has --auth basic; ROTA_USER keeps it out of the list of processes")
	cmd.Flags().DurationVar(&w.every, "interval", w.every, "time between questions")
	jsonFlag(cmd, &w.asJSON)
	return cmd
}

func (w watching) run(ctx context.Context, stdout, stderr io.Writer) error {
	for _, p := range w.jobs {
		if _, err := path.Match(p, ""); err != nil {
			return coded(exitUsage, fmt.Errorf("job %q: it must be a job's name, or a pattern such as sync-*", p))
		}
	}
	if w.every < shortestInterval {
		return coded(exitUsage, fmt.Errorf("interval %s: it must be at least %s", registry.Span(w.every), registry.Span(shortestInterval)))
	}
	if w.url == "" {
		here, err := addressHere(w.listen)
		if err != nil {
			return coded(exitUsage, err)
		}
		w.url = here
	}
	ask, err := newAsker(w.url, w.token, w.user)
	if err != nil {
		return coded(exitUsage, err)
	}
	v := w.view(ask.name(), stdout, stderr)
	defer v.end()
	return w.follow(ctx, ask, v)
}

// A view shows what is seen of the jobs.
type view interface {
	show(seen sighting, away outage) error // that nobody sees it any more
	end()
}

func (w watching) view(server string, stdout, stderr io.Writer) view {
	if w.asJSON {
		return &jsonLines{out: stdout, news: news{to: stderr, server: server}}
	}
	if f := file(stdout); f != nil && !w.dumb {
		rows := func() int {
			size, err := unix.IoctlGetWinsize(int(f.Fd()), unix.TIOCGWINSZ)
			if err != nil {
				return 0
			}
			return int(size.Row)
		}
		if rows() > 0 {
			return newScreen(stdout, server, rows)
		}
	}
	return &changes{out: stdout, news: news{to: stderr, server: server}}
}

// An outage is a time in which the server did not answer. The zero value is none.
type outage struct {
	since, until time.Time // until is zero while it lasts
	why          string
}

func (o outage) lasts() bool { return !o.since.IsZero() && o.until.IsZero() }

// follow asks until ctx ends, which is no error, or until asking again cannot help.
func (w watching) follow(ctx context.Context, ask *asker, v view) error {
	var seen sighting
	var away outage
	tick := time.NewTicker(w.every)
	defer tick.Stop()
	for {
		now, err := ask.jobs(ctx)
		var final *finalError
		switch {
		case ctx.Err() != nil:
			return nil
		case errors.As(err, &final):
			return err
		case err != nil && !away.lasts():
			away = outage{since: time.Now(), why: err.Error()}
		case err != nil:
			away.why = err.Error()
		default:
			if away.lasts() {
				away.until = time.Now()
			}
			first := seen.at.IsZero()
			if seen, err = w.chosen(now); first && err != nil {
				return coded(exitUsage, err)
			}
		}
		if err := v.show(seen, away); err != nil {
			return err
		}
		select {
		case <-ctx.Done():
			return nil
		case <-tick.C:
		}
	}
}

// chosen leaves out the jobs that were not asked for. The error is that of a pattern that matches none.
func (w watching) chosen(s sighting) (sighting, error) {
	if len(w.jobs) == 0 {
		return s, nil
	}
	found := map[string]bool{}
	var jobs []status.JobJSON
	for _, j := range s.Jobs {
		taken := false
		for _, p := range w.jobs {
			if ok, _ := path.Match(p, j.Job); ok || p == j.Name {
				taken, found[p] = true, true
			}
		}
		if taken {
			jobs = append(jobs, j)
		}
	}
	var errs []error
	for _, p := range w.jobs {
		if !found[p] {
			errs = append(errs, fmt.Errorf("job %q: the server has none like that; it has: %s", p, someNames(s.Jobs)))
		}
	}
	s.Jobs = jobs
	return s, errors.Join(errs...)
}

// someNames are the names of the first jobs.
func someNames(jobs []status.JobJSON) string {
	const most = 20
	var names []string
	for _, j := range jobs {
		if len(names) > 0 && names[len(names)-1] == plain(j.Job, 63) {
			continue
		}
		if len(names) == most {
			return strings.Join(names, ", ") + " and more"
		}
		names = append(names, plain(j.Job, 63))
	}
	if len(names) == 0 {
		return "no jobs"
	}
	return strings.Join(names, ", ")
}
