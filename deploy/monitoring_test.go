// Package deploy_test holds what is shipped beside the binary to what the binary does.
package deploy_test

import (
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/goccy/go-yaml"
)

func read(t *testing.T, path ...string) string {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(path...))
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

// need skips where a program is missing, and fails in CI.
func need(t *testing.T, program string) string {
	t.Helper()
	path, err := exec.LookPath(program)
	if err == nil {
		return path
	}
	if os.Getenv("CI") != "" {
		t.Fatalf("%s is missing", program)
	}
	t.Skipf("%s is missing", program)
	return ""
}

type alert struct {
	Alert       string
	Expr        string
	Labels      map[string]string
	Annotations map[string]string
}

func alerts(t *testing.T) []alert {
	t.Helper()
	var file struct{ Groups []struct{ Rules []alert } }
	if err := yaml.Unmarshal([]byte(read(t, "monitoring", "rules.yaml")), &file); err != nil {
		t.Fatal(err)
	}
	var all []alert
	for _, g := range file.Groups {
		all = append(all, g.Rules...)
	}
	if len(all) < 15 {
		t.Fatalf("only %d alarms", len(all))
	}
	return all
}

var alarmCases = []string{"rules_test.yaml", "rules_slow_test.yaml"}

func TestEachAlarmHasARunbookAndFiresAndStaysQuietInACase(t *testing.T) {
	t.Parallel()
	type expectation struct {
		AlertName string `yaml:"alertname"`
		Exp       []any  `yaml:"exp_alerts"`
	}
	fires, quiet := map[string]bool{}, map[string]bool{}
	for _, name := range alarmCases {
		var file struct {
			Tests []struct {
				Cases []expectation `yaml:"alert_rule_test"`
			}
		}
		if err := yaml.Unmarshal([]byte(read(t, "monitoring", name)), &file); err != nil {
			t.Fatal(err)
		}
		for _, test := range file.Tests {
			for _, c := range test.Cases {
				if len(c.Exp) > 0 {
					fires[c.AlertName] = true
				} else {
					quiet[c.AlertName] = true
				}
			}
		}
	}
	list := read(t, "..", "docs", "runbooks", "README.md")
	for _, a := range alerts(t) {
		if !fires[a.Alert] || !quiet[a.Alert] {
			t.Errorf("%s: fires in a case: %v, stays quiet in one: %v", a.Alert, fires[a.Alert], quiet[a.Alert])
		}
		page := "docs/runbooks/" + a.Alert + ".md"
		if a.Annotations["runbook_url"] != page {
			t.Errorf("%s: its runbook is %q, want %q", a.Alert, a.Annotations["runbook_url"], page)
		}
		if text := read(t, "..", page); !strings.HasPrefix(text, "# "+a.Alert+"\n") || !strings.Contains(text, "scheduler ") {
			t.Errorf("%s: the runbook has another title, or names no command", a.Alert)
		}
		if !strings.Contains(list, "("+a.Alert+".md)") {
			t.Errorf("%s is not in the list of the runbooks", a.Alert)
		}
		if a.Annotations["summary"] == "" || a.Annotations["description"] == "" || !slices.Contains([]string{"critical", "warning", "info"}, a.Labels["severity"]) {
			t.Errorf("%s lacks a summary, a description or a severity", a.Alert)
		}
	}
}

func TestAlarmsPassTheirCases(t *testing.T) {
	t.Parallel()
	promtool := need(t, "promtool")
	for _, args := range [][]string{{"check", "rules", "rules.yaml"}, append([]string{"test", "rules"}, alarmCases...)} {
		cmd := exec.Command(promtool, args...)
		cmd.Dir = "monitoring"
		if out, err := cmd.CombinedOutput(); err != nil {
			t.Errorf("promtool %s: %v\n%s", strings.Join(args, " "), err, out)
		}
	}
}

var metricName = regexp.MustCompile(`\brota_[a-z_]+`)

func TestEachMetricOfTheRulesAndTheDashboardIsExported(t *testing.T) {
	t.Parallel()
	kinds := map[string]string{}
	for _, row := range regexp.MustCompile("(?m)^\\| `(rota_[a-z_]+)` \\| ([a-z]+) ").FindAllStringSubmatch(read(t, "..", "docs", "reference", "metrics.md"), -1) {
		kinds[row[1]] = row[2]
		if row[2] == "histogram" {
			kinds[row[1]+"_bucket"], kinds[row[1]+"_count"], kinds[row[1]+"_sum"] = "counter", "counter", "counter"
		}
	}
	used := map[string]bool{}
	for _, name := range []string{"rules.yaml", "rules_test.yaml", "rules_slow_test.yaml", "dashboard.json"} {
		for _, m := range metricName.FindAllString(read(t, "monitoring", name), -1) {
			used[m] = true
			if kinds[m] == "" {
				t.Errorf("%s names %s, which no replica exports", name, m)
			}
		}
	}
	if len(used) < 20 {
		t.Errorf("only %d metrics are used", len(used))
	}
	for _, m := range regexp.MustCompile(`(?:rate|increase)\((rota_[a-z_]+)`).FindAllStringSubmatch(read(t, "monitoring", "rules.yaml")+read(t, "monitoring", "dashboard.json"), -1) {
		if kinds[m[1]] != "counter" {
			t.Errorf("a rate is taken of %s, which is a %s", m[1], kinds[m[1]])
		}
	}
}

func TestEachPanelOfTheDashboardSaysWhatItShows(t *testing.T) {
	t.Parallel()
	var board struct {
		Panels []struct {
			ID                       int
			Type, Title, Description string
			GridPos                  struct{ X, Y, W, H int }
			Targets                  []struct{ Expr string }
			FieldConfig              struct{ Defaults struct{ Unit string } }
		}
	}
	if err := json.Unmarshal([]byte(read(t, "monitoring", "dashboard.json")), &board); err != nil {
		t.Fatal(err)
	}
	seen, titles := map[[2]int]string{}, map[string]bool{}
	for _, p := range board.Panels {
		titles[p.Title] = true
		if p.Type != "row" && (p.Description == "" || len(p.Targets) == 0 || p.FieldConfig.Defaults.Unit == "") {
			t.Errorf("%s lacks a description, a question or a unit", p.Title)
		}
		for x := p.GridPos.X; x < p.GridPos.X+p.GridPos.W; x++ {
			for y := p.GridPos.Y; y < p.GridPos.Y+p.GridPos.H; y++ {
				if other := seen[[2]int{x, y}]; other != "" || x >= 24 {
					t.Fatalf("%s lies on %q, or outside", p.Title, other)
				}
				seen[[2]int{x, y}] = p.Title
			}
		}
	}
	for _, title := range []string{"Jobs led", "Who leads", "Handovers", "Renewals", "Runs", "Replicas"} {
		if !titles[title] {
			t.Errorf("there is no panel %q", title)
		}
	}
}
