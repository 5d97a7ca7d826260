package main

import (
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/prometheus/client_golang/prometheus/testutil/promlint"
	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"rota/internal/pgtest"
)

//go:generate env UPDATE_REFERENCE=1 go test -count=1 -run ^TestReference .

// reference compares a page of docs/reference with what the code says, or writes it where go
// generate asks for that.
func reference(t *testing.T, name, want string) {
	t.Helper()
	file := filepath.Join("..", "..", "docs", "reference", name)
	if os.Getenv("UPDATE_REFERENCE") != "" {
		if err := os.WriteFile(file, []byte(want), 0o644); err != nil { //nolint:gosec // a document
			t.Fatal(err)
		}
		return
	}
	got, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(want, string(got)); diff != "" {
		t.Errorf("docs/reference/%s is not what the code says; go generate ./cmd/scheduler writes it (-code +page):\n%s", name, diff)
	}
}

const metricsHead = `# Metrics

<!-- Written by go generate ./cmd/scheduler from what a replica exports. -->

Every replica serves these at ` + "`/metrics`" + `. Names, labels and meanings are a contract: they change with a line in the
changelog only.

Two kinds are to be told apart. What a replica counts is its own, and is **summed** over the replicas. What the rows of
the database say is the same on every replica, and of it the **max** or **min** is taken: its help says *by the
database*, and ` + "`rota_status_timestamp_seconds`" + ` says how old it is. ` + "`shard`" + ` is empty for a job that has one lease.

Beside them there are those of Go (` + "`go_`" + `) and of the process (` + "`process_`" + `).

| metric | type | labels | what it is |
|---|---|---|---|
`

// Names, labels and help of the metrics are those that users were told; the series that alarms rest
// on exist from the start.
func TestReferenceOfTheMetricsIsWhatAReplicaExports(t *testing.T) {
	t.Parallel()
	url := pgtest.URL(t)
	replica := launch(t, url, "slow").serving()
	lookAt(t, url).running("slow")
	text := ""
	eventually(t, 30*time.Second, "it tells of the run and of being asked", func() bool {
		_, text = replica.probe("/metrics")
		return strings.Contains(text, `rota_run_started_timestamp_seconds{job_name="slow"`) && strings.Contains(text, "rota_http_requests_total{")
	})
	ours := regexp.MustCompile(`(?m)^(# (HELP|TYPE) )?rota_.*\n`).FindAllString(text, -1)
	problems, err := promlint.New(strings.NewReader(strings.Join(ours, ""))).Lint()
	if err != nil || len(problems) > 0 {
		t.Errorf("the linter says %v, %v", problems, err)
	}
	reference(t, "metrics.md", metricsHead+metricRows(t, ours))
}

var (
	metaLine   = regexp.MustCompile(`^# (HELP|TYPE) (\S+) (.*)\n$`)
	sampleLine = regexp.MustCompile(`^([a-z0-9_]+?)(?:_bucket|_sum|_count)?(?:\{(.*)\})? \S+\n$`)
	labelName  = regexp.MustCompile(`([a-z_]+)="`)
)

// metricRows are the rows of a table, one for each metric of a scrape.
func metricRows(t *testing.T, lines []string) string {
	t.Helper()
	type metric struct{ kind, help, labels string }
	all := map[string]*metric{}
	name := func(n string) *metric {
		if all[n] == nil {
			all[n] = new(metric)
		}
		return all[n]
	}
	for _, line := range lines {
		if m := metaLine.FindStringSubmatch(line); m != nil {
			if m[1] == "HELP" {
				name(m[2]).help = m[3]
			} else {
				name(m[2]).kind = m[3]
			}
			continue
		}
		m := sampleLine.FindStringSubmatch(line)
		if m == nil {
			t.Fatalf("what is this? %s", line)
		}
		var labels []string
		for _, l := range labelName.FindAllStringSubmatch(m[2], -1) {
			if l[1] != "le" {
				labels = append(labels, "`"+l[1]+"`")
			}
		}
		name(m[1]).labels = strings.Join(labels, ", ")
	}
	var table strings.Builder
	var names []string
	for n := range all {
		names = append(names, n)
	}
	slices.Sort(names)
	for _, n := range names {
		fmt.Fprintf(&table, "| `%s` | %s | %s | %s |\n", n, all[n].kind, all[n].labels, all[n].help)
	}
	return table.String()
}

const settingsHead = `# Settings

<!-- Written by go generate ./cmd/scheduler from the flags of serve. -->

Every flag of ` + "`serve`" + ` is an environment variable too. A flag wins over its variable, a variable over the default, and an
empty variable is none. ` + "`scheduler config`" + ` prints what is in force and where each comes from, and warns of variables that
begin with ` + "`ROTA_`" + ` and name nothing. What each trades is in [operating.md](../operating.md).

The database is named by ` + "`DATABASE_URL`" + `, or by the ` + "`PG*`" + ` variables that ` + "`psql`" + ` reads too.

| variable | flag | default | what it is |
|---|---|---|---|
`

