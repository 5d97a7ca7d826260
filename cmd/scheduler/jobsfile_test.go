package main

import (
	"encoding/json"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"rota/internal/pgtest"
	"rota/internal/registry"
)

func jobsFile(t *testing.T, text string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "jobs.yaml")
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

func TestCommandsHonourTheJobsFile(t *testing.T) {
	t.Parallel()
	path := jobsFile(t, "bridge_health: {schedule: '0 8 * * *', zone: Asia/Tokyo}\nquote_watch: {enabled: false}\n")
	for _, how := range []struct {
		env, args []string
	}{
		{nil, []string{"--jobs-file", path}},
		{[]string{"ROTA_JOBS_FILE=" + path}, nil},
	} {
		for _, command := range []string{"check", "jobs list"} {
			out, talk, code := runHere(t, how.env, append(append(strings.Fields(command), "--json"), how.args...)...)
			var list struct{ Jobs []jobRow }
			if err := json.Unmarshal([]byte(out), &list); err != nil || code != exitOK {
				t.Fatalf("%s: exit code %d, %v\n%s", command, code, err, talk)
			}
			rows := map[string]jobRow{}
			for _, r := range list.Jobs {
				rows[r.Name] = r
			}
			changed, off, kept := rows["bridge_health"], rows["quote_watch"], rows["symbol_sync"]
			if changed.Schedule != "cron 0 8 * * * Asia/Tokyo" || !strings.HasSuffix(changed.Source, ", changed by "+path+":1") {
				t.Errorf("%s: bridge_health is %+v", command, changed)
			}
			if off.Enabled || !kept.Enabled || strings.Contains(kept.Source, path) {
				t.Errorf("%s: quote_watch is %+v, and symbol_sync %+v", command, off, kept)
			}
		}
	}
	out, _, code := runHere(t, nil, "jobs", "next", "bridge_health", "-n", "1", "--jobs-file", path)
	if code != exitOK || !strings.HasSuffix(out, "T23:00:00Z\n") {
		t.Errorf("exit code %d, next is %q", code, out)
	}
	out, _, _ = runHere(t, nil, "jobs", "list", "--jobs-file", path)
	if !slices.ContainsFunc(strings.Split(out, "\n"), func(line string) bool {
		return strings.HasPrefix(line, "quote_watch") && strings.HasSuffix(line, "disabled")
	}) {
		t.Errorf("the list does not say that quote_watch is disabled:\n%s", out)
	}
	out, talk, code := runHere(t, nil, "jobs", "next", "quote_watch", "--jobs-file", path)
	if code != exitOK || out != "" || !strings.Contains(talk, "disabled by "+path) {
		t.Errorf("exit code %d, %q, %q", code, out, talk)
	}
}

func TestWrongJobsFileIsRefusedWithTheSettings(t *testing.T) {
	t.Parallel()
	path := jobsFile(t, "bridge_helth: {}\nsymbol_sync:\n  args: {Max: 1}\n")
	_, talk, code := runHere(t, []string{somewhere}, "serve", "--grace", "0", "--jobs-file", path)
	for _, want := range []string{"grace 0s", path + ":1: ", path + ":3: "} {
		if !strings.Contains(talk, want) {
			t.Errorf("it does not say %q:\n%s", want, talk)
		}
	}
	if code != exitUsage || len(complaints(talk)) != 3 {
		t.Errorf("exit code %d, want %d; stderr, want three lines:\n%s", code, exitUsage, talk)
	}
	for _, command := range []string{"check", "jobs list", "jobs next symbol_sync"} {
		for file, want := range map[string]string{path + ".gone": "no such file", "/dev/zero": "it is larger than 1024 kB"} {
			_, talk, code := runHere(t, nil, append(strings.Fields(command), "--jobs-file", file)...)
			if code != exitUsage || len(complaints(talk)) != 1 || !strings.Contains(talk, file+": it cannot be read: "+want) {
				t.Errorf("%s: exit code %d, %q", command, code, talk)
			}
		}
	}
}

