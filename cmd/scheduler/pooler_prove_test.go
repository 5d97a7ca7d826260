//go:build prove

package main

import (
	"fmt"
	"net"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"syscall"
	"testing"
	"time"

	"rota/internal/pgtest"
)

// poolerConf is a pooler that forgives nothing: each transaction may have another of the server's
// processes, no statement stays prepared, and no parameter that it does not know is let through.
const poolerConf = `[databases]
* = host=%s port=%s
[pgbouncer]
listen_addr = 127.0.0.1
listen_port = %s
unix_socket_dir =
auth_type = trust
auth_file = %s
pool_mode = transaction
default_pool_size = 30
max_client_conn = 200
%s
`

// poolerBefore starts a PgBouncer before the database, and returns the URL that leads through it.
func poolerBefore(t *testing.T, address string) string {
	t.Helper()
	program, err := exec.LookPath("pgbouncer")
	if err != nil {
		program = "/usr/sbin/pgbouncer" // which is not on every user's PATH
	}
	if _, err := os.Stat(program); err != nil {
		program = need(t, "pgbouncer")
	}
	u, err := url.Parse(address)
	if err != nil {
		t.Fatal(err)
	}
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	front := listener.Addr().String()
	_ = listener.Close()
	_, port, _ := net.SplitHostPort(front)

	dir, err := os.MkdirTemp("", "rota-pooler-")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	users := filepath.Join(dir, "users")
	more := ""
	if preparing(t, program) {
		more = "max_prepared_statements = 0"
	}
	conf := fmt.Sprintf(poolerConf, u.Hostname(), u.Port(), port, users, more)
	if os.Getuid() == 0 { // which it does not run as
		conf += "user = nobody\n"
	}
	for file, text := range map[string]string{users: fmt.Sprintf("%q \"\"\n", u.User.Username()), filepath.Join(dir, "ini"): conf} {
		if err := os.WriteFile(file, []byte(text), 0o644); err != nil { //nolint:gosec // another user reads it
			t.Fatal(err)
		}
	}
	if err := os.Chmod(dir, 0o755); err != nil { //nolint:gosec // another user reads it
		t.Fatal(err)
	}
	beside(t, program, filepath.Join(dir, "ini"))
	eventually(t, 10*time.Second, "the pooler listens", func() bool {
		conn, err := net.Dial("tcp", front)
		if err == nil {
			_ = conn.Close()
		}
		return err == nil
	})
	u.Host = front
	return u.String()
}

// beside keeps a program running until the test ends.
func beside(t *testing.T, program string, args ...string) {
	t.Helper()
	var said spoken
	cmd := exec.Command(program, args...)
	cmd.Stdout, cmd.Stderr = &said, &said
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
		if t.Failed() {
			t.Log(said.String())
		}
	})
}

// preparing reports whether the pooler knows of prepared statements, as it does from 1.21 on.
func preparing(t *testing.T, program string) bool {
	t.Helper()
	out, err := exec.Command(program, "--version").Output()
	if err != nil {
		t.Fatal(err)
	}
	var major, minor int
	v := regexp.MustCompile(`\d+\.\d+`).FindString(string(out))
	if _, err := fmt.Sscanf(v, "%d.%d", &major, &minor); err != nil {
		t.Fatalf("%q: %v", out, err)
	}
	return major > 1 || minor >= 21
}

// Everything works through a pooler in transaction mode, by polling: replicas lead, tick, write through
// the fence, hand over and shut down. The log says within 10 s what does not work, and doctor what to
// do about it.
func TestProveReplicasWorkThroughATransactionPooler(t *testing.T) {
	t.Parallel() // it mostly waits
	direct := pgtest.URL(t)
	pooled := poolerBefore(t, direct)
	db := lookAt(t, direct)
	world, err := startSamples(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(world.Close)
	if err := world.Fill(t.Context(), db.Pool); err != nil {
		t.Fatal(err)
	}

	found, code := diagnosis(t, pooled)
	if code != exitOK {
		t.Errorf("doctor: exit code %d: %+v", code, found)
	}
	stateIs(t, found, "pooler", doubt, "in transaction mode")
	stateIs(t, found, "notifications", doubt, "connect directly, or in session mode")
	for check, f := range found {
		if f.State == unknown && check != "page" {
			t.Errorf("doctor could not look at %s: %s", check, f.Found)
		}
	}

	usual := launch(t, pooled, "", "--lease", "15s", "--renew", "5s", "--no-work").serving()
	served := time.Now()
	first := launch(t, pooled, "watched").serving()
	second := launch(t, pooled, "watched").serving()
	db.members(3)
	eventually(t, 30*time.Second, "ticks run, and bridges are written through the fence", func() bool {
		return db.number(`SELECT count(*) FROM runs WHERE job = 'watched_1' AND outcome = 'success'`) >= 3 &&
			db.number(`SELECT count(*) FROM bridge_status WHERE epoch > 0`) > 0
	})
	stdout, stderr, code := command(t, "watched", []string{"DATABASE_URL=" + pooled}, "jobs", "run", "reconciliation", "--wait", "--reason", "through the pooler")
	if code != exitOK || db.number(`SELECT count(*) FROM runs WHERE job = 'reconciliation' AND outcome = 'success' AND request_id IS NOT NULL`) != 1 {
		t.Errorf("a run that writes in a fenced transaction: exit code %d\n%s%s", code, stdout, stderr)
	}

	eventually(t, 30*time.Second, "leadership is even, so that nothing moves by itself", func() bool {
		held := func(p *proc) int {
			return db.number(`SELECT count(*) FROM leadership WHERE owner = $1 AND expires_at > clock_timestamp()`, p.id())
		}
		return max(held(first), held(second))-min(held(first), held(second)) <= 1
	})
	leader, other := leading(t, db, storyJob, first, second), first
	if leader == first {
		other = second
	}
	old := db.lease(storyJob)
	asked := time.Now()
	if err := leader.signal(syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
	took := db.ledBy(storyJob, other)
	t.Logf("handed over within %v of SIGTERM", time.Since(asked).Round(time.Millisecond))
	if took.Epoch <= old.Epoch {
		t.Errorf("epoch %d follows %d", took.Epoch, old.Epoch)
	}
	<-leader.gone
	if leader.err != nil {
		t.Errorf("shutdown: %v", leader.err)
	}
	if n := db.number(`SELECT count(*) FROM terms WHERE owner = $1 AND (ended_at IS NULL OR end_reason = 'expired')`, leader.id()); n > 0 {
		t.Errorf("%d terms were not released", n)
	}
	eventually(t, 10*time.Second, "the log warns", func() bool { return usual.says("releases are not announced") })
	for _, e := range usual.heard() {
		if strings.Contains(e.Msg, "releases are not announced") {
			t.Logf("the log warned %v after the replica served", e.at.Sub(served).Round(time.Millisecond))
			if e.at.Sub(served) > 10*time.Second || e.Level != "WARN" {
				t.Errorf("%s, %v after it served", e.Level, e.at.Sub(served))
			}
			break
		}
	}
	for _, p := range []*proc{first, second, usual} {
		for _, e := range p.heard() {
			if e.Level == "ERROR" || strings.Contains(e.Error, "prepared statement") {
				t.Errorf("%s: %s %s", p.name, e.Level, e.words())
			}
		}
	}
}
