package main

import (
	"context"
	"encoding/json"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"rota/internal/pgtest"
)

// led makes an owner, who is a member, lead a lease.
func (e eye) led(name, owner string, epoch int64) {
	e.t.Helper()
	for _, sql := range []string{
		`INSERT INTO leadership (job_name, owner, expires_at, epoch) VALUES ($1, $2, clock_timestamp() + interval '1 hour', $3)`,
		`INSERT INTO replicas (id, host, pid, version, started_at, seen_at, expires_at)
			SELECT $2, split_part($2, '/', 1), 1, $1, now(), now(), now() + interval '1 hour' WHERE $3 > 0 ON CONFLICT DO NOTHING`,
	} {
		if _, err := e.Exec(e.t.Context(), sql, pgx.QueryExecModeSimpleProtocol, name, owner, epoch); err != nil {
			e.t.Fatal(err)
		}
	}
}

// Bad input is told in one line, with the exit code for it, and changes nothing.
func TestWrongOrdersAreRefusedInOneLine(t *testing.T) {
	t.Parallel()
	url := pgtest.URL(t)
	db := lookAt(t, url)
	db.led("bridge_health", "a/1", 7)
	db.led("symbol_sync.2of2", "a/2", 7)
	db.execute(`INSERT INTO job_shards (job, n, epoch_high) VALUES ('symbol_sync', 2, 7)`)
	db.execute(`INSERT INTO leadership (job_name, owner, expires_at, epoch) VALUES ('symbol_sync', '', 'infinity', 3)`)
	const (
		because = "--reason=x"
		ofShard = `that is the lease of a shard; name its job, "symbol_sync"`
	)
	for _, tt := range []struct {
		args string
		code int
		want string
	}{
		{"jobs run", exitUsage, "accepts 1 arg"},
		{"jobs run nothing", exitUsage, `there is no job "nothing"`},
		{"jobs run bridge_health --args [1]", exitUsage, "no object"},
		{"jobs run bridge_health --args {", exitUsage, "no JSON"},
		{`jobs run bridge_health --args {"Nothing":1}`, exitUsage, "Nothing"},
		{"jobs run bridge_health --by=", exitUsage, "say who"},
		{"jobs pause bridge_health", exitUsage, "say why"},
		{"jobs pause " + because, exitUsage, "no job is named"},
		{"jobs pause * " + because, exitUsage, "give --all"},
		{"jobs pause nothing " + because, exitUsage, `there is no job "nothing"`},
		{"jobs pause bridge_health --all " + because, exitUsage, "give one of them"},
		{"jobs pause bridge_health --for 1h --until 2999-01-01T00:00:00Z " + because, exitUsage, "give one of them"},
		{"jobs pause bridge_health --for -1h " + because, exitUsage, "must be positive"},
		{"jobs pause bridge_health --for 0 " + because, exitUsage, "must be positive"},
		{"jobs pause bridge_health --for soon " + because, exitUsage, `--for "soon": it must be a duration with its unit`},
		{"jobs pause bridge_health --for 99999999999h " + because, exitUsage, "less than 292 years"},
		{"jobs pause bridge_health --until 0001-01-01T00:00:00Z " + because, exitUsage, "a time with its zone"},
		{"jobs pause bridge_health --reason \u200b", exitUsage, "that nobody sees"},
		{"jobs pause bridge_health --reason " + strings.Repeat("x", 10_000), exitUsage, "has 10000 bytes, and at most 1000"},
		{"jobs pause bridge_health.1of4 " + because, exitUsage, "that is the lease of a shard"},
		{"jobs run brdge_health --shard 2", exitUsage, `there is no job "brdge_health"`},
		{"jobs run bridge_health --shard two", exitUsage, `--shard "two": it must be a whole number`},
		{"leases step-down brdge_health.1of4 " + because, exitUsage, `there is no lease "brdge_health.1of4", nor a job "brdge_health"`},
		{"leases revoke bridge_health.1of4 --yes " + because, exitUsage, "has bridge_health"},
		{"runs list --limit many", exitUsage, `--limit "many": it must be a whole number`},
		{"jobs pause bridge_health --until tomorrow " + because, exitUsage, "a time with its zone"},
		{"jobs pause bridge_health --until 2001-01-01T00:00:00Z " + because, exitUsage, "past by the database's clock"},
		{"jobs resume", exitUsage, "no job is named"},
		{"jobs resume nothing --reason x", exitUsage, `there is no job "nothing"`},
		{"jobs resume bridge_health --reason x", exitFailed, "is not paused"},
		{"jobs resume --all --reason x", exitFailed, "nothing to resume"},
		{"runs", exitUsage, "a further word is missing"},
		{"runs lst", exitUsage, `unknown command "lst" for "scheduler runs": did you mean list?`},
		{"job list", exitUsage, `unknown command "job" for "scheduler": did you mean jobs?`},
		{"everything", exitUsage, `unknown command "everything" for "scheduler": see scheduler --help`},
		{"runs cancel x", exitUsage, "the number of a run"},
		{"runs cancel 0", exitUsage, "the number of a run"},
		{"runs cancel 99999999999999999999", exitUsage, "the number of a run"},
		{"runs cancel 12 --reason x", exitUsage, "there is no run 12"},
		{"leases step-down bridge_health", exitUsage, "say why"},
		{"leases step-down nothing " + because, exitUsage, "there is no lease"},
		{"leases step-down reconciliation " + because, exitFailed, "nobody leads"},
		{"leases revoke bridge_health --yes", exitUsage, "say why"},
		{"leases revoke bridge_health " + because, exitUsage, "not confirmed"},
		{"leases revoke reconciliation --yes " + because, exitFailed, "nobody has led \"reconciliation\" yet"},
		{"leases revoke nothing --yes " + because, exitUsage, "there is no lease"},
		{"leases revoke bridge_health --above -1 --yes " + because, exitUsage, "above -1"},
		{"leases revoke bridge_health --above 9223372036854775807 --yes " + because, exitUsage, "above 9223372036854775807"},
		{"leases revoke bridge_health --above 9223372036854775808 --yes " + because, exitUsage, `--above "9223372036854775808": it must be a whole number that is nearer to zero`},
		{"requests", exitUsage, "a further word is missing"},
		{"requests withdraw x " + because, exitUsage, "the number of a request"},
		{"requests withdraw 1", exitUsage, "say why"},
		{"requests withdraw 1 " + because, exitUsage, "there is no request 1"},
		{"replicas", exitUsage, "a further word is missing"},
		{"replicas drain a/1", exitUsage, "say why"},
		{"replicas drain nothing " + because, exitUsage, "there is no replica"},
		{"replicas drain a " + because, exitUsage, "may be any of 2 replicas"},
		{"leases step-down symbol_sync " + because, exitUsage, "their leases are symbol_sync.1of2 to symbol_sync.2of2"},
		{"leases revoke symbol_sync --yes " + because, exitUsage, "has another count of shards"},
		{"leases step-down symbol_sync.1of3 " + because, exitUsage, "there is no lease"},
		{"jobs run quote_watch", exitUsage, "is continuous"},
		{"jobs show symbol_sync.1of2", exitUsage, ofShard},
		{"jobs next symbol_sync.1of2", exitUsage, ofShard},
		{"jobs run symbol_sync.1of2", exitUsage, ofShard},
		{"jobs pause symbol_sync.1of2 " + because, exitUsage, ofShard},
		{"jobs resume symbol_sync.1of2 " + because, exitUsage, ofShard},
		{"runs list --job symbol_sync.1of2", exitUsage, ofShard},
		{"audit list --job symbol_sync.1of2", exitUsage, ofShard},
		{"jobs show symbol_synk.1of2", exitUsage, "; there are: "},
	} {
		stdout, stderr, code := runHere(t, []string{"DATABASE_URL=" + url}, strings.Fields(tt.args)...)
		said := complaints(stderr)
		if len(said) > 0 && strings.HasPrefix(said[0], "This ends a term") {
			said = said[1:]
		}
		if code != tt.code || stdout != "" || len(said) != 1 || !strings.Contains(said[0], tt.want) {
			t.Errorf("%s: exit code %d, want %d and one line with %q; stdout %q, stderr:\n%s", tt.args, code, tt.code, tt.want, stdout, stderr)
		}
	}
	if n := db.number(`SELECT count(*) FROM audit`) + db.number(`SELECT count(*) FROM requests`) + db.number(`SELECT count(*) FROM pauses`); n != 0 {
		t.Errorf("%d rows were written", n)
	}
	if _, stderr, code := runHere(t, nil, "jobs", "resume", "--all"); code != exitUsage || !strings.Contains(stderr, "no database is named") {
		t.Errorf("exit code %d:\n%s", code, stderr)
	}
}

