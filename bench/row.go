package main

import (
	"encoding/json"
	"fmt"
	"io"
	"text/tabwriter"
	"time"
)

// A row is one line of the table: a figure of ours beside that of something else in the same run.
type row struct {
	Work    string  `json:"work"`
	Figure  string  `json:"figure"`
	Against string  `json:"against,omitempty"`
	Ratio   float64 `json:"ratio,omitempty"` // our figure over the other; 0: there is no other
	Bar     string  `json:"bar,omitempty"`
	Met     *bool   `json:"met,omitempty"`
}

// barred is the row with its bar, and whether it was met.
func (r row) barred(bar string, met bool) row {
	r.Bar, r.Met = bar, &met
	return r
}

// atMost is the row with a bar for its ratio.
func (r row) atMost(ratio float64) row {
	return r.barred(fmt.Sprintf("at most %gx", ratio), r.Ratio <= ratio)
}

func printTable(to io.Writer, rows []row) error {
	table := tabwriter.NewWriter(to, 0, 0, 2, ' ', 0)
	fmt.Fprintln(table, "work\tfigure\tagainst\tratio\tbar\tmet")
	for _, r := range rows {
		fmt.Fprintf(table, "%s\t%s\t%s\t%s\t%s\t%s\n", r.Work, r.Figure, r.Against, times(r.Ratio), r.Bar, yesOrNo(r.Met))
	}
	return table.Flush()
}

func printJSON(to io.Writer, rows []row) error {
	e := json.NewEncoder(to)
	e.SetIndent("", "  ")
	return e.Encode(rows)
}

// times tells small ratios the other way round, for nobody pictures 0.004x.
func times(ratio float64) string {
	switch {
	case ratio == 0:
		return ""
	case ratio < 0.2:
		return fmt.Sprintf("1/%.0f", 1/ratio)
	}
	return fmt.Sprintf("%.2fx", ratio)
}

func yesOrNo(met *bool) string {
	switch {
	case met == nil:
		return ""
	case *met:
		return "yes"
	}
	return "no"
}

func ms(d time.Duration) string { return fmt.Sprintf("%.2f ms", float64(d.Microseconds())/1000) }

func us(d time.Duration) string { return fmt.Sprintf("%.1f µs", float64(d.Nanoseconds())/1000) }

func over(a, b time.Duration) float64 { return float64(a) / float64(max(1, b)) }
