package main

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// checkout is a directory with what is looked at of a checkout, and the files beside it.
func checkout(t *testing.T, files map[string]string) string {
	t.Helper()
	dir := t.TempDir()
	all := map[string]string{
		"go.mod": "// a fork\nmodule example.com/rota\n\ngo 1.26.0\n", "jobs/doc.go": "package jobs\n",
		"jobs/migrations/00001_trading.sql": "", "internal/registry/job.go": "", "internal/jobtest/jobtest.go": "",
	}
	for path, text := range files {
		all[path] = text
	}
	for path, text := range all {
		path = filepath.Join(dir, filepath.FromSlash(path))
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	return dir
}

// listed are the files in the directory, with their contents.
func listed(t *testing.T, dir string) map[string]string {
	t.Helper()
	files := map[string]string{}
	err := filepath.WalkDir(dir, func(path string, d os.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		text, err := os.ReadFile(path)
		rel, _ := filepath.Rel(dir, path)
		files[filepath.ToSlash(rel)] = string(text)
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return files
}

func TestNewJobIsThreeFilesAndWhatToDoNext(t *testing.T) {
	t.Parallel()
	dir := checkout(t, map[string]string{"jobs/migrations/00007_later.sql": ""})
	was := listed(t, dir)
	out, talk, code := runHere(t, nil, "new", "job", "price-check", "--dir", dir, "--schedule", "0 8 * * 1-5", "--zone", "Europe/Berlin")
	if code != exitOK {
		t.Fatalf("exit code %d: %s", code, talk)
	}
	want := "jobs/price_check.go\njobs/migrations/00008_price_check.sql\njobs/price_check_test.go\n"
	if diff := cmp.Diff(want, out); diff != "" {
		t.Error(diff)
	}
	if !strings.Contains(talk, "Next:") || !strings.Contains(talk, "00008_price_check.sql") || !strings.Contains(talk, "-run PriceCheck") {
		t.Errorf("it says %q", talk)
	}
	files := listed(t, dir)
	for path, says := range map[string][]string{
		"jobs/price_check.go": {
			`Name:     "price-check"`, `registry.Cron("0 8 * * 1-5").In("Europe/Berlin")`, `"example.com/rota/internal/fence"`,
			`Protects: []fence.Table{priceCheckResults}`, "\nfunc priceCheck(ctx",
		},
		"jobs/migrations/00008_price_check.sql": {"-- +goose Up\n", "SELECT fence_protect('price_check_results')", "-- +goose Down\n"},
		"jobs/price_check_test.go":              {"func TestPriceCheckWorksOnEachItem", "fence.ErrFenced"},
	} {
		for _, s := range says {
			if !strings.Contains(files[path], s) {
				t.Errorf("%s lacks %q:\n%s", path, s, files[path])
			}
		}
		delete(files, path)
	}
	if diff := cmp.Diff(was, files); diff != "" {
		t.Errorf("it changed other files: %s", diff)
	}
}

func TestScheduleOfANewJobIsWrittenAsPeopleWriteIt(t *testing.T) {
	t.Parallel()
	for _, c := range []struct{ text, zone, want string }{
		{"every 1m", "", "registry.Every(time.Minute)"},
		{"every 90m", "", "registry.Every(90 * time.Minute)"},
		{"every 2h", "", "registry.Every(2 * time.Hour)"},
		{"every 5s", "", "registry.Every(5 * time.Second)"},
		{"on demand", "", "registry.OnDemand"},
		{" */5 * *  * * ", "", `registry.Cron("*/5 * * * *")`},
		{"@daily", "UTC", `registry.Cron("@daily").In("UTC")`},
	} {
		if got, err := scheduleSource(c.text, c.zone); got != c.want || err != nil {
			t.Errorf("%q %s: %s, %v; want %s", c.text, c.zone, got, err, c.want)
		}
	}
}

func TestNewJobIsRefusedInOneLineAndNothingIsWritten(t *testing.T) {
	t.Parallel()
	names := map[string]string{
		"Settlement": "a-z", "7th": "letter", "a__b": "single", "a_": "a-z", "../x": "a-z", "a/b": "a-z", "": "a-z",
		strings.Repeat("a", 49): "48", "über": "a-z",
		"bridge_health": "there is a job of that name", "taken": "there is a file jobs/taken.go", "tested": "there is a file jobs/tested_test.go",
		"func": "means something", "len": "means something", "init": "means something", "fence": "means something",
		"x_linux": "for some systems", "x_arm64": "for some systems", "x_test": "for some systems",
		"client": "declares or imports client", "http": "declares or imports http", "pgconn": "declares or imports pgconn",
		"old": "declares or imports oldArgs", "limit": "declares or imports limit", "helper": "declares or imports helper",
	}
	files := map[string]string{
		"jobs/taken.go": "package jobs\n", "jobs/tested_test.go": "package jobs\n",
		"jobs/other.go": `package jobs

import (
	"net/http"

	"github.com/jackc/pgx/v5/pgconn"
)

var _, client, _ = 1, http.DefaultClient, pgconn.Config{}

const limit = 5

type oldArgs struct{}

func helper() {}

func (oldArgs) fine() {}
`,
	}
	dir := checkout(t, files)
	was := listed(t, dir)
	for name, says := range names {
		_, talk, code := runHere(t, nil, "new", "job", "--dir", dir, "--", name)
		if lines := complaints(talk); code != exitUsage || len(lines) != 1 || !strings.Contains(talk, says) {
			t.Errorf("%q: exit code %d, want %d and %q:\n%s", name, code, exitUsage, says, talk)
		}
	}
	for _, c := range []struct {
		args []string
		says string
	}{
		{[]string{"good", "--dir", t.TempDir()}, "no checkout of the scheduler"},
		{[]string{"good", "--dir", filepath.Join(dir, "jobs")}, "no checkout of the scheduler"},
		{[]string{"good"}, "no checkout of the scheduler"}, // where tests run
		{[]string{"good", "--dir", dir, "--schedule", "every 5"}, "every 5s"},
		{[]string{"good", "--dir", dir, "--schedule", "61 * * * *"}, "61"},
		{[]string{"good", "--dir", dir, "--schedule", "continuous"}, "quote_watch.go"},
		{[]string{"good", "--dir", dir, "--zone", "Europe/Berlin"}, "only a cron spec"},
		{nil, "arg"},
	} {
		_, talk, code := runHere(t, nil, append([]string{"new", "job"}, c.args...)...)
		if lines := complaints(talk); code != exitUsage || len(lines) != 1 || !strings.Contains(talk, c.says) {
			t.Errorf("%q: exit code %d, want %d and %q:\n%s", c.args, code, exitUsage, c.says, talk)
		}
	}
	if diff := cmp.Diff(was, listed(t, dir)); diff != "" {
		t.Errorf("files have changed: %s", diff)
	}
	if _, talk, code := runHere(t, nil, "new", "job", "fine", "--dir", dir); code != exitOK { // a method's name is free
		t.Errorf("exit code %d: %s", code, talk)
	}
}

func TestNewJobIsWrittenWholeOrNotAtAll(t *testing.T) {
	t.Parallel()
	dir := checkout(t, nil)
	j, err := plan(dir, "settlement")
	if err != nil {
		t.Fatal(err)
	}
	j.Schedule = "registry.OnDemand"
	// Somebody else writes the last of the files meanwhile.
	if err := os.WriteFile(filepath.Join(dir, j.files()[2].path), []byte("theirs"), 0o600); err != nil {
		t.Fatal(err)
	}
	was := listed(t, dir)
	if err := j.write(dir); !errors.Is(err, fs.ErrExist) {
		t.Errorf("it got %v", err)
	}
	if diff := cmp.Diff(was, listed(t, dir)); diff != "" {
		t.Errorf("files have changed: %s", diff)
	}
	if version, err := nextVersion(checkout(t, map[string]string{"jobs/migrations/x.sql": ""})); err == nil {
		t.Errorf("a migration without a number is passed over, next is %d", version)
	}
}
