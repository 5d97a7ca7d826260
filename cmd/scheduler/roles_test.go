package main

import (
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"rota/internal/pgtest"
	"rota/migrations"
)

// The product works under deploy/sql/roles.sql, in which each role has no more rights than it needs.
func TestProductWorksUnderTheLeastRights(t *testing.T) {
	t.Parallel()
	super := pgtest.Cluster(t).URL("postgres")
	as := func(role string) string { return strings.Replace(super, "postgres@", role+"@", 1) }
	roles, err := os.ReadFile(filepath.Join("..", "..", "deploy", "sql", "roles.sql"))
	if err != nil {
		t.Fatal(err)
	}
	do := func(role string, args ...string) string {
		t.Helper()
		stdout, stderr, code := command(t, "", []string{"DATABASE_URL=" + as(role)}, args...)
		if code != exitOK {
			t.Errorf("%s as %s: exit code %d: %s", strings.Join(args, " "), role, code, stderr)
		}
		return stdout
	}

	for _, name := range tablesOfMigrations(t) {
		if !strings.Contains(string(roles), "'"+name+"'") {
			t.Errorf("roles.sql does not say what the runtime role may do with %s, and gives it all", name)
		}
	}
	execute(t, super, string(roles)) // before the first migration
	do("rota_owner", "migrate", "up")
	execute(t, super, string(roles)) // and after it
	do("rota", "doctor", "--migrate", "check")
	var replicas []*proc
	for range 2 {
		replicas = append(replicas, launch(t, as("rota"), "watched", "--migrate", "check", "--grace", "1s").serving())
	}
	db := lookAt(t, as("rota_reader"))
	eventually(t, 30*time.Second, "every job is led", func() bool {
		return db.number(`SELECT count(*) FROM leadership WHERE owner <> '' AND expires_at > clock_timestamp()`) == 9
	})
	do("rota", "jobs", "run", "rota-history", "--wait")
	do("rota", "jobs", "run", "watched_1", "--key", "k", "--wait")
	do("rota", "jobs", "pause", "watched_1", "--reason", "a reason", "--for", "1h")
	do("rota", "jobs", "resume", "watched_1", "--reason", "a reason")
	do("rota", "leases", "step-down", "watched_1", "--reason", "a reason", "--wait")
	do("rota", "leases", "revoke", "watched_2", "--reason", "a reason", "--yes")
	do("rota", "replicas", "drain", replicas[0].id(), "--reason", "a reason", "--wait")
	for _, list := range []string{"leases", "replicas", "runs", "audit", "requests", "jobs"} {
		do("rota_reader", list, "list")
	}
	for _, r := range replicas {
		r.send(syscall.SIGTERM)
		if code := r.code(30 * time.Second); code != exitOK {
			t.Errorf("exit code %d", code)
		}
		for _, e := range r.heard() {
			if strings.Contains(e.Error+e.Msg, "permission denied") {
				t.Errorf("%s: %s", e.Msg, e.Error)
			}
		}
	}

	for _, c := range []struct{ role, sql string }{
		{"rota", `DELETE FROM leadership`},
		{"rota", `TRUNCATE leadership`},
		{"rota", `DELETE FROM lease_epochs`},
		{"rota", `INSERT INTO lease_epochs (job_name, epoch) VALUES ('j', 1)`},
		{"rota", `DELETE FROM job_shards`},
		{"rota", `UPDATE audit SET actor = 'nobody'`},
		{"rota", `DELETE FROM audit`},
		{"rota", `UPDATE terms SET owner = 'nobody'`},
		{"rota", `INSERT INTO terms (job_name, epoch, owner, acquired_at) VALUES ('j', 1, 'o', now())`},
		{"rota", `DROP TABLE runs`},
		{"rota", `CREATE TABLE anything ()`},
		{"rota", `CREATE TABLE public.anything ()`},
		{"rota", `ALTER TABLE audit DISABLE TRIGGER ALL`},
		{"rota_reader", `UPDATE leadership SET epoch = epoch`},
		{"rota_reader", `INSERT INTO pauses (job, reason, paused_by) VALUES ('*', 'r', 'b')`},
		{"rota_reader", `UPDATE bridge_status SET epoch = 0`},
	} {
		conn, err := pgx.Connect(t.Context(), as(c.role))
		if err != nil {
			t.Fatal(err)
		}
		if _, err := conn.Exec(t.Context(), c.sql); err == nil || !strings.Contains(err.Error(), "42501") {
			t.Errorf("%s may %s: %v", c.role, c.sql, err)
		}
		closeConn(conn)
	}
	if _, stderr, code := command(t, "", []string{"DATABASE_URL=" + as("rota_reader")}, "jobs", "pause", "watched_1", "--reason", "a reason"); code != exitFailed {
		t.Errorf("the reader pauses a job: exit code %d, %s", code, stderr)
	}
}

var created = regexp.MustCompile(`(?m)^CREATE TABLE (\w+)`)

// tablesOfMigrations are the product's own tables.
func tablesOfMigrations(t *testing.T) []string {
	t.Helper()
	files, err := fs.Glob(migrations.FS, "*.sql")
	if err != nil {
		t.Fatal(err)
	}
	var names []string
	for _, file := range files {
		text, err := fs.ReadFile(migrations.FS, file)
		if err != nil {
			t.Fatal(err)
		}
		for _, m := range created.FindAllSubmatch(text, -1) {
			names = append(names, string(m[1]))
		}
	}
	if len(names) < 10 {
		t.Fatalf("the migrations make only %v", names)
	}
	return names
}
