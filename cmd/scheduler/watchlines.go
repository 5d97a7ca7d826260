package main

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"strings"

	"rota/internal/status"
)

// A news tells in one line each that the server goes away and comes back, and that what it tells
// becomes stale and current.
type news struct {
	to          io.Writer
	server      string
	away, stale bool
}

func (n *news) tell(seen sighting, away outage) {
	if gone := away.lasts(); gone != n.away {
		n.away = gone
		if gone {
			fmt.Fprintf(n.to, "%s: no answer: %s; it is asked again\n", n.server, plain(away.why, 300))
		} else {
			fmt.Fprintf(n.to, "%s: it answers again, after %s\n", n.server, whole(away.until.Sub(away.since)))
		}
	}
	if seen.Stale != n.stale {
		n.stale = seen.Stale
		if n.stale {
			fmt.Fprintf(n.to, "%s: the database does not answer it; what it tells is as of %s, %s old\n", n.server, stamp(seen.AsOf), whole(seen.age()))
		} else {
			fmt.Fprintf(n.to, "%s: the database answers it again\n", n.server)
		}
	}
}

// A changes prints a line for each lease of which something changes.
type changes struct {
	news
	out   io.Writer
	known map[string]string // what was last printed, by lease
}

func (c *changes) end() {}

func (c *changes) show(seen sighting, away outage) error {
	c.tell(seen, away)
	if away.lasts() {
		return nil
	}
	var said strings.Builder
	now := make(map[string]string, len(seen.Jobs))
	for _, j := range seen.Jobs {
		words := changeWords(j, seen)
		if now[j.Name] = words; c.known[j.Name] != words {
			fmt.Fprintf(&said, "%s  %s  %s\n", stamp(seen.AsOf), plain(j.Name, 80), words)
		}
		delete(c.known, j.Name)
	}
	for name := range c.known {
		fmt.Fprintf(&said, "%s  %s  no longer there\n", stamp(seen.AsOf), plain(name, 80))
	}
	c.known = now
	if said.Len() == 0 {
		return nil
	}
	_, err := io.WriteString(c.out, said.String())
	return err
}

// changeWords are what differs only where something has happened, and not as time goes by.
func changeWords(j status.JobJSON, seen sighting) string {
	words := stateWords(j, seen.AsOf)
	switch {
	case j.State == status.Held:
		words += fmt.Sprintf("  by %s, epoch %d", plain(j.Owner, 120), j.Epoch)
	case j.Epoch > 0:
		words += fmt.Sprintf("  after epoch %d", j.Epoch)
	}
	if r := j.LastRun; r != nil {
		outcome := status.Running
		if r.Outcome != nil {
			outcome = plain(*r.Outcome, 20)
		}
		words += fmt.Sprintf("  run %d %s", r.ID, outcome)
		if r.Error != "" {
			words += ": " + plain(firstLine(r.Error), 80)
		}
	}
	return words
}

// A jsonLines prints a line of JSON for each snapshot that differs from the one before.
type jsonLines struct {
	news
	out  io.Writer
	last []byte
}

func (l *jsonLines) end() {}

func (l *jsonLines) show(seen sighting, away outage) error {
	l.tell(seen, away)
	if away.lasts() || seen.at.IsZero() {
		return nil
	}
	if seen.Jobs == nil {
		seen.Jobs = []status.JobJSON{}
	}
	jobs, err := json.Marshal(struct {
		Stale bool
		Jobs  []status.JobJSON
	}{seen.Stale, seen.Jobs})
	if err != nil || bytes.Equal(jobs, l.last) {
		return nil // it came as JSON
	}
	l.last = jobs
	return json.NewEncoder(l.out).Encode(seen)
}
