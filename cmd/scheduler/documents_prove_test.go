//go:build prove

package main

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
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
