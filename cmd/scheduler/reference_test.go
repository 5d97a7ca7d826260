package main

import (
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/prometheus/client_golang/prometheus/testutil/promlint"

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
	eventually(t, 30*time.Second, "it tells of the run", func() bool {
		_, text = replica.probe("/metrics")
		return strings.Contains(text, `rota_run_started_timestamp_seconds{job_name="slow"`)
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
