package main

import (
	"bytes"
	"os"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/spf13/pflag"

	"rota/internal/registry"
)

// runHere runs a command in this process.
func runHere(t *testing.T, env []string, args ...string) (stdout, stderr string, code int) {
	t.Helper()
	var out, talk bytes.Buffer
	code = run(t.Context(), args, append([]string{"ROTA_WITNESS=off"}, env...), strings.NewReader(""), &out, &talk)
	return out.String(), talk.String(), code
}

const somewhere = "DATABASE_URL=postgres://rota@127.0.0.1:1/rota"

func TestWrongSettingsAreRefusedInOneLineEach(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		name string
		env  []string
		args []string
		want []string
	}{
		{"short lease", nil, []string{"--lease", "14s"}, []string{"three renewal intervals"}},
		{"zero lease", nil, []string{"--lease", "0"}, []string{"lease 0s"}},
		{"negative lease", nil, []string{"--lease", "-15s"}, []string{"lease -15s"}},
		{"zero renewal", nil, []string{"--renew", "0"}, []string{"renewal interval 0s"}},
		{"negative renewal", nil, []string{"--renew", "-1s"}, []string{"renewal interval -1s"}},
		{"negative drain", nil, []string{"--drain", "-1s"}, []string{"drain -1s"}},
		{"zero grace", nil, []string{"--grace", "0"}, []string{"grace 0s"}},
		{"no duration", nil, []string{"--lease", "soon"}, []string{`"soon"`}},
		{"no duration in a variable", []string{"ROTA_LEASE=soon"}, nil, []string{"ROTA_LEASE"}},
		{"two variables", []string{"ROTA_LEASE=x", "ROTA_RENEW=y"}, nil, []string{"ROTA_LEASE", "ROTA_RENEW"}},
		{"migrate", nil, []string{"--migrate", "maybe"}, []string{`migrate "maybe"`}},
		{"log", nil, []string{"--log", "xml"}, []string{`log "xml"`}},
		{"no name", nil, []string{"--name", ""}, []string{"name is empty"}},
		{"name of two lines", nil, []string{"--name", "pod\n7"}, []string{`name "pod\n7"`}},
		{"name with a slash", nil, []string{"--name", "pod/7"}, []string{`name "pod/7"`}},
		{"name of no text", []string{"ROTA_NAME=pod\xff"}, nil, []string{"printable"}},
		{"long name", nil, []string{"--name", strings.Repeat("é", 101)}, []string{"at most 100"}},
		{"listen", nil, []string{"--listen", "8080"}, []string{`listen "8080"`}},
		{"an impossible port", nil, []string{"--listen", "127.0.0.1:99999"}, []string{`listen "127.0.0.1:99999": it must be host:port, with a port from 0 to 65535`}},
		{"no such way to enter", nil, []string{"--auth", "ldap"}, []string{`auth "ldap": it must be none, basic, token or proxy`}},
		{"passwords of no file", nil, []string{"--auth", "basic"}, []string{"auth basic: auth-file must name the file"}},
		{"a file that is not there", nil, []string{"--auth", "token", "--auth-file", "/nowhere"}, []string{"auth-file: open /nowhere"}},
		{"a file that nobody reads", nil, []string{"--auth-file", "/nowhere"}, []string{`auth-file "/nowhere": auth none reads no file`}},
		{"a proxy that is not named", nil, []string{"--auth", "proxy"}, []string{"auth proxy: trusted-proxies must say"}},
		{"proxies", nil, []string{"--trusted-proxies", "proxy.example,0.0.0.0/0"}, []string{`trusted-proxies "proxy.example"`, "0.0.0.0/0: it would trust everybody"}},
		{"hosts", nil, []string{"--allowed-hosts", "https://rota.example"}, []string{`allowed-hosts "https://rota.example"`}},
		{"an address of the page", nil, []string{"--external-url", "ops.example/rota"}, []string{"external-url:"}},
		{"one with a password", nil, []string{"--external-url", "https://a:hunter2@ops.example/"}, []string{"external-url: it holds a user"}},
		{"one below a page's path", nil, []string{"--external-url", "https://ops.example/jobs/"}, []string{"its path begins with /jobs"}},
		{"the metrics", nil, []string{"--metrics-access", "none"}, []string{`metrics-access "none"`}},
		{"unknown flag", nil, []string{"--leese", "15s"}, []string{"--leese"}},
		{"an argument", nil, []string{"now"}, []string{`"now"`}},
		{"several at once", nil, []string{"--lease", "1s", "--grace", "0", "--log", "xml"}, []string{"lease 1s", "grace 0s", `log "xml"`}},
		{"no database", []string{"DATABASE_URL="}, nil, []string{"DATABASE_URL"}},
		{"not an address", []string{"DATABASE_URL=postgres://rota:hunter2@127.0.0.1:port/rota"}, nil, []string{"address cannot be read"}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			env := append([]string{somewhere}, tt.env...)
			stdout, stderr, code := runHere(t, env, append([]string{"serve"}, tt.args...)...)
			if lines := complaints(stderr); code != exitUsage || stdout != "" || len(lines) != len(tt.want) {
				t.Fatalf("exit code %d, want %d; stdout:\n%sstderr, want %d lines:\n%s", code, exitUsage, stdout, len(tt.want), stderr)
			}
			for _, w := range tt.want {
				if !strings.Contains(stderr, w) {
					t.Errorf("it does not say %q:\n%s", w, stderr)
				}
			}
			if strings.Contains(stderr, "hunter2") {
				t.Errorf("it tells the password:\n%s", stderr)
			}
		})
	}
}

