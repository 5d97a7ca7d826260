package devdb

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
)

// parentEnv makes the test binary a process that starts a cluster and waits to
// be killed.
const parentEnv = "DEVDB_TEST_PARENT"

func TestMain(m *testing.M) {
	if os.Getenv(parentEnv) != "" {
		parent()
	}
	os.Exit(m.Run())
}

func parent() {
	c, err := Start(context.Background(), Config{Settings: quick})
	if err != nil {
		fmt.Println(err)
		os.Exit(1)
	}
	fmt.Println(c.PID(), c.Socket())
	select {}
}

var quick = map[string]string{"fsync": "off"}

func start(t *testing.T, cfg Config) *Cluster {
	t.Helper()
	cfg.Settings = quick
	c, err := Start(t.Context(), cfg)
	if errors.Is(err, ErrNotFound) && os.Getenv("CI") == "" {
		t.Skip(err)
	}
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := c.Stop(); err != nil {
			t.Error(err)
		}
	})
	return c
}

// ask runs one statement and returns the one text it yields.
func ask(t *testing.T, url, sql string) string {
	t.Helper()
	conn, err := pgx.Connect(t.Context(), url)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = conn.Close(context.Background()) }()
	var answer string
	if err := conn.QueryRow(t.Context(), sql).Scan(&answer); err != nil {
		t.Fatal(err)
	}
	return answer
}

func exists(path string) bool {
	_, err := os.Stat(path)
	return err == nil
}

// eventually polls a condition that another process brings about.
func eventually(t *testing.T, what string, holds func() bool) {
	t.Helper()
	for deadline := time.Now().Add(20 * time.Second); !holds(); time.Sleep(5 * time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatalf("after 20 s still not: %s", what)
		}
	}
}

func TestAClusterAnswersOnBothItsAddresses(t *testing.T) {
	t.Parallel()
	c := start(t, Config{})
	for _, url := range []string{c.URL("postgres"), fmt.Sprintf("host=%s port=%d user=postgres", c.Socket(), c.port)} {
		if got := ask(t, url, `SHOW server_encoding`); got != "UTF8" {
			t.Errorf("encoding over %s is %s, want UTF8", url, got)
		}
	}
	if got := ask(t, c.URL("postgres"), `SHOW synchronous_commit`); got != "on" {
		t.Errorf("synchronous_commit is %s, want on: a cluster is durable unless told otherwise", got)
	}
}

func TestStopLeavesNothingBehind(t *testing.T) {
	t.Parallel()
	c := start(t, Config{})
	pid := c.PID()
	for range 2 {
		if err := c.Stop(); err != nil {
			t.Fatal(err)
		}
	}
	if exists(c.Socket()) {
		t.Errorf("%s is still there", c.Socket())
	}
	if err := syscall.Kill(pid, 0); !errors.Is(err, syscall.ESRCH) {
		t.Errorf("signal 0 to the server's pid: %v, want no such process", err)
	}
	if err := c.Resume(t.Context()); err == nil {
		t.Error("a stopped cluster was resumed")
	}
}

func TestPostgresDiesWithAKilledParentAndTheNextStartTidiesUp(t *testing.T) {
	start(t, Config{}) // skips where there is no Postgres

	cmd := exec.Command(os.Args[0])
	cmd.Env = append(os.Environ(), parentEnv+"=1")
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	var pid int
	var dir string
	line, err := bufio.NewReader(out).ReadString('\n')
	if _, scanErr := fmt.Sscan(line, &pid, &dir); err != nil || scanErr != nil {
		t.Fatalf("the parent printed %q: %v", line, err)
	}
	start(t, Config{})
	if !exists(dir) {
		t.Error("a start deleted the directory of a cluster that runs")
	}

	if err := cmd.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	_ = cmd.Wait() // says that it was killed
	eventually(t, "Postgres is gone", func() bool { return errors.Is(syscall.Kill(pid, 0), syscall.ESRCH) })
	if !exists(dir) {
		t.Log("another cluster that was started meanwhile has tidied up")
		return
	}
	eventually(t, "the next start deletes its directory", func() bool {
		sweep(shortTemp())
		return !exists(dir)
	})
}

func TestAnAbandonedDirectoryIsToldFromAFreshOne(t *testing.T) {
	t.Parallel()
	base := t.TempDir()
	fresh, old := filepath.Join(base, "rota-pg-1"), filepath.Join(base, "rota-pg-2")
	for _, dir := range []string{fresh, old} {
		if err := os.Mkdir(dir, 0o700); err != nil {
			t.Fatal(err)
		}
	}
	past := time.Now().Add(-2 * settled)
	if err := os.Chtimes(old, past, past); err != nil {
		t.Fatal(err)
	}
	sweep(base)
	if !exists(fresh) || exists(old) {
		t.Errorf("fresh one there: %v, old one there: %v", exists(fresh), exists(old))
	}
}

func TestDataThatIsKeptIsThereAtTheNextStart(t *testing.T) {
	t.Parallel()
	// Not t.TempDir(), into which another user may not look.
	base, err := os.MkdirTemp("", "devdb-kept-")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(base) })
	if err := os.Chmod(base, 0o711); err != nil {
		t.Fatal(err)
	}
	dir := filepath.Join(base, strings.Repeat("long/", 30), "data")
	// The parents are made beforehand with rights to pass: root's umask is not ours to change.
	if err := os.MkdirAll(filepath.Dir(dir), 0o755); err != nil {
		t.Fatal(err)
	}
	c := start(t, Config{Dir: dir})
	id := `SELECT system_identifier::text FROM pg_control_system()`
	first := ask(t, c.URL("postgres"), id)
	if err := c.Stop(); err != nil {
		t.Fatal(err)
	}
	if again := ask(t, start(t, Config{Dir: dir}).URL("postgres"), id); again != first {
		t.Errorf("the second start found cluster %s, want %s", again, first)
	}
}

func TestADirectoryWithSomethingElseInItIsLeftAlone(t *testing.T) {
	t.Parallel()
	start(t, Config{})
	dir := t.TempDir()
	if err := os.WriteFile(filepath.Join(dir, "thesis.txt"), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	c, err := Start(t.Context(), Config{Dir: dir})
	if err == nil {
		_ = c.Stop()
		t.Fatal("it was made a cluster")
	}
	if !strings.Contains(err.Error(), "it holds something else") {
		t.Errorf("the error does not say why: %v", err)
	}
}

func TestATakenPortIsNamed(t *testing.T) {
	t.Parallel()
	start(t, Config{})
	taken, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = taken.Close() }()
	port := taken.Addr().(*net.TCPAddr).Port
	c, err := Start(t.Context(), Config{Port: port})
	if err == nil {
		_ = c.Stop()
		t.Fatal("it started on a taken port")
	}
	if !strings.Contains(err.Error(), "Address already in use") {
		t.Errorf("the error does not quote the server: %v", err)
	}
}

func TestACancelledStartLeavesNothingBehind(t *testing.T) {
	t.Parallel()
	start(t, Config{})
	ctx, cancel := context.WithCancelCause(t.Context())
	why := errors.New("changed my mind")
	cancel(why)
	if _, err := Start(ctx, Config{}); !errors.Is(err, why) {
		t.Errorf("got %v, want the cause", err)
	}
}
