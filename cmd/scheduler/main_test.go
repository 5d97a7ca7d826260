package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"runtime"
	"strings"
	"testing"
	"time"

	"rota/internal/fence"
	"rota/internal/registry"
)

// TestMain makes this binary a scheduler where a test has started it as one, with the jobs that the
// test wants beside those that are compiled in.
func TestMain(m *testing.M) {
	if names, ok := os.LookupEnv(testJobsEnv); ok {
		for name := range strings.FieldsSeq(names) {
			for _, j := range testJobs[name] {
				registry.Register(j)
			}
		}
		main()
	}
	code := m.Run()
	for _, f := range atEnd {
		f()
	}
	os.Exit(code)
}

// atEnd is what is done when all tests have run.
var atEnd []func()

const testJobsEnv = "SCHEDULER_TEST_JOBS"

func idle(ctx context.Context, _ *registry.Run) error { return nil }

func untilEnd(ctx context.Context, run *registry.Run) error {
	select {
	case <-run.Draining:
	case <-ctx.Done():
	}
	return nil
}

var every = registry.Every(time.Second)

// testJobs are by the name that a test asks for them by.
var testJobs = map[string][]registry.Job{
	// It works until it is asked to stop, and needs three seconds for that.
	"slow": {{Name: "slow", Schedule: every, Run: func(ctx context.Context, run *registry.Run) error {
		select {
		case <-run.Draining:
		case <-ctx.Done():
			return context.Cause(ctx)
		}
		select {
		case <-time.After(3 * time.Second):
			return nil
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}}},
	// It never returns.
	"stuck": {{Name: "stuck", Schedule: every, Run: func(context.Context, *registry.Run) error { select {} }}},

	// They end their process.
	"panics": {{Name: "panics", Schedule: every, Run: func(context.Context, *registry.Run) error {
		go panic("in a goroutine of the job")
		select {}
	}}},
	"exits":        {{Name: "exits", Schedule: every, Run: func(context.Context, *registry.Run) error { os.Exit(0); return nil }}},
	"exits_with_3": {{Name: "exits_with_3", Schedule: every, Run: func(context.Context, *registry.Run) error { os.Exit(3); return nil }}},

	"watched": {
		{Name: "watched_1", Schedule: every, Args: struct{ Limit int }{1}, Run: idle},
		{Name: "watched_2", Schedule: every, Run: idle},
		{Name: "watched_3", Schedule: registry.Continuous, Run: untilEnd},
	},

	"bad-name":   {{Name: "Bad Name", Schedule: every, Run: idle}},
	"history":    {{Name: "rota-history", Schedule: every, Run: idle}},
	"no-name":    {{Schedule: every, Run: idle}},
	"duplicate":  {{Name: "bridge_health", Schedule: every, Run: idle}},
	"no-func":    {{Name: "no_func", Schedule: every}},
	"bad-zone":   {{Name: "bad_zone", Schedule: registry.Cron("0 8 * * *").In("Europe/Atlantis"), Run: idle}},
	"bad-cron":   {{Name: "bad_cron", Schedule: registry.Cron("61 * * * *"), Run: idle}},
	"too-fast":   {{Name: "too_fast", Schedule: registry.Every(time.Millisecond), Run: idle}},
	"no-due":     {{Name: "no_due", Run: idle}},
	"same-table": {{Name: "same_table", Schedule: every, Run: idle, Protects: []fence.Table{{Name: "bridge_status", Key: []string{"bridge_id"}}}}},
}

// command runs a scheduler as a process of its own, and returns what it printed and its exit code.
func command(t *testing.T, jobs string, env []string, args ...string) (stdout, stderr string, code int) {
	t.Helper()
	exe, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	cmd := exec.CommandContext(ctx, exe, args...)
	cmd.Env = childEnvironment(os.Environ(), append(env, testJobsEnv+"="+jobs, "GORACE=atexit_sleep_ms=0")...)
	var out, talk bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &talk
	err = cmd.Run()
	var exit *exec.ExitError
	if err != nil && !errors.As(err, &exit) {
		t.Fatalf("run scheduler %s: %v", strings.Join(args, " "), err)
	}
	return out.String(), talk.String(), cmd.ProcessState.ExitCode()
}

// complaints are the lines of stderr that are no log.
func complaints(stderr string) []string {
	var lines []string
	for line := range strings.Lines(stderr) {
		if !strings.HasPrefix(line, "time=") {
			lines = append(lines, strings.TrimSpace(line))
		}
	}
	return lines
}

func TestWrongJobsAreRefusedInOneLineEach(t *testing.T) {
	t.Parallel()
	for jobs, want := range map[string][]string{
		"bad-name":         {"Bad Name"},
		"no-name":          {"name"},
		"duplicate":        {"bridge_health"},
		"no-func":          {"no_func"},
		"bad-zone":         {"Europe/Atlantis"},
		"bad-cron":         {"61 * * * *"},
		"too-fast":         {"too_fast"},
		"no-due":           {"no_due"},
		"same-table":       {"bridge_status"},
		"bad-zone no-func": {"Europe/Atlantis", "no_func"},
	} {
		t.Run(jobs, func(t *testing.T) {
			t.Parallel()
			stdout, stderr, code := command(t, jobs, nil, "check")
			lines := complaints(stderr)
			if code != exitUsage || stdout != "" || len(lines) != len(want) {
				t.Fatalf("exit code %d, want %d; stdout:\n%sstderr, want %d lines:\n%s", code, exitUsage, stdout, len(want), stderr)
			}
			for _, w := range want {
				if !strings.Contains(stderr, w) {
					t.Errorf("it does not name %q:\n%s", w, stderr)
				}
			}
		})
	}
}

func TestErrorsAreOneLineEach(t *testing.T) {
	t.Parallel()
	many := errors.Join(errors.New("first"), coded(exitUsage, errors.Join(errors.New("second\n\tof two lines"), errors.New("third"))))
	for _, tt := range []struct {
		err  error
		want string
	}{
		{errors.New("one"), "one"},
		{many, "first|second of two lines|third"},
		{fmt.Errorf("connect: %w", errors.New("a\n\tb")), "connect: a b"},
		{fmt.Errorf("%w: %w", errors.New("what"), errors.New("why")), "what: why"},
	} {
		if got := strings.Join(lines(tt.err), "|"); got != tt.want {
			t.Errorf("lines(%q) = %q, want %q", tt.err, got, tt.want)
		}
	}
}

func TestCommandThatOnlyHoldsOthersIsNoSuccess(t *testing.T) {
	t.Parallel()
	for args, want := range map[string]string{
		"migrate":         "scheduler: migrate: a further word is missing, one of: sql, status, up",
		"jobs":            "list",
		"new":             "one of: job",
		"completion":      "one of: bash, fish, powershell, zsh",
		"completion tcsh": `"tcsh"`,
		"migrate down":    `"down"`,
	} {
		stdout, stderr, code := runHere(t, nil, strings.Fields(args)...)
		if len(complaints(stderr)) != 1 || !strings.Contains(stderr, want) || stdout != "" || code != exitUsage {
			t.Errorf("%s: exit code %d, want %d; stdout:\n%sstderr, want %q:\n%s", args, code, exitUsage, stdout, want, stderr)
		}
	}
	for _, args := range []string{"", "migrate --help", "completion bash", "completion --help", "help migrate"} {
		if stdout, stderr, code := runHere(t, nil, strings.Fields(args)...); stdout == "" || stderr != "" || code != exitOK {
			t.Errorf("%q: exit code %d, stdout %q, stderr %q", args, code, stdout, stderr)
		}
	}
}

func TestVersionIsPrintedAsJSONToo(t *testing.T) {
	t.Parallel()
	plain, _, _ := runHere(t, nil, "version")
	out, _, code := runHere(t, nil, "version", "--json")
	var said struct{ Version, Go string }
	if err := json.Unmarshal([]byte(out), &said); err != nil || code != exitOK {
		t.Fatalf("exit code %d, %v: %s", code, err, out)
	}
	if said.Version+"\n" != plain || said.Go != runtime.Version() {
		t.Errorf("it says %+v, and %q without --json", said, plain)
	}
}
