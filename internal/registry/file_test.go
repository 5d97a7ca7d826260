package registry

import (
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
)

// compiled are jobs as a binary has them.
func compiled() []Job {
	daily, limited, watch := good("daily"), withLimits(), good("watch")
	daily.Schedule = Cron("0 8 * * *").In("Europe/Berlin")
	daily.Retry = Retry{Attempts: 2, Pause: time.Second, Longest: time.Hour}
	limited.Name = "limited"
	watch.Schedule = Continuous
	return []Job{daily, limited, watch}
}

var sameJob = cmp.Options{
	cmpopts.IgnoreFields(Job{}, "Run", "Source"), cmp.AllowUnexported(limits{}),
	cmp.Comparer(func(a, b Schedule) bool { return a.String() == b.String() }),
}

func TestJobsFileChangesWhatItNamesAndNothingElse(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		file   string
		change func(daily, limited, watch *Job)
	}{
		{"", nil},
		{"# nothing\n", nil},
		{"---\n...\n", nil},
		{"daily: {schedule: every 5s}", func(d, _, _ *Job) { d.Schedule = Every(5 * time.Second) }},
		{"daily: {schedule: on demand}", func(d, _, _ *Job) { d.Schedule = OnDemand }},
		{"limited: {schedule: continuous}", func(_, l, _ *Job) { l.Schedule = Continuous }},
		{"limited: {schedule: 30 9 * * 1-5}", func(_, l, _ *Job) { l.Schedule = Cron("30 9 * * 1-5") }},
		{"limited: {schedule: '@daily', zone: Asia/Tokyo}", func(_, l, _ *Job) { l.Schedule = Cron("@daily").In("Asia/Tokyo") }},
		// The zone of the job stays, as every field that the file does not name.
		{"daily: {schedule: '30 9 * * *'}", func(d, _, _ *Job) { d.Schedule = Cron("30 9 * * *").In("Europe/Berlin") }},
		{"daily: {schedule: CRON_TZ=Asia/Tokyo 30 9 * * *}", func(d, _, _ *Job) { d.Schedule = Cron("30 9 * * *").In("Asia/Tokyo") }},
		// As it is shown.
		{"daily: {schedule: cron 30 9 * * * Asia/Tokyo}", func(d, _, _ *Job) { d.Schedule = Cron("30 9 * * *").In("Asia/Tokyo") }},
		{"daily: {schedule: cron 30 9 * * MON-FRI}", func(d, _, _ *Job) { d.Schedule = Cron("30 9 * * MON-FRI").In("Europe/Berlin") }},
		{"daily: {schedule: every 1 h 30 m}", func(d, _, _ *Job) { d.Schedule = Every(90 * time.Minute) }},
		{"daily: {zone: America/New_York}", func(d, _, _ *Job) { d.Schedule = Cron("0 8 * * *").In("America/New_York") }},
		{"daily:\n  timeout: 90s\n  jitter: 1m\n", func(d, _, _ *Job) { d.Timeout, d.Jitter = 90*time.Second, time.Minute }},
		{"daily: {timeout: 0}", func(d, _, _ *Job) { d.Timeout = 0 }},
		{"daily: {retries: {attempts: 5, pause: 2s}}", func(d, _, _ *Job) { d.Retry.Attempts, d.Retry.Pause = 5, 2*time.Second }},
		{"daily: {retries: {longest: 2h}}", func(d, _, _ *Job) { d.Retry.Longest = 2 * time.Hour }},
		{"daily: {missed: run all, overlap: queue, if_lost: leave it}", func(d, _, _ *Job) { d.Missed, d.Overlap, d.IfLost = RunAll, Queue, LeaveIt }},
		{"watch: {enabled: false}", func(_, _, w *Job) { w.Disabled = true }},
		{"watch: {enabled: true}", nil},
		{"\ufefflimited:\r\n  args:\r\n    max_bytes: 9\r\n", func(_, l, _ *Job) { l.Args = with(l.Args, func(a *limits) { a.Max = 9 }) }},
		{"limited:\n  args:\n    timeout: 1m30s\n    names: [a, '1']\n    inner: {depth: 0x10}\n    venue: |\n      two\n      lines\n", func(_, l, _ *Job) {
			l.Args = with(l.Args, func(a *limits) {
				a.Timeout, a.Names, a.Inner.Depth, a.Venue = 90*time.Second, []string{"a", "1"}, 16, "two\nlines\n"
			})
		}},
	} {
		want := compiled()
		if c.change != nil {
			c.change(&want[0], &want[1], &want[2])
		}
		given := compiled()
		got, err := Override(given, []byte(c.file), "jobs.yaml")
		if err != nil {
			t.Errorf("%q: %v", c.file, err)
			continue
		}
		if diff := cmp.Diff(want, got, sameJob); diff != "" {
			t.Errorf("%q: %s", c.file, diff)
		}
		if diff := cmp.Diff(compiled(), given, sameJob); diff != "" {
			t.Errorf("%q changes the jobs that it was given: %s", c.file, diff)
		}
	}
}