// A variable is refused by its name and value, and with what it must be, as a flag is.
func TestWrongVariablesAreToldAsFlagsAre(t *testing.T) {
	t.Parallel()
	for given, want := range map[string]string{
		"ROTA_LEASE=15":                       `ROTA_LEASE "15": it must be a duration with its unit, as in 90s or 2h30m`,
		"ROTA_KEEP_HISTORY=99999999999h":      `ROTA_KEEP_HISTORY "99999999999h": it must be a duration with its unit`,
		"ROTA_KEEP_RUNS=many":                 `ROTA_KEEP_RUNS "many": it must be a whole number`,
		"ROTA_KEEP_RUNS=99999999999999999999": `ROTA_KEEP_RUNS "99999999999999999999": it must be a whole number that is nearer to zero`,
		"ROTA_NO_WORK=perhaps":                `ROTA_NO_WORK "perhaps": it must be true or false`,
		"ROTA_JOBS=a\"b":                      `ROTA_JOBS "a\"b": it must be a list separated by commas or line breaks`,
		"ROTA_GRACE=a\nb":                     `ROTA_GRACE "a\nb": it must be a duration`,
	} {
		_, stderr, code := runHere(t, []string{somewhere, given}, "serve")
		if lines := complaints(stderr); code != exitUsage || len(lines) != 1 || !strings.Contains(lines[0], want) {
			t.Errorf("%q: exit code %d, want one line with %q:\n%s", given, code, want, stderr)
		}
		for _, raw := range []string{"time:", "strconv", "invalid argument", "bare"} {
			if strings.Contains(stderr, raw) {
				t.Errorf("%q: it gives away %q:\n%s", given, raw, stderr)
			}
		}
	}
}

// A manifest has lists in lines of their own, none of which may be dropped.
func TestListsMayStandInLines(t *testing.T) {
	t.Parallel()
	for text, want := range map[string][]string{
		"a,b":                  {"a", "b"},
		"a\nb,c\n":             {"a", "b", "c"},
		"a,\nb,\n":             {"a", "b"},
		"\n":                   {},
		"":                     {},
		"\"cn=x,dc=y\"\nb\"\"": nil,
		"\"cn=x,dc=y\"\r\nb":   {"cn=x,dc=y", "b"},
		"a,,b":                 {"a", "", "b"},
	} {
		cfg := Config{Jobs: []string{"default"}}
		flags := pflag.NewFlagSet("x", pflag.ContinueOnError)
		listFlag(flags, &cfg.Jobs, "jobs", "x")
		switch err := flags.Set("jobs", text); {
		case want == nil && err == nil:
			t.Errorf("%q is taken for %q", text, cfg.Jobs)
		case want != nil && (err != nil || !slices.Equal(cfg.Jobs, want)):
			t.Errorf("%q is taken for %q, %v, want %q", text, cfg.Jobs, err, want)
		}
	}
	_, stderr, code := runHere(t, []string{somewhere, "ROTA_TRUSTED_PROXIES=10.0.0.1\n10.0.0.x"}, "serve")
	if code != exitUsage || !strings.Contains(stderr, `trusted-proxies "10.0.0.x": it must be an address or a range`) {
		t.Errorf("exit code %d:\n%s", code, stderr)
	}
}

