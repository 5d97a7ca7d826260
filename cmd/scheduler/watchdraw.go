package main

import (
	"bytes"
	"fmt"
	"io"
	"strings"
	"text/tabwriter"
	"time"

	"rota/internal/registry"
	"rota/internal/status"
)

// What the terminal is told. Lines are cut at its edge, or one that is too long would move all below it.
const (
	enterScreen = "\x1b[?1049h\x1b[?25l\x1b[?7l"
	leaveScreen = "\x1b[?7h\x1b[?25h\x1b[?1049l"
	home        = "\x1b[H"
	endOfLine   = "\x1b[K"
	restBelow   = "\x1b[J"
)

// toldFor is how long it is told that the server is back.
const toldFor = 10 * time.Second

// A screen redraws a table in place.
type screen struct {
	out    io.Writer
	server string
	rows   func() int
}

func newScreen(out io.Writer, server string, rows func() int) *screen {
	fmt.Fprint(out, enterScreen)
	return &screen{out, server, rows}
}

func (s *screen) end() { fmt.Fprint(s.out, leaveScreen) }

func (s *screen) show(seen sighting, away outage) error {
	lines := append([]string{"Rota at " + s.server + "  " + overview(seen), standing(seen, away), ""}, table(seen, away)...)
	if rows := max(5, s.rows()); len(lines) > rows {
		more := len(lines) - rows + 1
		lines = append(lines[:rows-1], fmt.Sprintf("and %d more, for which there is no room: scheduler watch NAME... shows those alone", more))
	}
	_, err := fmt.Fprint(s.out, home+strings.Join(lines, endOfLine+"\n")+endOfLine+restBelow)
	return err
}

// overview is the counts of all states.
func overview(seen sighting) string {
	if seen.at.IsZero() {
		return ""
	}
	n := map[status.State]int{}
	paused := 0
	for _, j := range seen.Jobs {
		n[j.State]++
		if j.Paused != nil {
			paused++
		}
	}
	words := fmt.Sprintf("%s: %d held, %d free", plural(len(seen.Jobs), "leases"), n[status.Held], n[status.Free])
	if n[status.Never] > 0 {
		words += fmt.Sprintf(", %d never held", n[status.Never])
	}
	if paused > 0 {
		words += fmt.Sprintf(", %d paused", paused)
	}
	return words
}

// standing says as of when the table is, and what has become of those who tell.
func standing(seen sighting, away outage) string {
	asOf := strings.TrimSuffix(fmt.Sprintf(asOfLine, stamp(seen.AsOf)), "\n")
	switch {
	case away.lasts() && seen.at.IsZero():
		return fmt.Sprintf("nothing to show yet: %s", plain(away.why, 300))
	case away.lasts():
		return fmt.Sprintf("STALE: %s, %s old; no answer for %s: %s", asOf, whole(seen.age()), whole(time.Since(away.since)), plain(away.why, 300))
	case seen.Stale:
		return fmt.Sprintf("STALE: %s, %s old: the database does not answer the server", asOf, whole(seen.age()))
	case !away.until.IsZero() && time.Since(away.until) < toldFor:
		return fmt.Sprintf("%s; the server is back, after %s", asOf, whole(away.until.Sub(away.since)))
	}
	return asOf
}

// table is a line for each lease, below a line of heads. Where the server is away, all that moves with
// time is as of when it last answered.
func table(seen sighting, away outage) []string {
	if seen.at.IsZero() {
		return nil
	}
	seen.Stale = seen.Stale || away.lasts()
	now := seen.now()
	var b bytes.Buffer
	w := tabwriter.NewWriter(&b, 0, 0, 2, ' ', 0)
	fmt.Fprintln(w, "JOB\tSTATE\tHOLDER\tEPOCH\tLEFT\tNEXT TICK\tLAST RUN")
	for _, j := range seen.Jobs {
		holder, left := "-", "-"
		if j.State == status.Held {
			holder, left = briefOwner(j.Owner), until(j.ExpiresAt, now, "", "run out")
		}
		fmt.Fprintf(w, "%s\t%s\t%s\t%d\t%s\t%s\t%s\n", plain(j.Name, 80), stateWords(j, now), holder, j.Epoch, left, until(j.NextTick, now, "in ", "due"), lastWords(j.LastRun, now))
	}
	_ = w.Flush() // to memory
	return strings.Split(strings.TrimSuffix(b.String(), "\n"), "\n")
}

// overdueBy is how long a tick may be due until it asks for attention, as on the page.
const overdueBy = 5 * time.Second

// stateWords are the state of a lease, and what is odd about it.
func stateWords(j status.JobJSON, now time.Time) string {
	words := []string{string(j.State)}
	if j.State == status.Never {
		words[0] = "never held"
	}
	for _, odd := range []struct {
		is   bool
		word string
	}{
		{j.Stranded, "nobody can lead it"},
		{j.Disabled, "disabled"},
		{j.Paused != nil, "paused"},
		{j.DueSince != nil && now.Sub(*j.DueSince) > overdueBy, "overdue"},
	} {
		if odd.is {
			words = append(words, odd.word)
		}
	}
	return strings.Join(words, ", ")
}

// briefOwner is an owner's name with the first digits of its UUID, which are enough to tell replicas apart.
func briefOwner(owner string) string {
	if name, id, ok := strings.Cut(owner, "/"); ok && len(id) == 36 {
		return plain(name, 40) + "/" + plain(id[:8], 8)
	}
	return plain(owner, 49)
}

// lastWords are what became of the newest run.
func lastWords(r *status.RunJSON, now time.Time) string {
	switch {
	case r == nil:
		return "-"
	case r.Outcome == nil && r.StartedAt != nil:
		return "running for " + whole(now.Sub(*r.StartedAt))
	case r.Outcome == nil || r.EndedAt == nil:
		return status.Running
	}
	words := fmt.Sprintf("%s %s ago", plain(*r.Outcome, 20), whole(now.Sub(*r.EndedAt)))
	if r.Error != "" {
		words += ": " + plain(firstLine(r.Error), 80)
	}
	return words
}

// until is the time from now to t, or the word for what is past.
func until(t *time.Time, now time.Time, in, past string) string {
	switch {
	case t == nil:
		return "-"
	case !t.After(now):
		return past
	}
	return in + whole(t.Sub(now))
}

// whole is a duration in seconds, never below zero: clocks differ a little.
func whole(d time.Duration) string { return registry.Span(max(0, d).Round(time.Second)) }
