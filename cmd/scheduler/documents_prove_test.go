//go:build prove

package main

import (
	"fmt"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"rota/internal/pgtest"
)

// refusals are what a command of a document may answer where an earlier one has done it already.
var refusals = []string{"is not paused", "no pause", "has ended", "is over", "already"}

// Every command of a document that does one thing works as it stands against a database in which two
// replicas work. Words in capitals stand for what the lists show.
func TestProveEveryCommandOfTheDocumentsWorks(t *testing.T) {
	url := pgtest.URL(t)
	var replicas []*proc
	for range 2 {
		replicas = append(replicas, launch(t, url, "watched slow").serving())
	}
	db := lookAt(t, url)
	db.members(2)
	db.running("slow")
	exe, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	if err := os.Symlink(exe, filepath.Join(dir, "scheduler")); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(dir, "jobs.yaml"), []byte(exampleOf(t, "README.md", "yaml")), 0o600); err != nil {
		t.Fatal(err)
	}
	env := childEnvironment(os.Environ(), "DATABASE_URL="+url, testJobsEnv+"=watched slow", "PATH="+dir+":"+os.Getenv("PATH"),
		"JOB=watched_1", "REPLICA="+replicas[1].id(), "ROTA_LISTEN="+replicas[0].probeAddress(),
		fmt.Sprintf("RUN=%d", db.number(`SELECT id FROM runs WHERE lease = 'slow' AND ended_at IS NULL`)))
	all := runBy(t, ordersRun)
	for _, n := range all {
		if name, _, ok := strings.Cut(strings.TrimPrefix(n.line, "export "), "="); ok && strings.HasPrefix(n.line, "export ") {
			if !slices.ContainsFunc(env, func(pair string) bool { return strings.HasPrefix(pair, name+"=") }) {
				t.Errorf("%s sets %s, which no command is given here", n.document, name)
			}
			continue
		}
		eventually(t, 30*time.Second, "watched_1 is led again after the command before", func() bool {
			leaving := db.number(`SELECT count(*) FROM requests WHERE kind = 'step_down' AND lease = 'watched_1' AND done_at IS NULL`)
			return leaving == 0 && db.lease("watched_1").held()
		})
		line := filledIn(n.line)
		if strings.Contains(line, "$REQUEST") {
			env = append(env, fmt.Sprintf("REQUEST=%d", db.waiting(t, dir, env)))
		}
		if err := shell(t, dir, env, line); err != nil {
			t.Errorf("%s: %s: %v", n.document, line, err)
		}
	}
	t.Logf("%d commands", len(all))
	if len(all) < 65 {
		t.Errorf("only %d commands were found", len(all))
	}
}

// filledIn is a command with what its words in capitals stand for.
func filledIn(line string) string {
	id := "$RUN"
	switch {
	case strings.HasPrefix(line, "scheduler replicas "):
		id = "$REPLICA"
	case strings.HasPrefix(line, "scheduler requests "):
		id = "$REQUEST"
	}
	meant := map[string]string{"NAME": `"$JOB"`, "NAME...": `"$JOB"`, "ID": `"` + id + `"`, "R": `"a reason"`, "K": "a-key", "N": "5", "WHO": "somebody"}
	words := strings.Split(line, " ")
	for i, w := range words {
		if m, ok := meant[w]; ok {
			words[i] = m
		}
	}
	return strings.Join(words, " ")
}

// waiting is a request for a run that waits behind the one under way.
func (e eye) waiting(t *testing.T, dir string, env []string) int {
	t.Helper()
	e.running("slow")
	if err := shell(t, dir, env, `scheduler jobs run slow --reason "to be withdrawn"`); err != nil {
		t.Fatal(err)
	}
	return e.number(`SELECT max(id) FROM requests WHERE lease = 'slow' AND done_at IS NULL`)
}

// exampleOf is the first block of a language in a document.
func exampleOf(t *testing.T, name, language string) string {
	t.Helper()
	for _, d := range documents(t) {
		if blocks := d.blocks(language); d.name == name && len(blocks) > 0 {
			return blocks[0]
		}
	}
	t.Fatalf("%s has no %s", name, language)
	return ""
}

func shell(t *testing.T, dir string, env []string, line string) error {
	t.Helper()
	cmd := exec.Command("sh", "-c", line)
	cmd.Dir, cmd.Env = dir, env
	cmd.Stdin = strings.NewReader("watched_1\n") // what a revoke wants typed
	kill := time.AfterFunc(30*time.Second, func() { _ = cmd.Process.Kill() })
	defer kill.Stop()
	out, err := cmd.CombinedOutput()
	if err == nil {
		return nil
	}
	for _, r := range refusals {
		if cmd.ProcessState.ExitCode() == exitFailed && strings.Contains(string(out), r) {
			return nil
		}
	}
	return fmt.Errorf("%w: %s", err, out)
}

// Every line of a document that begins with psql works as it stands: before the first migration, and
// after it.
func TestProvePsqlLinesOfTheDocumentsWork(t *testing.T) {
	t.Parallel() // it mostly waits
	need(t, "psql")
	super, err := url.Parse(pgtest.Cluster(t).URL("postgres"))
	if err != nil {
		t.Fatal(err)
	}
	env := childEnvironment(os.Environ(), "PGHOST="+super.Hostname(), "PGPORT="+super.Port(), "PGUSER=postgres", "PGDATABASE=postgres")
	lines := runBy(t, t.Name())
	if len(lines) == 0 {
		t.Fatal("no line was found")
	}
	owner := *super
	owner.User = url.User("rota_owner")
	for range 2 {
		for _, n := range lines {
			if err := shell(t, filepath.Join("..", ".."), env, n.line); err != nil {
				t.Errorf("%s: %s: %v", n.document, n.line, err)
			}
		}
		if _, stderr, code := command(t, "", []string{"DATABASE_URL=" + owner.String()}, "migrate", "up"); code != exitOK {
			t.Fatalf("migrate up: exit code %d: %s", code, stderr)
		}
	}
}

// The first command of the README leads to the page.
func TestProveMakeRunShowsThePage(t *testing.T) {
	t.Parallel() // it mostly waits
	dev := startShow(t, exec.Command(need(t, "make"), "-C", filepath.Join("..", ".."), "run", "ARGS=--listen 127.0.0.1:0"))
	address := dev.tells(2*time.Minute, `The page: (http://\S+)`)[1]
	eventually(t, 30*time.Second, "the page lists the jobs", func() bool {
		code, body := get(t, address+"/")
		return code == 200 && strings.Contains(body, "bridge_health")
	})
	below := dev.descendants()
	dev.stdin("q")
	if code := dev.end(30 * time.Second); code != exitOK {
		t.Errorf("exit code %d", code)
	}
	assertGone(t, below)
}