func TestCommandThatFindsAnOldSchemaSaysSo(t *testing.T) {
	t.Parallel()
	url := emptyDatabase(t)
	for _, args := range []string{
		"jobs pause bridge_health --reason=x", "runs list", "runs show 1", "leases list", "replicas list",
		"jobs show bridge_health", "jobs next bridge_health --last", "audit list",
	} {
		_, stderr, code := runHere(t, []string{"DATABASE_URL=" + url}, strings.Fields(args)...)
		if code != exitSchema || !strings.Contains(stderr, "migrate up") || len(complaints(stderr)) != 1 {
			t.Errorf("%s: exit code %d:\n%s", args, code, stderr)
		}
	}
}

func TestWhatIsNoTextIsAWrongArgument(t *testing.T) {
	t.Parallel()
	url := pgtest.URL(t)
	for _, args := range [][]string{
		{"runs", "list", "--job", "\xff"}, {"leases", "step-down", "\xff", "--reason", "r"}, {"replicas", "drain", "\xff", "--reason", "r"},
	} {
		_, stderr, code := runHere(t, []string{"DATABASE_URL=" + url}, args...)
		if code != exitUsage || !strings.Contains(stderr, "UTF-8") || len(complaints(stderr)) != 1 {
			t.Errorf("%q: exit code %d:\n%s", args, code, stderr)
		}
	}
}