func with(args any, change func(*limits)) limits {
	l := args.(limits)
	change(&l)
	return l
}

func TestSourceOfAChangedJobNamesTheFile(t *testing.T) {
	t.Parallel()
	got, err := Override(compiled(), []byte("# for the test\nwatch: {timeout: 1s}\n"), "jobs.yaml")
	if err != nil {
		t.Fatal(err)
	}
	if got[2].Source != "jobs/watch.go:7, changed by jobs.yaml:2" || got[0].Source != "jobs/daily.go:7" {
		t.Errorf("sources are %q and %q", got[2].Source, got[0].Source)
	}
}

func TestDisabledJobsAreLeftOutOfTheEnabled(t *testing.T) {
	t.Parallel()
	jobs, err := Override(compiled(), []byte("limited: {enabled: false}"), "jobs.yaml")
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff([]string{"daily", "watch"}, namesOf(Enabled(jobs))); diff != "" || len(jobs) != 3 {
		t.Errorf("of %d jobs: %s", len(jobs), diff)
	}
}

func TestWrongJobsFileIsRefusedInOneLineWithTheWayOut(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		file string
		says []string
	}{
		{"dayly: {timeout: 1s}", []string{`jobs.yaml:1: job "dayly": there is no such job`, "daily, limited, watch"}},
		{"\ndaily:\n  timeot: 1s", []string{`jobs.yaml:3: job "daily": timeot: there is no such field`, "args, enabled"}},
		{"daily:\n  timeout: 1s\n  timeout: 2s", []string{`jobs.yaml:3: job "daily": timeout`, "line 2"}},
		{"daily: {timeout: 1s}\ndaily: {timeout: 2s}", []string{`jobs.yaml:2: job "daily"`, "line 1"}},
		{"daily: {timeout: 5}", []string{`timeout: "5"`, "unit", "30s"}},
		{"daily: {timeout: -5s}", []string{`timeout: "-5s"`, "negative"}},
		{"daily: {timeout: [5s]}", []string{"timeout: a list", "30s"}},
		{"daily: {timeout: }", []string{"timeout: nothing", "30s"}},
		{"daily: {jitter: 2h}", []string{`job "daily" (jobs/daily.go:7, changed by jobs.yaml:1): jitter: 2h:`, "1h"}},
		{"daily: {enabled: yes}", []string{`enabled: "yes"`, "true or false"}},
		{"daily: {enabled: 'false'}", []string{"enabled:", "true or false"}},
		{"daily: {missed: runall}", []string{`missed: "runall"`, "run latest, run all, run none"}},
		{"daily: {overlap: 1}", []string{`overlap: "1"`, "skip, queue"}},
		{"daily: {if_lost: ''}", []string{"if_lost:", "run again, leave it"}},
		{"daily: {retries: 3}", []string{`retries: "3"`, "names"}},
		{"daily: {retries: {tries: 3}}", []string{"retries: tries: there is no such field", "attempts, longest, pause"}},
		{"daily: {retries: {attempts: many}}", []string{`retries: attempts: "many"`, "whole number"}},
		{"daily: {retries: {attempts: -1}}", []string{`attempts: "-1"`, "whole number"}},
		{"daily: {retries: {attempts: 010}}", []string{`attempts: "010"`, "whole number"}},
		{"daily: {retries: {attempts: 101}}", []string{"retry: 101 attempts", "0 to 100"}},
		{"watch: {retries: {attempts: 2}}", []string{`job "watch"`, "Continuous"}},
		{"daily: {schedule: every 5}", []string{`jobs.yaml:1: job "daily": schedule: "every 5"`, "every 5s"}},
		{"daily: {schedule: every 500ms}", []string{"schedule: every 500ms", "at least 1s"}},
		{"daily: {schedule: 61 * * * *}", []string{"schedule:", `"61 * * * *"`, "on demand"}},
		{"daily: {schedule: 5}", []string{`schedule: "5"`, "text"}},
		{"daily: {zone: Europe/Atlantis}", []string{`jobs.yaml:1: job "daily": zone:`, "Europe/Atlantis", "IANA"}},
		{"daily: {schedule: every 5s, zone: Europe/Berlin}", []string{"zone: Europe/Berlin", "cron", "every 5s", "leave it out"}},
		{"watch: {zone: Europe/Berlin}", []string{"zone: Europe/Berlin", "continuous", "leave it out"}},
		{"daily: {schedule: CRON_TZ=Asia/Tokyo 0 9 * * *, zone: Asia/Tokyo}", []string{"give one of them"}},
		{"daily:\n  schedule: */5 * * * *\n", []string{"jobs.yaml:2: it is no YAML", "in quotes"}},
		{"daily:\n  schedule: @daily\n", []string{"jobs.yaml:2: it is no YAML", "in quotes"}},
		{"limited:\n  args:\n    dry: true\n    timeot: 1s", []string{`jobs.yaml:4: job "limited": args: there is no field "timeot"`, "Timeout, max_bytes"}},
		{"limited:\n  args:\n    timeout: 5", []string{"jobs.yaml:3:", "args: Timeout: 5", "unit"}},
		{"limited: {args: {dry: on}}", []string{`args: Dry: "on"`, "true or false"}},
		{"limited: {args: {venue: 1.10}}", []string{"args: Venue: 1.1", "quotes"}},
		{"limited: {args: {max_bytes: 010}}", []string{"010", "leading 0"}},
		{"limited: {args: {share: .nan}}", []string{`".nan"`}},
		{"limited: {args: {dry: true, Dry: false}}", []string{"Dry is given twice"}},
		{"limited: {args: {weights: {a: 1, a: 2}}}", []string{"a is given twice"}},
		{"limited: {args: [1]}", []string{"args: a list", "names"}},
		{"limited: {args: {venue: &v x, level: plain}}", []string{"anchors"}},
		{"limited: {args: {venue: !!str x}}", []string{"tags"}},
		{"watch: {args: {a: 1}}", []string{`job "watch": args`, "takes none"}},
		{"daily:", []string{`job "daily": nothing`, "names"}},
		{"daily: off", []string{`job "daily": "off"`, "names"}},
		{"- daily", []string{"jobs.yaml:1: a list", "names"}},
		{"daily: {timeout: 1s}\n---\nwatch: {timeout: 1s}", []string{"jobs.yaml:3: a second document"}},
		{"daily: {<<: {timeout: 1s}}", []string{`job "daily": <<`, "plain name"}},
		{"? [a]\n: b", []string{"jobs.yaml:2: it is no YAML"}},
		{"daily: [1", []string{"jobs.yaml:1: it is no YAML"}},
		// Each of these took 24 GB of memory.
		{"daily:\n  " + strings.Repeat("[", 200_000), []string{"jobs.yaml:2: more than 100 brackets"}},
		{"daily: " + strings.Repeat("{a: ", 200_000), []string{"jobs.yaml:1: more than 100 brackets"}},
		{"daily:\n" + strings.Repeat("- ", 200_000), []string{"jobs.yaml:2: more than 100 brackets or dashes"}},
		{"limited: {args: {weights: " + strings.Repeat("[", 200) + strings.Repeat("]", 200) + "}}", []string{"more than 100"}},
	} {
		got, err := Override(compiled(), []byte(c.file), "jobs.yaml")
		if err == nil || got != nil {
			t.Errorf("%q is accepted", c.file)
			continue
		}
		for _, s := range c.says {
			if !strings.Contains(err.Error(), s) {
				t.Errorf("%q: %q does not say %q", c.file, err, s)
			}
		}
		if strings.Contains(err.Error(), "\n") {
			t.Errorf("%q: more than a line:\n%v", c.file, err)
		}
	}
}

