//go:build prove

package main

import (
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// copyModule is the module of this checkout in a directory of its own.
func copyModule(t *testing.T) string {
	t.Helper()
	dir := t.TempDir()
	root := filepath.Join("..", "..")
	err := filepath.WalkDir(root, func(path string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		rel, err := filepath.Rel(root, path)
		switch {
		case err != nil:
			return err
		case d.IsDir() && (d.Name() == "bin" || rel != "." && strings.HasPrefix(d.Name(), ".")):
			return filepath.SkipDir
		case d.IsDir():
			return os.MkdirAll(filepath.Join(dir, rel), 0o755)
		case !d.Type().IsRegular():
			return nil
		}
		content, err := os.ReadFile(path)
		if err != nil {
			return err
		}
		return os.WriteFile(filepath.Join(dir, rel), content, 0o600)
	})
	if err != nil {
		t.Fatal(err)
	}
	return dir
}

// readmeJob makes the README's recipe a job of the module, with a test of its own.
func readmeJob(t *testing.T, dir string) {
	t.Helper()
	readme, err := os.ReadFile(filepath.Join(dir, "README.md"))
	if err != nil {
		t.Fatal(err)
	}
	block := func(kind string) string {
		_, after, _ := strings.Cut(string(readme), "```"+kind+"\n")
		text, _, found := strings.Cut(after, "```")
		if !found {
			t.Fatalf("README.md has no %s", kind)
		}
		return text
	}
	for path, text := range map[string]string{
		"jobs/settlement.go":                   readmeImports + block("go"),
		"jobs/migrations/00002_settlement.sql": block("sql"),
		"jobs/settlement_test.go":              readmeTest,
	} {
		if err := writeNew(filepath.Join(dir, filepath.FromSlash(path)), []byte(text)); err != nil {
			t.Fatal(err)
		}
	}
}

const readmeImports = `package jobs

import (
	"context"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"

	"rota/internal/fence"
	"rota/internal/registry"
)

`

const readmeTest = `package jobs

import (
	"testing"
	"time"

	"rota/internal/jobtest"
	"rota/internal/pgtest"
)

func TestSettlementWorksOnEachItemOfTheDayBefore(t *testing.T) {
	db := pgtest.New(t)
	mustExec(t, db, "INSERT INTO trades VALUES ('a', '1', '2026-02-28', 'SAP', 'buy', 2, 1.5), ('b', '1', '2026-03-01', 'SAP', 'buy', 1, 1)")
	tick := time.Date(2026, 3, 1, 7, 0, 0, 0, time.UTC)
	if err := jobtest.Lead(t, db, "settlement").At(tick).Do(); err != nil {
		t.Fatal(err)
	}
	if got := lines(t, db, "SELECT concat_ws(' ', account, trade_id, amount, epoch) FROM settlements"); got != "a 1 3.0 1" {
		t.Errorf("settled is %q", got)
	}
}
`

// documentedJobs writes the jobs that the documents write. Of settlement the README says what it becomes,
// so that is kept away; as it is written its test passes. Those whose name is NAME stay.
func documentedJobs(t *testing.T, dir string) {
	t.Helper()
	do := func(line string) {
		cmd := exec.Command("sh", "-c", line)
		cmd.Dir, cmd.Env = dir, childEnvironment(os.Environ(), "GOFLAGS=-buildvcs=false")
		if out, err := cmd.CombinedOutput(); err != nil {
			t.Fatalf("%s: %v\n%s", line, err, out)
		}
	}
	var unnamed [][]string
	for _, n := range runBy(t, newJobRun) {
		if _, args, ok := strings.Cut(n.line, "scheduler new job NAME"); ok {
			unnamed = append(unnamed, words(args))
		} else {
			do(n.line)
		}
	}
	do("go test -run Settlement ./jobs/")
	for _, pattern := range []string{"jobs/settlement*.go", "jobs/migrations/*_settlement.sql"} {
		files, err := filepath.Glob(filepath.Join(dir, filepath.FromSlash(pattern)))
		if err != nil || len(files) == 0 {
			t.Fatalf("no line of the documents wrote %s: %v", pattern, err)
		}
		for _, f := range files {
			if err := os.Remove(f); err != nil {
				t.Fatal(err)
			}
		}
	}
	readmeJob(t, dir)
	for i, args := range unnamed {
		args = append([]string{"new", "job", fmt.Sprintf("documented_%d", i), "--dir", dir}, args...)
		if _, talk, code := runHere(t, nil, args...); code != exitOK {
			t.Fatalf("%q: exit code %d: %s", args, code, talk)
		}
	}
}

// P3: what a new job is given for a start does its work, and its superseded leader is refused.
func TestProveNewJobsCompileLintAndPassAsTheyAreWritten(t *testing.T) {
	dir := copyModule(t)
	documentedJobs(t, dir)
	for _, args := range [][]string{
		{"fees", "--schedule", "0 8 * * 1-5", "--zone", "Europe/Berlin"},
		{"price-check-of-a-name-with-many-words-in-it-48-x", "--schedule", "every 5s"},
		{"x", "--schedule", "on demand"},
		{"item"}, // which the templates use as a word
	} {
		if _, talk, code := runHere(t, nil, append([]string{"new", "job", "--dir", dir}, args...)...); code != exitOK {
			t.Fatalf("%s: exit code %d: %s", args[0], code, talk)
		}
	}
	linter, err := filepath.Abs(filepath.Join("..", "..", "bin", "golangci-lint"))
	if err != nil {
		t.Fatal(err)
	}
	commands := [][]string{
		{"go", "build", "-buildvcs=false", "./..."},
		{"go", "vet", "./jobs/"},
		{"go", "test", "-v", "-run", "WorksOnEachItem|SupersededLeaderOf", "./jobs/"},
		{"go", "run", "-buildvcs=false", "./cmd/scheduler", "check"},
	}
	if _, err := os.Stat(linter); err == nil {
		commands = append(commands, []string{linter, "run", "./jobs/"}, []string{linter, "fmt", "--diff", "./jobs/"})
	} else {
		t.Log("not linted, for there is no bin/golangci-lint: make lint builds it")
	}
	for _, command := range commands {
		cmd := exec.Command(command[0], command[1:]...)
		cmd.Dir = dir
		out, err := cmd.CombinedOutput()
		if err != nil {
			t.Errorf("%s: %v\n%s", strings.Join(command, " "), err, out)
		}
		if command[1] == "test" && strings.Count(string(out), "--- PASS") != 13 {
			t.Errorf("want thirteen tests to pass:\n%s", out)
		}
	}
}
