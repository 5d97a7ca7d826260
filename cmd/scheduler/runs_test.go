package main

import (
	"strings"
	"testing"
)

// P10: a run is said to have been asked for where it was, and that more attempts may come only while
// they may.
func TestRunsTellWhatTheyWereForAndWhetherMoreMayCome(t *testing.T) {
	t.Parallel()
	url := historyOf(t)
	db := lookAt(t, url)
	db.execute(`UPDATE requests SET reason = ''`)
	db.execute(`INSERT INTO runs (lease, job, tick, attempt, epoch, owner, ended_at, outcome, error, again) VALUES
		('other', 'other', '2026-01-01 11:02Z', 1, 7, 'a/1', now(), 'lost', 'x', false), ('other', 'other', '2026-01-01 11:02Z', 2, 8, 'a/1', now(), 'lost', 'x', true)`)
	triggers := map[string]string{}
	for line := range strings.Lines(told(t, url, "runs", "list")) {
		if f := strings.Fields(line); len(f) > 5 {
			triggers[f[0]] = strings.Join(f[4:6], " ")
		}
	}
	if triggers["RUN"] != "OUTCOME ATTEMPT" || triggers["2"] != "request 1" || triggers["1"] != "schedule failed" {
		t.Errorf("%q", triggers)
	}
	db.execute(`UPDATE runs SET lease = 'other.2of3' WHERE job = 'other'`)
	for _, args := range [][]string{{"list", "--job", "other"}, {"show", "4"}} {
		if page := told(t, url, append([]string{"runs"}, args...)...); !strings.Contains(page, "other.2of3") {
			t.Errorf("runs %v does not say whose shard it was:\n%s", args, page)
		}
	}
	db.execute(`UPDATE runs SET lease = 'other' WHERE job = 'other'`)
	for run, want := range map[string]string{
		"1": "1 of 1", "2": "1 of 1", "4": "1 of 1 so far", "5": "1 of 2 so far", "6": "2 of 2 so far",
	} {
		page := told(t, url, "runs", "show", run)
		got := ""
		for line := range strings.Lines(page) {
			if name, rest, _ := strings.Cut(line, " "); name == "attempt" {
				got = strings.TrimSpace(rest)
			}
			if strings.HasSuffix(strings.TrimSpace(line), "-") && strings.Contains(line, ": -") {
				t.Errorf("a colon with nothing behind it: %s", line)
			}
		}
		if got != want {
			t.Errorf("run %s is attempt %q, want %q:\n%s", run, got, want, page)
		}
	}
}
