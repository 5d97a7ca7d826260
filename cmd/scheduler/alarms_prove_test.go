//go:build prove

package main

import (
	"encoding/json"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"rota/internal/pgtest"
)

// A scraper is a Prometheus, a real one that scrapes replicas, with the rules that are shipped.
type scraper struct {
	t   *testing.T
	url string
}

// sooner is by how much the alarms of this test come sooner than they are shipped.
const sooner = 20

var promDuration = regexp.MustCompile(`(for: |\[)(\d+)([smh])`)

// scaled are the shipped rules with all their durations shortened.
func scaled(t *testing.T) string {
	t.Helper()
	text, err := os.ReadFile(filepath.Join("..", "..", "deploy", "monitoring", "rules.yaml"))
	if err != nil {
		t.Fatal(err)
	}
	return promDuration.ReplaceAllStringFunc(string(text), func(s string) string {
		m := promDuration.FindStringSubmatch(s)
		d, err := time.ParseDuration(m[2] + m[3])
		if err != nil {
			t.Fatal(err)
		}
		return fmt.Sprintf("%s%dms", m[1], (d / sooner).Milliseconds())
	})
}

func scrape(t *testing.T, replicas ...*proc) *scraper {
	t.Helper()
	program := need(t, "prometheus")
	dir := t.TempDir()
	var targets []string
	for _, r := range replicas {
		targets = append(targets, r.probeAddress())
	}
	config := fmt.Sprintf(`global: {scrape_interval: 250ms, scrape_timeout: 250ms, evaluation_interval: 250ms}
rule_files: [rules.yaml]
scrape_configs:
  - job_name: rota
    static_configs: [{targets: [%s]}]
`, `"`+strings.Join(targets, `", "`)+`"`)
	for name, content := range map[string]string{"prometheus.yaml": config, "rules.yaml": scaled(t)} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(content), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	address := listener.Addr().String()
	_ = listener.Close()
	cmd := exec.Command(program, "--config.file="+filepath.Join(dir, "prometheus.yaml"),
		"--storage.tsdb.path="+filepath.Join(dir, "data"), "--web.listen-address="+address)
	log, err := os.Create(filepath.Join(dir, "log"))
	if err != nil {
		t.Fatal(err)
	}
	cmd.Stdout, cmd.Stderr, cmd.SysProcAttr = log, log, mortal()
	ended, err := launched(cmd)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = cmd.Process.Kill()
		t.Logf("prometheus ended: %v", <-ended)
		if text, err := os.ReadFile(log.Name()); err == nil && t.Failed() {
			t.Logf("prometheus:\n%s", text)
		}
		_ = log.Close()
	})
	p := &scraper{t, "http://" + address}
	eventually(t, 30*time.Second, "Prometheus is ready", func() bool {
		code, _ := get(t, p.url+"/-/ready")
		return code == 200
	})
	return p
}

// firing are the alarms, each with the job that it is about.
func (p *scraper) firing() []string {
	p.t.Helper()
	_, body := get(p.t, p.url+"/api/v1/alerts")
	var answer struct {
		Data struct {
			Alerts []struct {
				State  string
				Labels map[string]string
			}
		}
	}
	if err := json.Unmarshal([]byte(body), &answer); err != nil {
		p.t.Fatalf("%v: %s", err, body)
	}
	var all []string
	for _, a := range answer.Data.Alerts {
		if a.State == "firing" {
			all = append(all, strings.TrimSpace(a.Labels["alertname"]+" "+a.Labels["job_name"]))
		}
	}
	slices.Sort(all)
	return all
}

// value is that of a query with one answer; false: it has none.
func (p *scraper) value(query string) (string, bool) {
	p.t.Helper()
	_, body := get(p.t, p.url+"/api/v1/query?query="+strings.NewReplacer(" ", "%20", "{", "%7B", "}", "%7D", `"`, "%22", "=", "%3D").Replace(query))
	m := regexp.MustCompile(`"value":\[[0-9.]+,"([^"]*)"\]`).FindStringSubmatch(body)
	if m == nil {
		return "", false
	}
	return m[1], true
}

// staysQuiet fails at the first alarm within the time. That nothing happens can only be watched: it asks
// more often than Prometheus judges.
func (p *scraper) staysQuiet(d time.Duration) {
	p.t.Helper()
	for end := time.Now().Add(d); time.Now().Before(end); time.Sleep(100 * time.Millisecond) {
		if all := p.firing(); len(all) > 0 {
			p.t.Fatalf("alarms that should be quiet: %v", all)
		}
	}
}

// The shipped alarms, in a real Prometheus, over three replicas: quiet while all is well and through
// a handover, firing for the one job that nobody can lead, quiet again once it is led.
func TestProveAlarmsFireForTheJobThatNobodyLeadsAndForNoOther(t *testing.T) {
	t.Parallel() // it mostly waits
	need(t, "prometheus")
	url := pgtest.URL(t)
	db := lookAt(t, url)
	var replicas []*proc
	for range 3 {
		replicas = append(replicas, launch(t, url, "watched", append(withoutOurs(t), "--lease", "3s", "--renew", "500ms")...).serving())
	}
	db.members(3)
	eventually(t, 30*time.Second, "every job is led", func() bool {
		return db.number(`SELECT count(*) FROM leadership WHERE owner <> '' AND expires_at > clock_timestamp()`) == 4
	})
	p := scrape(t, replicas...)
	eventually(t, 30*time.Second, "the sum of the leaders of each job is 1", func() bool {
		n, _ := p.value("count(sum by (job_name) (rota_is_leader) == 1)")
		return n == "4"
	})
	eventually(t, 30*time.Second, "nothing alarms", func() bool { return len(p.firing()) == 0 })
	p.staysQuiet(4 * time.Second)

	replicas[2].send(syscall.SIGTERM)
	if code := replicas[2].code(30 * time.Second); code != exitOK {
		t.Fatalf("exit code %d", code)
	}
	p.staysQuiet(4 * time.Second) // 80 s of the shipped alarms

	// What an operator's forgotten transaction does: the row can be neither renewed nor taken.
	tx, err := db.Begin(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if _, err := tx.Exec(t.Context(), `SELECT FROM leadership WHERE job_name = 'watched_1' FOR UPDATE`); err != nil {
		t.Fatal(err)
	}
	begun := time.Now()
	want := []string{"RotaLeaseUnheld watched_1", "RotaNobodyLeads watched_1"}
	eventually(t, 40*time.Second, "both alarms of a job without a leader fire", func() bool {
		all := p.firing()
		for _, a := range all {
			if !strings.HasSuffix(a, " watched_1") {
				t.Fatalf("an alarm of another job: %v", all)
			}
		}
		return !slices.ContainsFunc(want, func(a string) bool { return !slices.Contains(all, a) })
	})
	t.Logf("both fire %v after the lock; %v", time.Since(begun).Round(100*time.Millisecond), p.firing())
	if err := tx.Rollback(t.Context()); err != nil {
		t.Fatal(err)
	}
	begun = time.Now()
	eventually(t, 30*time.Second, "all is quiet again", func() bool { return len(p.firing()) == 0 })
	t.Logf("quiet %v after the lock is gone", time.Since(begun).Round(100*time.Millisecond))
}