// Results go to stdout and talk to stderr; --json prints one object.
func TestOrdersPrintTheirResults(t *testing.T) {
	t.Parallel()
	url := pgtest.URL(t)
	db := lookAt(t, url)
	db.led("bridge_health", "a/1", 7)
	db.led("symbol_sync", "b/2", 7)
	db.execute(`INSERT INTO abilities VALUES ('x', '{bridge_health}')`)
	db.execute(`UPDATE replicas SET ability = 'x'`)
	var run int
	if err := db.QueryRow(t.Context(), `INSERT INTO runs (lease, job, tick, epoch, owner)
		VALUES ('bridge_health', 'bridge_health', now(), 7, 'a/1') RETURNING id`).Scan(&run); err != nil {
		t.Fatal(err)
	}
	if run != 1 {
		t.Fatalf("run %d", run)
	}
	pgtest.Note(t, db.Pool)
	for _, tt := range []struct {
		args, stdout, stderr string
		member               string // of the object
		value                any
	}{
		{"jobs run bridge_health --key k", "request 1\n", "it waits for the run under way on a/1", "request", 1.0},
		{"jobs run bridge_health --key k", "request 1\n", "was made before", "existed", true},
		{"jobs pause symbol_sync --reason x", "symbol_sync: paused until resumed\n", "", "replaced", "symbol_sync"},
		{"jobs pause symbol_sync --until 2999-01-01T01:00:00+01:00 --reason x", "symbol_sync: paused until 2999-01-01 00:00:00Z\n", "this replaces the pause by", "replaced", "symbol_sync"},
		{"jobs pause --all --for 1h --reason x", "all jobs: paused until 2", "", "replaced", "*"},
		{"jobs resume symbol_sync --reason x", "symbol_sync: resumed\n", "it stays paused", "", nil},
		{"jobs resume --all --reason x", "all jobs: resumed\n", "", "", nil},
		{"runs cancel 1 --reason x", "request ", "its context ends on a/1", "run", 1.0},
		{"leases step-down bridge_health --reason x", "request ", "another takes over", "epoch", 7.0},
		{"replicas drain b --reason x", "request ", "it gives up all that it leads", "replica", "b/2"},
		{"leases revoke bridge_health --yes --reason x", "bridge_health: epoch 8\n", "the term of a/1 under epoch 7 is over", "", nil},
	} {
		env := []string{"DATABASE_URL=" + url}
		stdout, stderr, code := runHere(t, env, strings.Fields(tt.args)...)
		if code != exitOK || !strings.HasPrefix(stdout, tt.stdout) || !strings.Contains(stderr, tt.stderr) || tt.stderr == "" && stderr != "" {
			t.Fatalf("%s: exit code %d, stdout %q, stderr %q", tt.args, code, stdout, stderr)
		}
		if tt.member == "" {
			continue
		}
		stdout, stderr, code = runHere(t, env, append(strings.Fields(tt.args), "--json")...)
		var got map[string]any
		if err := json.Unmarshal([]byte(stdout), &got); err != nil || code != exitOK || stderr != "" {
			t.Fatalf("%s --json: exit code %d, %v, stderr %q:\n%s", tt.args, code, err, stderr, stdout)
		}
		value := got[tt.member]
		if inner, ok := value.(map[string]any); ok {
			value = inner["job"]
		}
		if value != tt.value {
			t.Errorf("%s --json: %s is %v, want %v:\n%s", tt.args, tt.member, value, tt.value, stdout)
		}
	}
	if n := db.number(`SELECT count(*) FROM audit WHERE via <> 'cli' OR actor <> $1`, operator()); n != 0 {
		t.Errorf("%d lines of the audit are of another than %s", n, operator())
	}
}

