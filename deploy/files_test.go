package deploy_test

import (
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"
)

// unit are the directives of the systemd unit, the last of each name.
func unit(t *testing.T) map[string]string {
	t.Helper()
	all := map[string]string{}
	for line := range strings.Lines(read(t, "systemd", "rota.service")) {
		if name, value, ok := strings.Cut(strings.TrimSpace(line), "="); ok && !strings.HasPrefix(name, "#") {
			all[name] = value
		}
	}
	return all
}

func span(t *testing.T, text string) time.Duration {
	t.Helper()
	d, err := time.ParseDuration(strings.Replace(text, "min", "m", 1))
	if err != nil {
		t.Fatal(err)
	}
	return d
}

// margin is what a replica and its witness take beyond the drain and the grace: the last records,
// releases and the burial of what was left.
const margin = 6 * time.Second

func TestUnitGivesTheTimeThatAShutdownTakes(t *testing.T) {
	t.Parallel()
	u := unit(t)
	m := regexp.MustCompile(`--drain (\S+) --grace (\S+)`).FindStringSubmatch(u["ExecStart"])
	if m == nil {
		t.Fatal("the unit names no drain and no grace")
	}
	if sum := span(t, m[1]) + span(t, m[2]) + margin; span(t, u["TimeoutStopSec"]) < sum {
		t.Errorf("systemd gives %s, and a shutdown may take %v", u["TimeoutStopSec"], sum)
	}
	if span(t, u["TimeoutStartSec"]) < 5*time.Minute+10*time.Second {
		t.Error("a start may wait five minutes for another's migration, and ten seconds for the database")
	}
	// /livez allows a whole lease between two turns of the loop.
	if span(t, u["WatchdogSec"]) < 2*15*time.Second {
		t.Error("the watchdog bites before the probe does")
	}
	for name, want := range map[string]string{"Type": "notify", "NotifyAccess": "all", "KillMode": "mixed", "DynamicUser": "yes"} {
		if u[name] != want {
			t.Errorf("%s is %q, want %q", name, u[name], want)
		}
	}
}

// Go exits with 2 at the watchdog's usual signal, and a unit that exits with 2 is not restarted.
func TestWatchdogLeadsToARestart(t *testing.T) {
	t.Parallel()
	u := unit(t)
	prevents := strings.Fields(u["RestartPreventExitStatus"])
	if u["Restart"] != "on-failure" || !slices.Contains(prevents, "2") || u["WatchdogSignal"] != "SIGKILL" {
		t.Errorf("Restart=%s RestartPreventExitStatus=%s WatchdogSignal=%s", u["Restart"], u["RestartPreventExitStatus"], u["WatchdogSignal"])
	}
}

func TestSystemdAcceptsTheUnit(t *testing.T) {
	t.Parallel()
	analyze := need(t, "systemd-analyze")
	// It wants the program to be there.
	exe, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	text := strings.Replace(read(t, "systemd", "rota.service"), "/usr/local/bin/scheduler", exe, 1)
	file := filepath.Join(t.TempDir(), "rota.service")
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	out, err := exec.Command(analyze, "verify", "--man=no", "--recursive-errors=no", file).CombinedOutput()
	if err != nil || strings.Contains(string(out), "rota.service:") {
		t.Errorf("systemd-analyze verify: %v\n%s", err, out)
	}
}

func TestImageHasNoRootAndNoShell(t *testing.T) {
	t.Parallel()
	text := read(t, "Dockerfile")
	last := text[strings.LastIndex(text, "\nFROM "):]
	for _, want := range []string{
		"\nFROM scratch\n", "\nUSER 65532:65532\n", `CMD ["/scheduler", "health"]`, `ENTRYPOINT ["/scheduler"]`, `CMD ["serve"]`, "\nSTOPSIGNAL SIGTERM\n",
	} {
		if !strings.Contains(last, want) {
			t.Errorf("the image lacks %q", strings.TrimSpace(want))
		}
	}
	if strings.Contains(last, "RUN ") || !strings.Contains(text, "CGO_ENABLED=0") {
		t.Error("the image needs a shell, or its binary a C library")
	}
}

func TestScriptsPassShellcheck(t *testing.T) {
	t.Parallel()
	shellcheck := need(t, "shellcheck")
	out, err := exec.Command(shellcheck, "../scripts/setup", "../.ci/run").CombinedOutput()
	if err != nil {
		t.Errorf("shellcheck: %v\n%s", err, out)
	}
}
