//go:build prove

package main

import (
	"fmt"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"rota/internal/pgtest"
)

// Commands that go on until they are stopped work as they stand: each replica serves, and whoever
// watches it sees a job that is led.
func TestProveLastingCommandsOfTheDocumentsWork(t *testing.T) {
	t.Parallel() // it mostly waits
	dir := t.TempDir()
	if err := os.Symlink(binary(t), filepath.Join(dir, "scheduler")); err != nil {
		t.Fatal(err)
	}
	listen := freeAddress(t)
	vars := []string{
		"DATABASE_URL=" + pgtest.URL(t), "ROTA_LISTEN=" + listen, "JOB=bridge_health", "PATH=" + dir + ":" + os.Getenv("PATH"),
	}
	start := func(line string) *show {
		line = strings.Replace(filledIn(line), "https://ops.example.com", "http://"+listen, 1)
		return startShow(t, exec.Command("env", append(vars, "sh", "-c", "exec "+line)...))
	}
	stop := func(s *show, signal syscall.Signal) {
		if err := s.cmd.Process.Signal(signal); err != nil {
			t.Fatal(err)
		}
		if code := s.end(30 * time.Second); code != exitOK {
			t.Errorf("%q: exit code %d\n%s", s.cmd.Args, code, s.output())
		}
	}
	watched := 0
	for _, serve := range runBy(t, lastingRun) {
		if !strings.HasPrefix(serve.line, "scheduler serve") {
			continue
		}
		replica := startShow(t, exec.Command("env", append(vars, "sh", "-c", "exec "+serve.line)...))
		eventually(t, 30*time.Second, serve.line+" serves", func() bool {
			code, _ := get(t, "http://"+listen+"/readyz")
			return code == http.StatusOK
		})
		for _, watch := range runBy(t, lastingRun) {
			if strings.HasPrefix(watch.line, "scheduler watch") && strings.Contains(watch.line, "/ops/rota/") == strings.Contains(serve.line, "/ops/rota/") {
				w := start(watch.line)
				w.tells(30*time.Second, "bridge_health")
				stop(w, syscall.SIGINT)
				watched++
			}
		}
		stop(replica, syscall.SIGTERM)
	}
	if watched < 3 {
		t.Errorf("only %d watched", watched)
	}
}

// freeAddress is one on which nothing listens.
func freeAddress(t *testing.T) string {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = l.Close() }()
	return l.Addr().String()
}

// What the documents say of other programs holds.
func TestProveOtherProgramsOfTheDocumentsWork(t *testing.T) {
	t.Parallel() // it mostly waits
	for _, program := range []string{"git", "make", "openssl", "htpasswd"} {
		need(t, program)
	}
	env := childEnvironment(os.Environ(), "ROTA_TEST_POSTGRES=")
	printed := map[string]string{} // what each program has said
	for _, n := range runBy(t, othersRun) {
		line := n.line
		for is, becomes := range map[string]string{
			"postgres://...": pgtest.Cluster(t).URL("postgres"),
			// A part does for the whole, which make test runs.
			"go test ./...":             "go test -run Late ./internal/lease/",
			"go test ./internal/lease/": "go test -run Late ./internal/lease/",
			"make bench":                "make bench ARGS='-short -run ticks-records'",
			"go generate ":              "go generate -n ", // the tests that it runs, make test runs too
		} {
			line = strings.Replace(line, is, becomes, 1)
		}
		cmd := exec.Command("sh", "-c", line)
		cmd.Dir, cmd.Env, cmd.Stdin = filepath.Join("..", ".."), env, strings.NewReader("a password\na password\n")
		cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true} // a password is asked for on the terminal, if there is one
		out, err := cmd.CombinedOutput()
		if err != nil {
			t.Errorf("%s: %s: %v\n%s", n.document, line, err, out)
		}
		program, _, _ := strings.Cut(line, " ")
		printed[program] = string(out)
	}
	if !strings.Contains(printed["git"], "_test.go:") {
		t.Errorf("no test names P3: %s", printed["git"])
	}
	if len(strings.TrimSpace(printed["openssl"])) != 64 {
		t.Errorf("a token is %q", printed["openssl"])
	}
	hash, _, _ := strings.Cut(printed["printf"], " ")
	basic := printed["htpasswd"][strings.LastIndex(printed["htpasswd"], "name:"):]
	mayEnter(t, "token", "ana:"+hash+":read\n", "Authorization", "Bearer TOKEN")
	mayEnter(t, "basic", basic, "Authorization", "Basic bmFtZTphIHBhc3N3b3Jk")
}

// mayEnter starts a replica with an access file, which lets the header in and nobody else.
func mayEnter(t *testing.T, auth, lines, header, value string) {
	t.Helper()
	file := filepath.Join(t.TempDir(), auth)
	if err := os.WriteFile(file, []byte(strings.TrimSpace(lines)+"\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	replica := launch(t, pgtest.URL(t), "", "--auth", auth, "--auth-file", file, "--no-work").serving()
	for with, want := range map[bool]int{true: http.StatusOK, false: http.StatusUnauthorized} {
		req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, fmt.Sprintf("http://%s/api/v1/jobs", replica.probeAddress()), nil)
		if err != nil {
			t.Fatal(err)
		}
		if with {
			req.Header.Set(header, value)
		}
		res, err := http.DefaultClient.Do(req)
		if err != nil {
			t.Fatal(err)
		}
		_ = res.Body.Close()
		if res.StatusCode != want {
			t.Errorf("--auth %s with the file %q answers %d to whom it knows: %v, want %d", auth, lines, res.StatusCode, with, want)
		}
	}
}
