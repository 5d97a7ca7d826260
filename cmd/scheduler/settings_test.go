package main

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5"

	"rota/internal/pgtest"
)

func TestConfigSaysWhereEachSettingComesFromAndHidesPasswords(t *testing.T) {
	t.Parallel()
	stdout, stderr, code := command(t, "", []string{
		"DATABASE_URL=postgres://rota:hunter2@db.example/rota?password=hunter3", "ROTA_LEASE=30s", "ROTA_RENEWAL=4s", "ROTA_BY=somebody", "ROTA_DRAIN=",
		"ROTA_PORT_8080_TCP_ADDR=10.0.0.1",
	}, "config", "--renew", "10s", "--json")
	if code != exitOK {
		t.Fatalf("exit code %d: %s", code, stderr)
	}
	if strings.Contains(stdout+stderr, "hunter") {
		t.Errorf("a password is printed: %s%s", stdout, stderr)
	}
	var got struct {
		Settings []setting
		Warnings []string
	}
	if err := json.Unmarshal([]byte(stdout), &got); err != nil {
		t.Fatal(err)
	}
	from := map[string]string{}
	for _, s := range got.Settings {
		from[s.Flag] = s.Value + " from " + s.From
	}
	for flag, want := range map[string]string{
		"--database-url": "postgres://rota:xxxxx@db.example/rota from environment", "--lease": "30s from environment",
		"--renew": "10s from flag", "--drain": "25s from default", "--admin-groups": "rota-admins from default", "--jobs": " from default",
	} {
		if from[flag] != want {
			t.Errorf("%s is %q, want %q", flag, from[flag], want)
		}
	}
	if len(got.Warnings) != 2 || !strings.HasPrefix(got.Warnings[0], "ROTA_PORT_8080_TCP_ADDR ") || !strings.Contains(got.Warnings[0], "Kubernetes") ||
		!strings.HasPrefix(got.Warnings[1], "ROTA_RENEWAL ") || strings.Contains(got.Warnings[1], "Kubernetes") {
		t.Errorf("the warnings are %q", got.Warnings)
	}
	if !strings.Contains(stderr, "ROTA_RENEWAL names no setting") {
		t.Errorf("stderr is %q", stderr)
	}
}

func TestConfigWithWrongSettingsPrintsThemAndFails(t *testing.T) {
	t.Parallel()
	stdout, stderr, code := command(t, "", nil, "config", "--lease", "1s")
	if code != exitUsage || !strings.Contains(stdout, "--lease") || !strings.Contains(stderr, "lease 1s") {
		t.Errorf("exit code %d, %s, %s", code, stdout, stderr)
	}
}

func TestSQLThatIsPrintedDoesWhatMigrateDoes(t *testing.T) {
	t.Parallel()
	url := emptyDatabase(t)
	env := []string{"DATABASE_URL=" + url}
	text, stderr, code := command(t, "", env, "migrate", "sql")
	if code != exitOK {
		t.Fatalf("exit code %d: %s", code, stderr)
	}
	if whole, _, _ := command(t, "", nil, "migrate", "sql", "--all"); whole != text {
		t.Error("for an empty database it prints something else than with --all")
	}
	apply(t, url, text)
	assertMigratedOnce(t, url)
	if again, stderr, code := command(t, "", env, "migrate", "sql"); again != "" || code != exitOK || !strings.Contains(stderr, "up to date") {
		t.Errorf("afterwards it prints %q, %s, exit code %d", again, stderr, code)
	}
	if out, stderr, code := command(t, "", env, "migrate", "up"); code != exitOK || strings.Contains(out+stderr, "applied") {
		t.Errorf("migrate up has something left to do: %s%s, exit code %d", out, stderr, code)
	}
	if got, want := objects(t, url), objects(t, pgtest.URL(t)); got != want {
		t.Errorf("by hand there is\n%s\nand by migrate\n%s", got, want)
	}
}

// apply does as psql does: what is sent at once is one transaction, so that each statement outside of one
// is sent by itself.
func apply(t *testing.T, url, text string) {
	t.Helper()
	for part := range strings.SplitSeq(text, "\n-- 0") { // the heads of migrations, without which they work
		if _, part, found := strings.Cut(part, "\nBEGIN;\n"); found {
			execute(t, url, "BEGIN;"+part)
			continue
		}
		_, body, found := strings.Cut(part, " of the schema ")
		if _, body, _ = strings.Cut(body, "\n"); !found {
			body = part
		}
		for statement := range strings.SplitAfterSeq(body, ";\n") {
			execute(t, url, statement)
		}
	}
}

// objects are the tables with their columns, the indexes, the triggers and the functions.
func objects(t *testing.T, url string) string {
	t.Helper()
	conn, err := pgx.Connect(t.Context(), url)
	if err != nil {
		t.Fatal(err)
	}
	defer closeConn(conn)
	rows, err := conn.Query(t.Context(), `
		SELECT table_name || '.' || column_name || ' ' || data_type || is_nullable || coalesce(column_default, '') AS o
		  FROM information_schema.columns WHERE table_schema = 'public' AND table_name <> 'rota_migration_lock'
		UNION ALL SELECT indexdef FROM pg_indexes WHERE schemaname = 'public' AND tablename <> 'rota_migration_lock'
		UNION ALL SELECT pg_get_triggerdef(oid) FROM pg_trigger WHERE NOT tgisinternal
		UNION ALL SELECT pg_get_functiondef(oid) FROM pg_proc WHERE pronamespace = 'public'::regnamespace
		ORDER BY o`)
	if err != nil {
		t.Fatal(err)
	}
	all, err := pgx.CollectRows(rows, pgx.RowTo[string])
	if err != nil {
		t.Fatal(err)
	}
	return strings.Join(all, "\n")
}

func TestOnlyWhatIsMissingIsPrinted(t *testing.T) {
	t.Parallel()
	url := pgtest.URL(t)
	newest, err := schemas[0].known()
	if err != nil {
		t.Fatal(err)
	}
	execute(t, url, `DELETE FROM rota_schema WHERE version_id = $1`, newest)
	text, stderr, code := command(t, "", []string{"DATABASE_URL=" + url}, "migrate", "sql")
	if code != exitOK || strings.Count(text, "INSERT INTO rota_schema") != 1 || strings.Contains(text, "CREATE TABLE leadership") {
		t.Errorf("exit code %d, %s\n%s", code, stderr, text)
	}
}