// Durations are as people write them.
func TestSettingsSayDurationsWithoutEmptyUnits(t *testing.T) {
	t.Parallel()
	stdout, _, _ := runHere(t, []string{somewhere, "ROTA_DRAIN=5400s"}, "config")
	help, _, _ := runHere(t, nil, "serve", "--help")
	if !strings.Contains(stdout, " 720h ") || !strings.Contains(stdout, " 1h30m ") || !strings.Contains(help, "(default 720h)") || strings.Contains(stdout+help, "m0s") {
		t.Errorf("config:\n%s\nhelp:\n%s", stdout, help)
	}
}

func TestFlagsWinOverVariablesAndTheseOverDefaults(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		name string
		env  []string
		args []string
		want time.Duration
	}{
		{"default", nil, nil, 15 * time.Second},
		{"variable", []string{"ROTA_LEASE=30s"}, nil, 30 * time.Second},
		{"empty variable", []string{"ROTA_LEASE="}, nil, 15 * time.Second},
		{"flag", []string{"ROTA_LEASE=30s"}, []string{"--lease", "40s"}, 40 * time.Second},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			cfg := Defaults()
			cmd := serveCommand(tt.env)
			cmd.ResetFlags()
			serveFlags(cmd.Flags(), &cfg)
			if err := cmd.ParseFlags(tt.args); err != nil {
				t.Fatal(err)
			}
			if err := fromEnvironment(cmd, tt.env); err != nil {
				t.Fatal(err)
			}
			if cfg.Lease != tt.want {
				t.Errorf("lease %v, want %v", cfg.Lease, tt.want)
			}
		})
	}
}

func TestPasswordsAreNeverShown(t *testing.T) {
	t.Parallel()
	for _, url := range []string{
		"postgres://rota:hunter2@db/rota",
		"postgres://rota@db/rota?password=hunter2&sslmode=require",
		"host=db user=rota password=hunter2",
	} {
		if shown := (Config{DatabaseURL: url}).masked(); strings.Contains(shown, "hunter2") {
			t.Errorf("%s is shown as %s", url, shown)
		}
	}
}

// The README's table of settings and Defaults are read by the same people.
func TestReadmeTellsTheDefaults(t *testing.T) {
	t.Parallel()
	readme, err := os.ReadFile("../../README.md")
	if err != nil {
		t.Fatal(err)
	}
	d := Defaults()
	for variable, value := range map[string]string{
		"ROTA_LISTEN": d.Listen, "ROTA_LEASE": d.Lease.String(), "ROTA_RENEW": d.Renew.String(),
		"ROTA_DRAIN": d.Drain.String(), "ROTA_GRACE": d.Grace.String(), "ROTA_MIGRATE": d.Migrate, "ROTA_LOG": d.Log,
		"ROTA_KEEP_HISTORY": registry.Span(d.KeepHistory), "ROTA_KEEP_RUNS": strconv.Itoa(d.KeepRuns),
	} {
		if row := "| `" + variable + "` | `" + value + "` |"; !strings.Contains(string(readme), row) {
			t.Errorf("README.md lacks %s", row)
		}
	}
	for line := range strings.Lines(strings.SplitAfterN(exitCodes, "\n", 2)[1]) {
		code := strings.Fields(line)[0]
		if !strings.Contains(string(readme), "| "+code+" ") {
			t.Errorf("README.md lacks the exit code %s", code)
		}
	}
}
