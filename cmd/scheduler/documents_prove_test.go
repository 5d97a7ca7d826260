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

// Every line of a document that begins with scheduler, in a block for the shell, works as it stands
// against a database in which two replicas work.
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
	env := childEnvironment(os.Environ(), "DATABASE_URL="+url, testJobsEnv+"=watched slow", "PATH="+dir+":"+os.Getenv("PATH"),
		"JOB=watched_1", "REPLICA="+replicas[1].id(), "ROTA_LISTEN="+replicas[0].probeAddress(),
		fmt.Sprintf("RUN=%d", db.number(`SELECT id FROM runs WHERE lease = 'slow' AND ended_at IS NULL`)))
	done := map[string]bool{}
	for _, d := range documents(t) {
		for _, block := range d.blocks("sh") {
			for line := range strings.Lines(block) {
				line = strings.TrimSpace(line)
				if !strings.HasPrefix(line, "scheduler ") || done[line] {
					continue
				}
				done[line] = true
				eventually(t, 30*time.Second, "watched_1 is led again after the command before", func() bool { return db.lease("watched_1").held() })
				if err := shell(t, dir, env, line); err != nil {
					t.Errorf("%s: %s: %v", d.name, line, err)
				}
			}
		}
	}
	t.Logf("%d commands", len(done))
	if len(done) < 40 {
		t.Errorf("only %d commands were found", len(done))
	}
}

func shell(t *testing.T, dir string, env []string, line string) error {
	t.Helper()
	cmd := exec.Command("sh", "-c", line)
	cmd.Dir, cmd.Env = dir, env
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
	var lines []string
	for _, d := range documents(t) {
		for _, line := range d.commands() {
			if strings.HasPrefix(line, "psql ") && !slices.Contains(lines, line) {
				lines = append(lines, line)
			}
		}
	}
	if len(lines) == 0 {
		t.Fatal("no line was found")
	}
	owner := *super
	owner.User = url.User("rota_owner")
	for range 2 {
		for _, line := range lines {
			if err := shell(t, filepath.Join("..", ".."), env, line); err != nil {
				t.Errorf("%s: %v", line, err)
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
