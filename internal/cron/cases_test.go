package cron

import (
	"bufio"
	_ "embed"
	"strconv"
	"strings"
	"testing"
)

// cases are specs with right answers, one in each line: spec, zone, fields, from, expected, note.
// Expected is "error", "never", or the instants that follow from.
//
//go:embed testdata/cases.tsv
var cases string

func TestEveryCaseOfTheTableIsRight(t *testing.T) {
	t.Parallel()
	lines := bufio.NewScanner(strings.NewReader(cases))
	lines.Scan() // the names of the columns
	n := 0
	for ; lines.Scan(); n++ {
		column := strings.Split(lines.Text(), "\t")
		if len(column) != 6 {
			t.Fatalf("%d columns: %q", len(column), lines.Text())
		}
		spec, zone, expected := strings.ReplaceAll(column[0], `\t`, "\t"), column[1], column[4]
		count, err := strconv.Atoi(column[2])
		if err != nil {
			t.Fatal(err)
		}
		if strings.Contains(spec, "TZ=") {
			zone = "" // the prefix is to be what decides
		}
		s, err := parse(spec, zone, count)
		switch expected {
		case "error", "never":
			if err == nil {
				t.Errorf("%q in %s was accepted: %s", spec, zone, column[5])
			}
			if expected == "never" && err != nil && !strings.Contains(err.Error(), "no date ever matches") {
				t.Errorf("%q: %v, and not that it never fires", spec, err)
			}
			continue
		}
		if err != nil {
			t.Errorf("%q in %s: %v", spec, zone, err)
			continue
		}
		after := at(t, column[3])
		for _, want := range strings.Fields(expected) {
			got := s.Next(after)
			if !got.Equal(at(t, want)) {
				t.Errorf("%q in %s after %v: %v, want %s (%s)", spec, zone, after, got, want, column[5])
			}
			after = at(t, want)
		}
	}
	if n < 90 {
		t.Errorf("only %d cases were read", n)
	}
}
