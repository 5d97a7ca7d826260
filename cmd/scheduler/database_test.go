package main

import (
	"context"
	"fmt"
	"net/url"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"rota/internal/pgtest"
)

func TestUnsuitableServersAreRefusedByName(t *testing.T) {
	t.Parallel()
	fine := server{version: "15.1", number: 150001, schemaName: "public"}
	for _, tt := range []struct {
		change func(*server)
		want   string
	}{
		{func(*server) {}, ""},
		{func(s *server) { s.version, s.number = "14.9", 140009 }, "PostgreSQL 14.9"},
		{func(s *server) { s.standby = true }, "standby"},
		{func(s *server) { s.readOnly = true }, "read-only"},
		{func(s *server) { s.schemaName = "" }, "search_path"},
	} {
		s := fine
		tt.change(&s)
		switch err := s.fault(); {
		case tt.want == "" && err != nil:
			t.Errorf("%+v is refused: %v", s, err)
		case tt.want != "" && (err == nil || !strings.Contains(err.Error(), tt.want)):
			t.Errorf("%+v: %v, want %q", s, err, tt.want)
		}
	}
}

// execute runs a statement in a test's database.
func execute(t *testing.T, url, sql string, args ...any) {
	t.Helper()
	conn, err := pgx.Connect(t.Context(), url)
	if err != nil {
		t.Fatal(err)
	}
	defer closeConn(conn)
	if _, err := conn.Exec(t.Context(), sql, args...); err != nil {
		t.Fatalf("%s: %v", sql, err)
	}
}

func databaseOf(t *testing.T, address string) string {
	t.Helper()
	u, err := url.Parse(address)
	if err != nil {
		t.Fatal(err)
	}
	return strings.TrimPrefix(u.Path, "/")
}

// emptyDatabase makes a database without a schema.
func emptyDatabase(t *testing.T) string {
	t.Helper()
	address := pgtest.URL(t)
	name := databaseOf(t, address) + "_e"
	execute(t, address, "CREATE DATABASE "+pgx.Identifier{name}.Sanitize()+" TEMPLATE template0")
	t.Cleanup(func() {
		conn, err := pgx.Connect(context.Background(), address)
		if err != nil {
			t.Error(err)
			return
		}
		defer closeConn(conn)
		if _, err := conn.Exec(context.Background(), "DROP DATABASE "+pgx.Identifier{name}.Sanitize()+" WITH (FORCE)"); err != nil {
			t.Error(err)
		}
	})
	return strings.Replace(address, databaseOf(t, address), name, 1)
}

// Of an address that cannot be read nothing is repeated, for it may be of the password.
func TestAddressThatCannotBeReadSaysWhatMayBeWrong(t *testing.T) {
	t.Parallel()
	for address, want := range map[string]string{
		"postgres://rota@h:99999/x":                         "port must be 1 to 65535",
		"postgres://rota:99998/777@h/x":                     "port must be 1 to 65535",
		"postgres://rota@h:5432/x?target_session_attrs=777": "",
	} {
		_, err := poolConfig(address)
		if err == nil || !strings.Contains(err.Error(), want) || strings.Contains(err.Error(), "9999") || strings.Contains(err.Error(), "777") {
			t.Errorf("%s: %v", address, err)
		}
	}
}

// asLimited returns the address for a role without any rights.
func asLimited(t *testing.T, address string) string {
	t.Helper()
	role := fmt.Sprintf("limited_%d", time.Now().UnixNano())
	execute(t, address, "CREATE ROLE "+role+" LOGIN")
	t.Cleanup(func() {
		conn, err := pgx.Connect(context.Background(), address)
		if err != nil {
			t.Error(err)
			return
		}
		defer closeConn(conn)
		if _, err := conn.Exec(context.Background(), "DROP OWNED BY "+role+"; DROP ROLE "+role); err != nil {
			t.Error(err)
		}
	})
	u, err := url.Parse(address)
	if err != nil {
		t.Fatal(err)
	}
	u.User = url.User(role)
	return u.String()
}