func TestReferenceOfTheSettingsIsWhatServeTakes(t *testing.T) {
	t.Parallel()
	var text strings.Builder
	text.WriteString(settingsHead)
	settingFlags().VisitAll(func(f *pflag.Flag) {
		if len(f.Usage) < 10 {
			t.Errorf("--%s does not say what it is", f.Name)
		}
		fallback := asGiven(f, f.DefValue)
		switch {
		case f.Name == "name":
			fallback = "the host's name"
		case fallback != "":
			fallback = "`" + fallback + "`"
		default:
			fallback = ""
		}
		_, usage := pflag.UnquoteUsage(f)
		fmt.Fprintf(&text, "| `%s` | `--%s` | %s | %s |\n", variable(f.Name), f.Name, fallback, usage)
	})
	reference(t, "settings.md", text.String())
}

const commandsHead = `# Commands

<!-- Written by go generate ./cmd/scheduler from the commands' own help. -->

Results go to stdout and all else to stderr. Flags that name the database, and ` + "`--help`" + `, are left out.

`

func TestReferenceOfTheCommandsIsWhatTheySay(t *testing.T) {
	t.Parallel()
	var text strings.Builder
	text.WriteString(commandsHead)
	var visit func(cmd *cobra.Command)
	visit = func(cmd *cobra.Command) {
		if cmd.Hidden || cmd.Name() == "help" || cmd.Parent() != nil && cmd.Parent().Name() == "completion" {
			return
		}
		if cmd.HasParent() && (!cmd.HasSubCommands() || cmd.Name() == "completion") {
			if cmd.Short == "" {
				t.Errorf("%s does not say what it does", cmd.CommandPath())
			}
			describeCommand(&text, cmd)
		}
		for _, sub := range cmd.Commands() {
			visit(sub)
		}
	}
	visit(newRoot(nil, io.Discard))
	text.WriteString("## Exit codes\n\n```text\n" + strings.TrimSpace(exitCodes) + "\n```\n")
	reference(t, "commands.md", text.String())
}

// describeCommand writes a command's own words. What depends on the machine, a default above all, is
// left out.
func describeCommand(text *strings.Builder, cmd *cobra.Command) {
	about := cmd.Long
	if about == "" {
		about = cmd.Short + "."
	}
	fmt.Fprintf(text, "## %s\n\n```text\n%s\n```\n\n%s\n\n", cmd.CommandPath(), cmd.UseLine(), strings.TrimSpace(about))
	var flags []string
	cmd.LocalFlags().VisitAll(func(f *pflag.Flag) {
		if f.Name == "database-url" || f.Name == "help" || f.Hidden {
			return
		}
		if cmd.Name() != "serve" && settingFlags().Lookup(f.Name) != nil && (cmd.Name() == "check" || cmd.Name() == "config" || cmd.Name() == "doctor") {
			return
		}
		_, usage := pflag.UnquoteUsage(f)
		flags = append(flags, fmt.Sprintf("| `--%s` | %s |\n", f.Name, usage))
	})
	switch {
	case cmd.Name() == "check" || cmd.Name() == "config" || cmd.Name() == "doctor":
		text.WriteString("It takes the [settings](settings.md) of `serve`.\n\n")
	case cmd.Name() == "serve":
		text.WriteString("Its flags are the [settings](settings.md).\n\n")
		return
	}
	if len(flags) > 0 {
		text.WriteString("| flag | |\n|---|---|\n" + strings.Join(flags, "") + "\n")
	}
}

const apiHead = `# API

<!-- Written by go generate ./cmd/scheduler from internal/web/openapi.json, which a test there holds to the routes. -->

Every replica serves the same under ` + "`/api/v1`" + `; ` + "`/api/v1/openapi.json`" + ` is the whole of it for machines. Answers say as of when
they are. What is wrong comes as ` + "`application/problem+json`" + `, with what to do about it. The role is the least that may ask.

| method | path | role | what it does |
|---|---|---|---|
`

func TestReferenceOfTheAPIIsItsDescription(t *testing.T) {
	t.Parallel()
	raw, err := os.ReadFile(filepath.Join("..", "..", "internal", "web", "openapi.json"))
	if err != nil {
		t.Fatal(err)
	}
	var api struct {
		Paths map[string]map[string]struct {
			Summary string
			Role    string `json:"x-role"`
		}
	}
	if err := json.Unmarshal(raw, &api); err != nil {
		t.Fatal(err)
	}
	var text strings.Builder
	text.WriteString(apiHead)
	for _, path := range slices.Sorted(maps.Keys(api.Paths)) {
		for _, method := range slices.Sorted(maps.Keys(api.Paths[path])) {
			o := api.Paths[path][method]
			if o.Summary == "" || o.Role == "" {
				t.Errorf("%s %s lacks a summary or a role", method, path)
			}
			fmt.Fprintf(&text, "| %s | `/api/v1%s` | %s | %s |\n", strings.ToUpper(method), path, o.Role, o.Summary)
		}
	}
	reference(t, "api.md", text.String())
}
