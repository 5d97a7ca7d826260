package main

import (
	"strings"
	"testing"

	"rota/internal/pgtest"
)

// P10: what waits is seen, in the lists and at its job, until it is taken back.
func TestWaitingRequestsAreSeenAndWithdrawn(t *testing.T) {
	t.Parallel()
	url := pgtest.URL(t)
	db := lookAt(t, url)
	db.execute(`INSERT INTO requests (kind, job, lease, args, reason, asked_by, done_at, result) VALUES
		('run', 'bridge_health', 'bridge_health', '{"Limit": 3}', E'a late\x1b file', 'ana', NULL, NULL),
		('run', 'bridge_health', 'bridge_health', NULL, '', 'ana', now(), 'run 1 has begun'),
		('run', 'symbol_sync', 'symbol_sync', NULL, '', 'bo', NULL, NULL)`)
	lines := strings.Split(told(t, url, "requests", "list"), "\n")
	for i, want := range []string{"REQUEST WHAT ON", `1 run bridge_health {"Limit": 3} ana `, "3 run symbol_sync - bo ", "as of "} {
		if got := strings.Join(strings.Fields(lines[i]), " "); !strings.HasPrefix(got, want) || i == 1 && !strings.HasSuffix(got, " a late? file") {
			t.Errorf("line %d: %s", i, got)
		}
	}
	if page := told(t, url, "jobs", "show", "bridge_health"); !strings.Contains(page, "request 1 by ana, since ") || strings.Count(page, "waiting") != 1 {
		t.Errorf("jobs show:\n%s", page)
	}
	var list struct{ Requests []struct{ ID int64 } }
	answered(t, url, &list, "requests", "list")
	if len(list.Requests) != 2 || list.Requests[0].ID != 1 {
		t.Errorf("%+v", list)
	}
	if got := told(t, url, "requests", "withdraw", "1", "--by", "bo", "--reason", "it came"); got != "request 1: withdrawn by bo: it came\n" {
		t.Errorf("%q", got)
	}
	var shown struct{ Waiting []struct{ ID int64 } }
	answered(t, url, &shown, "jobs", "show", "bridge_health")
	if len(shown.Waiting) != 0 || shown.Waiting == nil {
		t.Errorf("%+v", shown)
	}
	if _, stderr, code := runHere(t, []string{"DATABASE_URL=" + url}, "requests", "withdraw", "1", "--reason", "again"); code != exitFailed || len(complaints(stderr)) != 1 || !strings.Contains(stderr, "settled already") {
		t.Errorf("exit code %d: %s", code, stderr)
	}
	var w struct {
		Request int64
		Result  string
	}
	answered(t, url, &w, "requests", "withdraw", "3", "--by", "bo", "--reason", "x")
	if w.Request != 3 || w.Result != "withdrawn by bo: x" {
		t.Errorf("%+v", w)
	}
}