func TestDatabasesThatWillNotDoAreRefusedInOneLine(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		name    string
		prepare func(*testing.T) (url string)
		args    []string
		code    int
		want    string
	}{
		{"read-only", func(t *testing.T) string {
			u := pgtest.URL(t)
			execute(t, u, "ALTER DATABASE "+pgx.Identifier{databaseOf(t, u)}.Sanitize()+" SET default_transaction_read_only = on")
			return u
		}, nil, exitFailed, "read-only"},
		{"newer schema", func(t *testing.T) string {
			u := pgtest.URL(t)
			execute(t, u, "INSERT INTO rota_schema (version_id, is_applied) VALUES (9999, true)")
			return u
		}, nil, exitSchema, "9999"},
		{"newer schema of the jobs", func(t *testing.T) string {
			u := pgtest.URL(t)
			execute(t, u, "INSERT INTO rota_jobs_schema (version_id, is_applied) VALUES (9999, true)")
			return u
		}, nil, exitSchema, "schema jobs is at version 9999"},
		{"no schema, and none wanted", emptyDatabase, []string{"--migrate", "check"}, exitSchema, "migrate up"},
		{"no schema, and not looked at", emptyDatabase, []string{"--migrate", "off"}, exitFailed, "leadership"},
		{"no rights to read", func(t *testing.T) string { return asLimited(t, pgtest.URL(t)) }, nil, exitFailed, "permission denied for table rota_schema"},
		{"no rights to serve", func(t *testing.T) string { return asLimited(t, pgtest.URL(t)) }, []string{"--migrate", "off"}, exitFailed, "leadership (INSERT, SELECT, UPDATE)"},
		{"no rights to migrate", func(t *testing.T) string { return asLimited(t, emptyDatabase(t)) }, nil, exitFailed, "permission denied"},
		{"unknown user", func(t *testing.T) string {
			u, err := url.Parse(pgtest.URL(t))
			if err != nil {
				t.Fatal(err)
			}
			u.User = url.User("nobody_of_this_name")
			return u.String()
		}, nil, exitFailed, "nobody_of_this_name"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			env := []string{"DATABASE_URL=" + tt.prepare(t)}
			_, stderr, code := runHere(t, env, append([]string{"serve", "--listen", "127.0.0.1:0"}, tt.args...)...)
			lines := complaints(stderr)
			if code != tt.code || len(lines) != 1 || !strings.Contains(lines[0], tt.want) {
				t.Errorf("exit code %d, want %d and one line with %q:\n%s", code, tt.code, tt.want, stderr)
			}
		})
	}
}

func TestUnreachableDatabaseIsRetriedAndThenNamed(t *testing.T) {
	t.Parallel()
	log := Config{}.logger(t.Output())
	err := awaitDatabase(t.Context(), "postgres://rota:hunter2@127.0.0.1:1/rota", time.Second, log)
	if err == nil || !strings.Contains(err.Error(), "not reached within 1s") || strings.Contains(err.Error(), "hunter2") {
		t.Errorf("got %v", err)
	}
	if len(lines(err)) != 1 {
		t.Errorf("more than a line: %v", err)
	}
}

func TestMigrateUpAppliesEachVersionOnceHoweverManyTry(t *testing.T) {
	t.Parallel()
	u := emptyDatabase(t)
	done := make(chan string, 5)
	for range 5 {
		go func() {
			_, stderr, code := runHere(t, []string{"DATABASE_URL=" + u}, "migrate", "up")
			done <- fmt.Sprint(code, strings.Join(complaints(stderr), "\n"))
		}()
	}
	for range 5 {
		if got := <-done; got != "0" {
			t.Errorf("exit code and complaints: %s", got)
		}
	}
	stdout, stderr, code := runHere(t, []string{"DATABASE_URL=" + u}, "migrate", "status")
	if code != 0 || strings.Count(stdout, "current") != len(schemas) {
		t.Errorf("status: exit code %d\n%s%s", code, stdout, stderr)
	}
	assertMigratedOnce(t, u)
}

func assertMigratedOnce(t *testing.T, address string) {
	t.Helper()
	conn, err := pgx.Connect(t.Context(), address)
	if err != nil {
		t.Fatal(err)
	}
	defer closeConn(conn)
	for _, s := range schemas {
		var rows, versions int
		if err := conn.QueryRow(t.Context(), "SELECT count(*), count(DISTINCT version_id) FROM "+s.table).Scan(&rows, &versions); err != nil {
			t.Fatal(err)
		}
		if rows != versions || rows < 2 {
			t.Errorf("%s has %d rows for %d versions", s.table, rows, versions)
		}
	}
}
