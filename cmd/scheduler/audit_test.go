package main

import (
	"slices"
	"strings"
	"testing"

	"rota/internal/pgtest"
)

// P10: the audit tells who ordered what, why, and what came of it, newest first.
func TestTheAuditIsListed(t *testing.T) {
	t.Parallel()
	url := pgtest.URL(t)
	db := lookAt(t, url)
	db.execute(`INSERT INTO audit (at, actor, via, action, job, lease, replica, run_id, request_id, reason, detail) VALUES
		('2026-01-01 10:00Z', 'ana', 'cli', 'run', 'bridge_health', 'bridge_health', NULL, NULL, 7, E'a late\x1b file', '{"args": {"Limit": 3}, "key": "k"}'),
		('2026-01-01 10:01Z', 'a/1', 'replica', 'run', 'bridge_health', 'bridge_health', NULL, NULL, 7, '', '{"result": "run 2: success"}'),
		('2026-01-01 10:02Z', 'bo', 'page', 'pause', '*', NULL, NULL, NULL, NULL, 'maintenance', NULL),
		('2026-01-01 10:03Z', 'bo', 'cli', 'revoke', 'gone_job', 'gone_job', 'a/1', 4, NULL, 'hangs', '{"new_epoch": 9}')`)
	lines := strings.Split(told(t, url, "audit", "list"), "\n")
	for i, want := range []string{
		"WHEN WHO VIA WHAT ON WHY RESULT",
		"2026-01-01 10:03:00Z bo cli revoke gone_job, a/1, run 4 hangs epoch 9",
		"2026-01-01 10:02:00Z bo page pause all jobs maintenance -",
		"2026-01-01 10:01:00Z a/1 replica run bridge_health, request 7 - run 2: success",
		`2026-01-01 10:00:00Z ana cli run args={"Limit": 3} key=k bridge_health, request 7 a late? file -`,
	} {
		if got := strings.Join(strings.Fields(lines[i]), " "); got != want {
			t.Errorf("line %d: %s\nwant    %s", i, got, want)
		}
	}
	for args, want := range map[string][]int64{
		"": {4, 3, 2, 1}, "--job bridge_health": {2, 1}, "--by bo": {4, 3}, "--job gone_job --by bo": {4}, "--job *": {3}, "--limit 2 --before 4": {3, 2},
	} {
		var page struct{ Audit []struct{ ID int64 } }
		answered(t, url, &page, append([]string{"audit", "list"}, strings.Fields(args)...)...)
		ids := []int64{}
		for _, l := range page.Audit {
			ids = append(ids, l.ID)
		}
		if !slices.Equal(ids, want) {
			t.Errorf("audit list %s: %v, want %v", args, ids, want)
		}
	}
	if _, stderr, code := runHere(t, []string{"DATABASE_URL=" + url}, "audit", "list", "--limit", "5000"); code != exitUsage || len(complaints(stderr)) != 1 {
		t.Errorf("exit code %d: %s", code, stderr)
	}
}

func TestAListOfAnUnknownJobSaysThatThereIsNone(t *testing.T) {
	t.Parallel()
	url := pgtest.URL(t)
	lookAt(t, url).execute(`INSERT INTO audit (actor, via, action, job) VALUES ('bo', 'cli', 'pause', 'another_version')`)
	for _, list := range []string{"runs", "audit"} {
		for job, want := range map[string]string{
			"bridge_helth": "scheduler: there is no job \"bridge_helth\", in this binary or in the database\n", "bridge_health": "", "another_version": "",
		} {
			for _, form := range [][]string{nil, {"--json"}} {
				stdout, stderr, code := runHere(t, []string{"DATABASE_URL=" + url}, append([]string{list, "list", "--job", job}, form...)...)
				if (code == exitUsage) != (want != "") || stderr != want || (stdout == "") != (want != "") {
					t.Errorf("%s list --job %s %v: exit code %d, stderr %q, want %q", list, job, form, code, stderr, want)
				}
			}
		}
	}
}
