package main

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	"rota/internal/pgtest"
)

// diagnosis runs doctor, and returns its findings by check.
func diagnosis(t *testing.T, url string, args ...string) (found map[string]finding, code int) {
	t.Helper()
	stdout, stderr, code := command(t, "", []string{"DATABASE_URL=" + url}, append([]string{"doctor", "--json"}, args...)...)
	var got struct {
		Well     bool
		Findings []finding
	}
	if err := json.Unmarshal([]byte(stdout), &got); err != nil {
		t.Fatalf("%v: %s%s", err, stdout, stderr)
	}
	found = map[string]finding{}
	for _, f := range got.Findings {
		found[f.Check] = f
		if (f.State == fault || f.State == doubt) && f.Fix == "" {
			t.Errorf("%s is a %s and has no fix: %s", f.Check, f.State, f.Found)
		}
	}
	if got.Well != (code == exitOK) {
		t.Errorf("well is %v, the exit code %d", got.Well, code)
	}
	return found, code
}

func stateIs(t *testing.T, found map[string]finding, check, state, words string) {
	t.Helper()
	if f := found[check]; f.State != state || !strings.Contains(f.Found+f.Fix, words) {
		t.Errorf("%s is %+v, want %s with %q", check, f, state, words)
	}
}

func TestDoctorFindsNothingWhereAllIsWell(t *testing.T) {
	t.Parallel()
	url := pgtest.URL(t)
	replica := launch(t, url, "").serving()
	found, code := diagnosis(t, url, "--listen", replica.probeAddress())
	if code != exitOK {
		t.Errorf("exit code %d", code)
	}
	for check, words := range map[string]string{
		"reach": "connected in", "server": "PostgreSQL", "schema": "up to date", "rights": "all that a replica needs",
		"latency": "round trip", "pooler": "none", "notifications": "arrive", "clock": "database's", "connections": "in use", "page": "is ready at",
	} {
		stateIs(t, found, check, well, words)
	}
	stateIs(t, found, "durability", doubt, "fsync is off") // a server for tests
	text, _, _ := command(t, "", []string{"DATABASE_URL=" + url}, "doctor")
	if !strings.Contains(text, "-> after a crash of such a server") {
		t.Errorf("the fix is not printed with its finding:\n%s", text)
	}
}

func TestDoctorNamesEachFaultWithItsFix(t *testing.T) {
	t.Parallel()
	found, code := diagnosis(t, "postgres://somebody@127.0.0.1:1/rota?connect_timeout=2")
	if code != exitFailed {
		t.Errorf("exit code %d", code)
	}
	stateIs(t, found, "reach", fault, "whether the server runs")
	stateIs(t, found, "page", unknown, "no replica answers")

	url := emptyDatabase(t)
	found, code = diagnosis(t, url)
	if code != exitOK {
		t.Errorf("an empty database: exit code %d", code)
	}
	stateIs(t, found, "schema", doubt, "brings it up to date")
	found, code = diagnosis(t, url, "--migrate", "check")
	if code != exitSchema {
		t.Errorf("an empty database that is not migrated: exit code %d", code)
	}
	stateIs(t, found, "schema", fault, "migrate up")

	newer := pgtest.URL(t)
	execute(t, newer, `INSERT INTO rota_schema (version_id, is_applied) VALUES (9999, true)`)
	found, code = diagnosis(t, newer)
	if code != exitSchema {
		t.Errorf("a newer schema: exit code %d", code)
	}
	stateIs(t, found, "schema", fault, "newer binary")

	full := pgtest.URL(t)
	execute(t, full, fmt.Sprintf(`ALTER DATABASE %q SET default_transaction_read_only = on`, databaseOf(t, full)))
	found, _ = diagnosis(t, full)
	stateIs(t, found, "server", fault, "read-only")

	if _, stderr, code := command(t, "", nil, "doctor"); code != exitUsage || !strings.Contains(stderr, "no database is named") {
		t.Errorf("without a database: exit code %d, %s", code, stderr)
	}
}
