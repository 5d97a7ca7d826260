package registry

import (
	"context"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"rota/internal/fence"
)

func idle(context.Context, *Run) error { return nil }

// good is a job that nothing is wrong with.
func good(name string) Job {
	return Job{Name: name, Schedule: Every(time.Second), Run: idle, Source: "jobs/" + name + ".go:7"}
}

func TestJobsComeSortedByName(t *testing.T) {
	t.Parallel()
	given := []Job{good("b"), good("a-1"), good("0_c")}
	jobs, err := Check(given)
	if err != nil {
		t.Fatal(err)
	}
	var names []string
	for _, j := range jobs {
		names = append(names, j.Name)
	}
	if diff := cmp.Diff([]string{"0_c", "a-1", "b"}, names); diff != "" {
		t.Error(diff)
	}
	if given[0].Name != "b" {
		t.Error("the caller's slice was sorted too")
	}
}

func TestWrongJobIsRefusedInOneLineWithTheWayOut(t *testing.T) {
	t.Parallel()
	table := fence.Table{Name: "bridge_status", Key: []string{"bridge_id"}}
	for _, c := range []struct {
		name   string
		change func(*Job)
		says   []string
	}{
		{"no name", func(j *Job) { j.Name = "" }, []string{`job ""`, "jobs/x.go:7", "name"}},
		{"capitals", func(j *Job) { j.Name = "Bad Name" }, []string{`"Bad Name"`, "a-z"}},
		{"too long", func(j *Job) { j.Name = strings.Repeat("a", 64) }, []string{"63"}},
		{"no function", func(j *Job) { j.Run = nil }, []string{`job "x"`, "set Run"}},
		{"no schedule", func(j *Job) { j.Schedule = Schedule{} }, []string{"schedule", "Continuous"}},
		{"too fast", func(j *Job) { j.Schedule = Every(999 * time.Millisecond) }, []string{"every 999ms", "at least 1s"}},
		{"part of a second", func(j *Job) { j.Schedule = Every(2600 * time.Millisecond) }, []string{"every 2.6s", "whole seconds", "3s"}},
		{"negative", func(j *Job) { j.Schedule = Every(-time.Hour) }, []string{"every -1h", "at least 1s"}},
		{"too many shards", func(j *Job) { j.Shards = 1025 }, []string{"shards", "1025", "0 to 1024"}},
		{"negative shards", func(j *Job) { j.Shards = -1 }, []string{"shards", "-1"}},
		{"shards without a column", func(j *Job) { j.Shards, j.Protects = 2, []fence.Table{table} }, []string{"protects", "bridge_status", "in Shard"}},
		{"shards by no key", func(j *Job) {
			j.Shards, j.Protects = 2, []fence.Table{{Name: "t", Key: []string{"a"}, Shard: "b"}}
		}, []string{"table t", "b, is no column of its Key"}},
		{"shards of a large table", func(j *Job) {
			j.Shards, j.Protects = 2, []fence.Table{{Name: "t", Key: []string{"a"}, Shard: "a", Large: true}}
		}, []string{"table t", "Large"}},
		{"a dot in a name", func(j *Job) { j.Name = "x.1of2" }, []string{"name", "a-z"}},
		{"bad cron", func(j *Job) { j.Schedule = Cron("61 * * * *") }, []string{"schedule", `"61 * * * *"`}},
		{"bad zone", func(j *Job) { j.Schedule = Cron("0 8 * * *").In("Europe/Atlantis") }, []string{"schedule", "Europe/Atlantis", "IANA"}},
		{"two zones", func(j *Job) { j.Schedule = Cron("CRON_TZ=Asia/Tokyo 0 8 * * *").In("Europe/Berlin") }, []string{"give one of them"}},
		{"zone of none", func(j *Job) { j.Schedule = Every(time.Hour).In("Europe/Berlin") }, []string{"only a Cron schedule has a zone"}},
		{"empty zone", func(j *Job) { j.Schedule = Cron("0 8 * * *").In("") }, []string{"must be named"}},
		{"negative timeout", func(j *Job) { j.Timeout = -1 }, []string{"timeout", "-1ns", "0 means none"}},
		{"negative attempts", func(j *Job) { j.Retry.Attempts = -1 }, []string{"retry", "-1 attempts", "0 to 100"}},
		{"negative pause", func(j *Job) { j.Retry.Pause = -time.Second }, []string{"retry", "-1s", "negative"}},
		{"pauses upside down", func(j *Job) { j.Retry = Retry{Attempts: 3, Pause: time.Hour, Longest: time.Minute} }, []string{"retry", "1m", "1h", "raise it"}},
		{"retry of what never ends", func(j *Job) { j.Schedule, j.Retry.Attempts = Continuous, 3 }, []string{"retry", "Continuous"}},
		{"negative jitter", func(j *Job) { j.Jitter = -1 }, []string{"jitter", "-1ns", "1h"}},
		{"jitter over the period", func(j *Job) { j.Jitter = time.Second }, []string{"jitter", "below the period 1s"}},
		{"missed", func(j *Job) { j.Missed = 7 }, []string{"missed", "RunLatest"}},
		{"overlap", func(j *Job) { j.Overlap = -1 }, []string{"overlap", "Queue"}},
		{"if lost", func(j *Job) { j.IfLost = 2 }, []string{"if lost", "LeaveIt"}},
		{"args", func(j *Job) { j.Args = 5 }, []string{"args", "int", "struct"}},
		{"pointer", func(j *Job) { j.Args = new(struct{}) }, []string{"args", "not a pointer"}},
		{"no table name", func(j *Job) { j.Protects = []fence.Table{{Key: []string{"id"}}} }, []string{"protects", "no name"}},
		{"no key", func(j *Job) { j.Protects = []fence.Table{{Name: "bridge_status"}} }, []string{"protects", "bridge_status", "Key"}},
		{"twice", func(j *Job) { j.Protects = []fence.Table{table, table} }, []string{"bridge_status", "twice"}},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			j := good("x")
			c.change(&j)
			jobs, err := Check([]Job{j, good("other")})
			if err == nil || jobs != nil {
				t.Fatalf("jobs %v, error %v", jobs, err)
			}
			for _, s := range c.says {
				if !strings.Contains(err.Error(), s) {
					t.Errorf("%q does not say %q", err, s)
				}
			}
			if strings.Contains(err.Error(), "\n") {
				t.Errorf("it takes more than one line:\n%v", err)
			}
		})
	}
}

