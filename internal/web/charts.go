package web

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"rota/internal/status"
)

// Bars are the chart of a job's last outcomes: a bar up for what went well, as high as it took
// long, a bar down for what did not, and a dot for what did not run.
type bars struct {
	Width, Height int
	Bars          []bar
	Words         string // the whole of it, for those who do not see it
}

// A bar is one outcome.
type bar struct {
	Class      string
	X, Y, W, H float64
	Title      string
	Path       string
}

const (
	stripStep   = 5  // from one bar to the next
	stripRise   = 14 // the highest bar up
	stripFall   = 7  // each bar down
	stripBottom = stripRise + stripFall + 1
)

// outcomeStrip is nil where there are none.
func outcomeStrip(past []status.Outcome) *bars {
	if len(past) == 0 {
		return nil
	}
	longest := time.Millisecond
	for _, o := range past {
		longest = max(longest, o.Took)
	}
	s := &bars{Width: status.Window * stripStep, Height: stripBottom, Words: tally(past)}
	first := status.Window - len(past)
	for i, o := range past {
		m := outcomeMark(o.Outcome)
		b := bar{Class: m.Class, X: float64((first + i) * stripStep), W: stripStep - 1.5, Title: m.Word}
		switch {
		case o.Outcome == "skipped" || o.Outcome == "missed":
			b.Class, b.Y, b.H = "none", stripRise-1, 2
		case m.Class == "bad" || m.Class == "warn":
			b.Y, b.H = stripRise, stripFall
		default:
			b.H = 3 + (stripRise-3)*float64(o.Took)/float64(longest)
			b.Y = stripRise - b.H
		}
		s.Bars = append(s.Bars, b)
	}
	return s
}

// tally says how often each outcome came, and which was the newest.
func tally(past []status.Outcome) string {
	n := map[string]int{}
	var words []string
	for _, o := range past {
		word := outcomeMark(o.Outcome).Word
		if n[word]++; n[word] == 1 {
			words = append(words, word)
		}
	}
	slices.SortStableFunc(words, func(a, b string) int { return n[b] - n[a] })
	for i, word := range words {
		words[i] = fmt.Sprintf("%d %s", n[word], word)
	}
	return fmt.Sprintf("last %d: %s; newest %s", len(past), strings.Join(words, ", "), outcomeMark(past[len(past)-1].Outcome).Word)
}

// A spread is the chart of how long attempts took.
type spread struct {
	Width, Height  int
	Left, Base     float64 // of the axes
	Dots           []bar
	Lines          []line // across, each with its label
	First, Last    *instant
	Typical, Worst string
	Words          string
}

// A line lies across a chart.
type line struct {
	Y     float64
	Label string
	Class string
}

const (
	spreadWidth, spreadHeight = 960, 150
	spreadLeft, spreadTop     = 64, 12
	spreadBase                = spreadHeight - 10
)

// durations is nil where no attempt has ended. Where the longest is far from the typical the scale is
// none of equal steps, but of equal ratios would hide what matters: so it is cut nowhere.
func durations(job string, past []status.Outcome) *spread {
	if len(past) == 0 {
		return nil
	}
	sorted := make([]time.Duration, 0, len(past))
	for _, o := range past {
		sorted = append(sorted, max(o.Took, 0))
	}
	slices.Sort(sorted)
	typical, worst := sorted[len(sorted)/2], sorted[len(sorted)-1]
	top := max(worst, time.Millisecond)
	s := &spread{
		Width: spreadWidth, Height: spreadHeight, Left: spreadLeft, Base: spreadBase,
		First: at(past[0].Tick), Last: at(past[len(past)-1].Tick), Typical: took(typical), Worst: took(worst),
	}
	height := func(d time.Duration) float64 {
		return spreadBase - (spreadBase-spreadTop)*float64(d)/float64(top)
	}
	step := float64(spreadWidth-spreadLeft-8) / float64(max(len(past), 24))
	for i, o := range past {
		m := outcomeMark(o.Outcome)
		y := height(max(o.Took, 0))
		s.Dots = append(s.Dots, bar{
			Class: m.Class, X: spreadLeft + 4 + step*float64(i), Y: min(y, spreadBase-2), W: max(2, min(step-1.5, 14)), H: spreadBase - min(y, spreadBase-2),
			Title: fmt.Sprintf("%s: %s, %s", full(o.Tick), m.Word, took(o.Took)), Path: runPath(job, o.ID),
		})
	}
	s.Lines = []line{{height(top), took(worst), "edge"}}
	if y := height(typical); y-height(top) > 16 && spreadBase-y > 12 {
		s.Lines = append(s.Lines, line{y, took(typical), "typical"})
	}
	s.Words = fmt.Sprintf("durations of the last %d attempts: median %s, longest %s; %s", len(past), took(typical), took(worst), tally(past))
	return s
}

// A timeline is the chart of who led a lease when.
type timeline struct {
	Width, Height int
	Spans         []bar
	From, To      *instant
	Words         string
}

const timelineWidth, timelineHeight = 960, 26

// reigns is the timeline of one lease's terms, the newest first, as of a moment; nil where there are none.
func reigns(terms []status.Reign, current *status.Lease, asOf time.Time) *timeline {
	if len(terms) == 0 {
		return nil
	}
	from := terms[len(terms)-1].AcquiredAt
	whole := asOf.Sub(from)
	if whole <= 0 {
		return nil
	}
	place := func(t time.Time) float64 { return timelineWidth * float64(t.Sub(from)) / float64(whole) }
	shades := map[string]int{}
	t := &timeline{Width: timelineWidth, Height: timelineHeight, From: at(from), To: at(asOf)}
	for _, term := range slices.Backward(terms) {
		end := endOf(term, current, asOf)
		shade, known := shades[term.Owner]
		if !known {
			shade = len(shades) % 6
			shades[term.Owner] = shade
		}
		host, _ := parts(term.Owner)
		x := place(term.AcquiredAt)
		t.Spans = append(t.Spans, bar{
			Class: fmt.Sprintf("owner%d", shade), X: x, Y: 2, W: max(1.5, place(end)-x-1), H: timelineHeight - 4,
			Title: fmt.Sprintf("epoch %d, %s, for %s", term.Epoch, host, duration(end.Sub(term.AcquiredAt))),
		})
	}
	t.Words = fmt.Sprintf("%s by %s since %s", plural(len(terms), "terms"), plural(len(shades), "owners"), full(from))
	return t
}

// endOf is when a term ended, or, of one that history has no end of, until when it can have led.
func endOf(term status.Reign, current *status.Lease, asOf time.Time) time.Time {
	end := term.EndedAt
	if end.IsZero() {
		end = asOf
		if current != nil && current.Epoch == term.Epoch && current.State != status.Held && !current.ExpiresAt.IsZero() {
			end = current.ExpiresAt
		}
	}
	if end.After(asOf) {
		end = asOf
	}
	if end.Before(term.AcquiredAt) {
		end = term.AcquiredAt
	}
	return end
}
