//go:build prove

package main

import (
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"
)

// jobsNow is what GET /api/v1/jobs says, as far as it matters here.
type jobsNow struct {
	AsOf time.Time `json:"as_of"`
	Jobs []struct {
		Name     string     `json:"name"`
		Owner    string     `json:"owner"`
		Epoch    int64      `json:"epoch"`
		State    string     `json:"state"`
		Schedule string     `json:"schedule"`
		NextTick *time.Time `json:"next_tick"`
		LastRun  *struct {
			StartedAt time.Time `json:"started_at"`
			Outcome   *string   `json:"outcome"`
		} `json:"last_run"`
	} `json:"jobs"`
}

// complete reports what the page still lacks of the first minute's promise.
func (j jobsNow) lacks() string {
	if len(j.Jobs) != 6 { // the four of jobs/, one of them in two shards, and the one that prunes history
		return "jobs"
	}
	for _, job := range j.Jobs {
		switch {
		case job.State != "held" || job.Epoch < 1 || job.Owner == "":
			return "a leader of " + job.Name
		case job.Name == "bridge_health" && (job.LastRun == nil || job.LastRun.Outcome == nil || *job.LastRun.Outcome != "success"):
			return "a run of " + job.Name
		case job.Name == "quote_watch" && job.LastRun == nil:
			return "a run of " + job.Name
		case job.Name != "quote_watch" && job.NextTick == nil:
			return "the next tick of " + job.Name
		}
	}
	return ""
}

func TestProveDevShowsEveryJobWithinFifteenSecondsAndLeavesNothing(t *testing.T) {
	dev := startDev(t, binary(t), "--listen", "127.0.0.1:0")
	address := dev.tells(30*time.Second, `The page: (http://\S+)`)[1]
	var lacks string
	eventually(t, 30*time.Second, "the page has everything", func() bool {
		code, body := get(t, address+"/api/v1/jobs")
		var now jobsNow
		if code != 200 || json.Unmarshal([]byte(body), &now) != nil {
			return false
		}
		lacks = now.lacks()
		return lacks == ""
	})
	took := time.Since(dev.started)
	t.Logf("the page had everything %v after the start", took.Round(time.Millisecond))
	if took > 15*time.Second {
		t.Errorf("the page had everything only after %v; the last to come was %s", took, lacks)
	}
	if code, body := get(t, address+"/"); code != 200 || !strings.Contains(body, "bridge_health") {
		t.Errorf("the page: %d\n%s", code, body)
	}

	below := dev.descendants()
	if len(below) < 4 {
		t.Errorf("only %d processes run below dev", len(below))
	}
	if err := dev.cmd.Process.Signal(syscall.SIGINT); err != nil {
		t.Fatal(err)
	}
	if code := dev.end(30 * time.Second); code != exitOK {
		t.Errorf("exit code %d", code)
	}
	assertGone(t, below)
}

func assertGone(t *testing.T, pids []int) {
	t.Helper()
	for _, pid := range pids {
		eventually(t, 10*time.Second, "nothing is left", func() bool { return syscall.Kill(pid, 0) != nil })
	}
}

// A killed parent ends nothing in good order, and still leaves nothing.
func TestProveKilledDevLeavesNothingNotEvenAFrozenReplica(t *testing.T) {
	dev := startDev(t, binary(t), "--listen", "127.0.0.1:0")
	dev.tells(30*time.Second, `f  freeze it`)
	dev.tells(30*time.Second, `bridge_health: led by`)
	dev.stdin("f")
	dev.tells(30*time.Second, `is frozen in the middle of a run`)
	below := dev.descendants()
	if err := dev.cmd.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	assertGone(t, below)
}

func TestProveLettersFreezeThawAndKillTheLeader(t *testing.T) {
	dev := startDev(t, binary(t), "--listen", "127.0.0.1:0")
	dev.tells(30*time.Second, `f  freeze it`)
	first := dev.tells(30*time.Second, `(?m)bridge_health: led by (replica-\d) from now on, epoch (\d+)$`)[1]
	dev.stdin("f")
	dev.tells(30*time.Second, first+` is frozen in the middle of a run`)
	second := dev.tells(20*time.Second, `bridge_health: led by (replica-\d) from now on, epoch \d+ \(the lease of `+first+` ran out`)[1]
	dev.stdin("t")
	dev.tells(20*time.Second, `late write refused`)
	dev.tells(20*time.Second, first+`: its term of bridge_health, epoch \d+, is over`)
	dev.stdin("k")
	dev.tells(20*time.Second, second+` is killed`)
	dev.tells(20*time.Second, `bridge_health: led by replica-\d from now on, epoch \d+ \(the lease of `+second+` ran out`)
	dev.tells(30*time.Second, second+` is back`)
	dev.stdin("f")
	dev.tells(30*time.Second, `replica-\d is frozen in the middle of a run[\s\S]*replica-\d is frozen in the middle of a run`)
	below := dev.descendants()
	dev.stdin("q")
	if code := dev.end(30 * time.Second); code != exitOK {
		t.Errorf("exit code %d", code)
	}
	assertGone(t, below)
}

func TestProveStoryComesOutAsPromised(t *testing.T) {
	dev := startShow(t, exec.Command(need(t, "make"), "-C", filepath.Join("..", ".."), "story", "ARGS=--listen 127.0.0.1:0"))
	code := dev.end(2 * time.Minute)
	took := time.Since(dev.started)
	t.Logf("exit code %d after %v:\n%s", code, took.Round(time.Millisecond), dev.output())
	if code != exitOK || took > time.Minute {
		t.Errorf("exit code %d after %v", code, took)
	}
	assertGone(t, dev.descendants())
}

// P3: the story would notice. The guards are taken out at build time; no flag of the product does it.
// The stories are played side by side, for they mostly wait.
func TestProveStoryFailsWithoutTheGuard(t *testing.T) {
	t.Parallel() // it mostly waits
	devs := make(map[string]*show)
	for _, g := range guards {
		devs[g.file] = startDev(t, buildWithout(t, g.file, g.guard, g.none), "--story", "--listen", "127.0.0.1:0")
	}
	for file, dev := range devs {
		if code := dev.end(2 * time.Minute); code != exitStory || !strings.Contains(dev.output(), "NOT AS PROMISED") {
			t.Errorf("%s: exit code %d, want %d:\n%s", file, code, exitStory, dev.output())
		}
	}
}

// buildWithout builds the product with one text of the fence replaced.
func buildWithout(t *testing.T, file, guard, none string) (exe string) {
	t.Helper()
	source, err := filepath.Abs("../../internal/fence/" + file)
	if err != nil {
		t.Fatal(err)
	}
	text, err := os.ReadFile(source)
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	without := filepath.Join(dir, file)
	if err := os.WriteFile(without, []byte(strings.Replace(string(text), guard, none, 1)), 0o600); err != nil {
		t.Fatal(err)
	}
	overlay, err := json.Marshal(map[string]any{"Replace": map[string]string{source: without}})
	if err != nil {
		t.Fatal(err)
	}
	list := filepath.Join(dir, "overlay.json")
	if err := os.WriteFile(list, overlay, 0o600); err != nil {
		t.Fatal(err)
	}
	exe = filepath.Join(dir, "scheduler")
	if err := build(exe, "-overlay", list); err != nil {
		t.Fatal(err)
	}
	return exe
}