func TestEveryReasonIsGivenAtOnce(t *testing.T) {
	t.Parallel()
	bad := good("bad")
	bad.Run, bad.Timeout = nil, -time.Second
	later := good("a")
	later.Source = "jobs/later.go:9"
	_, err := Check([]Job{good("a"), bad, later})
	if err == nil {
		t.Fatal("accepted")
	}
	lines := strings.Split(err.Error(), "\n")
	if len(lines) != 3 || !strings.Contains(lines[0], "jobs/later.go:9") || !strings.Contains(lines[0], "jobs/a.go:7") {
		t.Errorf("want three lines, and the first to name both places:\n%v", err)
	}
}

func TestTwoJobsMayNotProtectOneTable(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		a, b    string
		refused bool
	}{
		{"breaks", "breaks", true},
		{"breaks", "public.breaks", true}, // it may be the same one
		{"public.breaks", "public.breaks", true},
		{"eu.breaks", "us.breaks", false},
		{"breaks", "Public.Breaks", true},
		{"public.breaks", `public."breaks"`, true},
		{"breaks", "broken", false},
	} {
		a, b := good("a"), good("b")
		a.Protects = []fence.Table{{Name: c.a, Key: []string{"id"}}}
		b.Protects = []fence.Table{{Name: c.b, Key: []string{"id"}}}
		_, err := Check([]Job{a, b})
		if (err != nil) != c.refused {
			t.Errorf("%s and %s: %v", c.a, c.b, err)
		}
		if err != nil && (!strings.Contains(err.Error(), c.b) || !strings.Contains(err.Error(), `job "a"`)) {
			t.Errorf("%s and %s: %q does not name the table and the other job", c.a, c.b, err)
		}
	}
}