func TestDisabledJobIsNotCompetedFor(t *testing.T) {
	t.Parallel()
	url := pgtest.URL(t)
	path := jobsFile(t, "quote_watch: {enabled: false}\nsymbol_sync: {schedule: every 1h}\n")
	p := launch(t, url, "", "--jobs-file", path).serving()
	db := lookAt(t, url)
	for _, name := range []string{"bridge_health", "reconciliation", "symbol_sync.1of2", "symbol_sync.2of2"} {
		db.ledBy(name, p)
	}
	if n := db.number(`SELECT count(*) FROM leadership WHERE job_name = 'quote_watch'`); n != 0 {
		t.Error("the disabled job has a lease")
	}
	eventually(t, 10*time.Second, "progress has the schedule of the file", func() bool {
		return db.number(`SELECT count(*) FROM progress WHERE lease LIKE 'symbol_sync._of2' AND schedule = 'every 1h'`) == 2
	})
}

// P10: a command that knows only the compiled-in schedule says where the replicas use another.
func TestScheduleThatAReplicasFileChangesIsToldOf(t *testing.T) {
	t.Parallel()
	url := pgtest.URL(t)
	db := lookAt(t, url)
	db.execute(`INSERT INTO progress (lease, last_tick, schedule) VALUES ('symbol_sync.1of2', now(), 'every 4s'), ('bridge_health', now(), 'every 3s')`)
	path := jobsFile(t, "symbol_sync: {schedule: every 4s}\n")
	for _, command := range []string{"jobs list", "jobs next symbol_sync", "jobs next symbol_sync --last", "jobs show symbol_sync"} {
		for _, file := range [][]string{nil, {"--jobs-file", path}} {
			args := append(strings.Fields(command), file...)
			out, talk, code := runHere(t, []string{"DATABASE_URL=" + url}, args...)
			if said := strings.Count(out+talk, "replicas use every 4s: a jobs file changes it"); code != exitOK || said != 1-len(file)/2 || strings.Count(out+talk, "replicas use") != said {
				t.Errorf("%v: exit code %d, it is said %d times:\n%s%s", args, code, said, out, talk)
			}
			out, talk, code = runHere(t, []string{"DATABASE_URL=" + url}, append(args, "--json")...)
			if said := strings.Count(out, `"replicas_schedule": "every 4s"`); code != exitOK || talk != "" || said != 1-len(file)/2 {
				t.Errorf("%v --json: exit code %d, it is said %d times:\n%s%s", args, code, said, out, talk)
			}
		}
	}
	for _, command := range []string{"jobs list", "jobs next symbol_sync"} {
		if out, talk, code := runHere(t, []string{somewhere}, strings.Fields(command)...); code != exitOK || out == "" || talk != "" {
			t.Errorf("%s, with a database that does not answer: exit code %d\n%s%s", command, code, out, talk)
		}
	}
}

func TestScheduleThatCanHardlyBeMeantIsWarnedOf(t *testing.T) {
	t.Parallel()
	path := jobsFile(t, "symbol_sync: {schedule: '*/90 * * * *'}\n")
	_, talk, code := runHere(t, nil, "check", "--jobs-file", path)
	if code != exitOK || !strings.Contains(talk, `warning: job "symbol_sync"`) || !strings.Contains(talk, "90") || strings.Count(talk, "warning") != 1 {
		t.Errorf("exit code %d, %q", code, talk)
	}
	out, _, _ := runHere(t, nil, "jobs", "list", "--json", "--jobs-file", path)
	var list struct{ Jobs []jobRow }
	if err := json.Unmarshal([]byte(out), &list); err != nil {
		t.Fatal(err)
	}
	for _, r := range list.Jobs {
		if r.Warnings == nil || (len(r.Warnings) == 1) != (r.Name == "symbol_sync") {
			t.Errorf("%s has the warnings %q", r.Name, r.Warnings)
		}
	}
	if w := registry.Every(time.Second).Warnings(); w == nil || len(w) != 0 {
		t.Errorf("a period has the warnings %v", w)
	}
}

func TestReadmesJobsFileIsOne(t *testing.T) {
	t.Parallel()
	readme, err := os.ReadFile("../../README.md")
	if err != nil {
		t.Fatal(err)
	}
	_, example, _ := strings.Cut(string(readme), "```yaml\n")
	example, _, found := strings.Cut(example, "```")
	if _, talk, code := runHere(t, nil, "check", "--jobs-file", jobsFile(t, example)); !found || code != exitOK {
		t.Errorf("exit code %d: %s", code, talk)
	}
}