func TestAllThatIsWrongInAJobsFileIsSaidAtOnce(t *testing.T) {
	t.Parallel()
	_, err := Override(compiled(), []byte(`
daily: {timeout: soon, schedule: every 5, retries: {pause: 2h}}
limited:
  args: {a: 1, dry: 2}
nobody: {}
watch: {colour: red}
`), "jobs.yaml")
	if err == nil || strings.Count(err.Error(), "\n") != 6 {
		t.Errorf("want seven lines:\n%v", err)
	}
}

// Whatever stands in the file, it is refused or applied.
func FuzzOverride(f *testing.F) {
	for _, seed := range []string{
		"", "daily: {timeout: 1s}", "limited:\n  args:\n    inner: {depth: 1}\n", "daily: {schedule: '@daily', zone: UTC}",
		"a: &x [*x]", "? a\n: b\n", "daily: {retries: {attempts: 010}}", "a: |\n x\n", "%YAML 1.2\n---\na: 1", "\xff", "a: !!map {}",
	} {
		f.Add([]byte(seed))
	}
	f.Fuzz(func(t *testing.T, file []byte) {
		jobs, err := Override(compiled(), file, "jobs.yaml")
		if (err == nil) == (len(jobs) == 0) {
			t.Errorf("%q: %d jobs, %v", file, len(jobs), err)
		}
	})
}

func TestAScheduleIsReadAsItIsShown(t *testing.T) {
	t.Parallel()
	for _, s := range []Schedule{
		Every(5 * time.Second), Every(90 * time.Minute), Continuous, OnDemand, Cron("*/7 * * * *"), Cron("30 9 * * MON-FRI").In("Europe/Berlin"),
		Cron("@daily").In("Asia/Tokyo"), Cron("CRON_TZ=UTC 0 0 1 * *"),
	} {
		read, err := ParseSchedule(s.String(), "")
		if err != nil || read.String() != s.String() {
			t.Errorf("%s is read as %s, %v", s, read, err)
		}
	}
}