func TestRevokeIsConfirmedByTypingTheName(t *testing.T) {
	t.Parallel()
	url := pgtest.URL(t)
	db := lookAt(t, url)
	db.led("bridge_health", "a/1", 7)
	for typed, want := range map[string]int{"yes\n": exitUsage, "": exitUsage, " bridge_health \n": exitOK} {
		var out, talk strings.Builder
		code := run(t.Context(), []string{"leases", "revoke", "bridge_health", "--reason=x"}, []string{"DATABASE_URL=" + url},
			strings.NewReader(typed), &out, &talk)
		if code != want || !strings.Contains(talk.String(), "Type the name") {
			t.Errorf("%q typed: exit code %d, want %d: %s", typed, code, want, talk.String())
		}
	}
}

// --wait tells how a run ended by the exit code.
func TestRunNowWaitsForTheRun(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		name, sql string // what becomes of request 1
		code      int
		stdout    string
		stderr    string
	}{
		{"success", `INSERT INTO runs (lease, job, tick, epoch, owner, request_id, ended_at, outcome)
			VALUES ('bridge_health', 'bridge_health', now(), 1, 'a/1', 1, now(), 'success')`, exitOK, "run 1: success\n", "attempt 1, has begun on a/1"},
		{"failure", `INSERT INTO runs (lease, job, tick, epoch, owner, request_id, ended_at, outcome, error)
			VALUES ('bridge_health', 'bridge_health', now(), 1, 'a/1', 1, now(), 'cancelled', 'by bob')`, exitRun, "run 1: cancelled\n", "run 1 of bridge_health: cancelled: by bob"},
		{"a later attempt", `INSERT INTO runs (lease, job, tick, epoch, owner, request_id, attempt, ended_at, outcome, error)
			VALUES ('bridge_health', 'bridge_health', now(), 1, 'a/1', 1, 1, now(), 'lost', 'x'), ('bridge_health', 'bridge_health', now(), 2, 'b/1', 1, 2, now(), 'success', NULL)`, exitOK, "run 2: success\n", ""},
		{"refusal by the leader", `UPDATE requests SET done_at = now(), result = 'refused: no such field'`, exitFailed, "", "request 1 was not run: refused: no such field"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			url := pgtest.URL(t)
			db := lookAt(t, url)
			done := make(chan struct{})
			go func() {
				defer close(done)
				eventually(t, 30*time.Second, "it was asked for", func() bool { return db.number(`SELECT count(*) FROM requests`) == 1 })
				if _, err := db.Exec(context.Background(), tt.sql); err != nil {
					t.Error(err)
				}
			}()
			stdout, stderr, code := runHere(t, []string{"DATABASE_URL=" + url}, "jobs", "run", "bridge_health", "--wait")
			<-done
			if code != tt.code || stdout != tt.stdout || !strings.Contains(stderr, tt.stderr) || !strings.Contains(stderr, "requests withdraw 1 ") {
				t.Errorf("exit code %d, want %d; stdout %q, stderr:\n%s", code, tt.code, stdout, stderr)
			}
		})
	}
}
