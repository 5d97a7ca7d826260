package main

import (
	"encoding/json"
	"fmt"
	"log/slog"
	"strings"
	"testing"
	"time"

	"rota/internal/pgtest"
	"rota/internal/registry"
	"rota/internal/scheduler"
	"rota/internal/status"
)

// answered runs a command that reads the database, and decodes its JSON into v.
func answered(t *testing.T, url string, v any, args ...string) {
	t.Helper()
	stdout, stderr, code := runHere(t, []string{"DATABASE_URL=" + url}, append(args, "--json")...)
	if code != exitOK || stderr != "" && !strings.HasPrefix(stderr, "there are more") {
		t.Fatalf("scheduler %s: exit code %d\n%s", strings.Join(args, " "), code, stderr)
	}
	if err := json.Unmarshal([]byte(stdout), v); err != nil {
		t.Fatalf("scheduler %s: %v\n%s", strings.Join(args, " "), err, stdout)
	}
}

// told runs a command that reads the database, and returns what it prints for people.
func told(t *testing.T, url string, args ...string) string {
	t.Helper()
	stdout, stderr, code := runHere(t, []string{"DATABASE_URL=" + url}, args...)
	if code != exitOK {
		t.Fatalf("scheduler %s: exit code %d\n%s", strings.Join(args, " "), code, stderr)
	}
	return stdout
}

func (e eye) execute(sql string, args ...any) {
	e.t.Helper()
	if _, err := e.Exec(e.t.Context(), sql, args...); err != nil {
		e.t.Fatal(err)
	}
}

// historyOf fills a database with a paused job, and its history.
func historyOf(t *testing.T) (url string) {
	t.Helper()
	url = pgtest.URL(t)
	db := lookAt(t, url)
	db.execute(`INSERT INTO leadership (job_name, owner, expires_at, epoch) VALUES ('bridge_health', 'a/1', clock_timestamp() + interval '1 hour', 7)`)
	db.execute(`INSERT INTO replicas (id, host, pid, version, started_at, seen_at, expires_at, clock_offset)
		VALUES ('a/1', 'a', 4711, 'v9', clock_timestamp(), clock_timestamp(), clock_timestamp() + interval '1 hour', '0.0025')`)
	db.execute(`INSERT INTO pauses (job, reason, paused_by, until) VALUES ('bridge_health', E'a bad\nfeed', 'ana', '2999-01-01Z')`)
	db.execute(`INSERT INTO requests (kind, job, lease, args, reason, asked_by, done_at, result)
		VALUES ('run', 'bridge_health', 'bridge_health', '{"Limit": 3}', 'a late file', 'bo', clock_timestamp(), 'run 2')`)
	db.execute(`INSERT INTO runs (lease, job, tick, attempt, epoch, owner, started_at, ended_at, outcome, error, request_id, first_tick, ticks, log) VALUES
		('bridge_health', 'bridge_health', '2026-01-01 10:00Z', 1, 6, 'a/1', '2026-01-01 10:00Z', '2026-01-01 10:00:01.5Z', 'failed', E'no luck\x1b[2J', NULL, NULL, 1, E'first\nsecond \x1b[31mred\n'),
		('bridge_health', 'bridge_health', '2026-01-01 10:30Z', 1, 6, 'a/1', '2026-01-01 10:30Z', '2026-01-01 10:30:01Z', 'success', NULL, 1, NULL, 1, NULL),
		('bridge_health', 'bridge_health', '2026-01-01 11:00Z', 1, 7, 'a/1', '2026-01-01 11:01Z', '2026-01-01 11:01Z', 'missed', 'nobody led', NULL, '2026-01-01 10:31Z', 30, NULL),
		('other', 'other', '2026-01-01 11:01Z', 1, 7, 'a/1', '2026-01-01 11:01Z', NULL, NULL, NULL, NULL, NULL, 1, NULL)`)
	pgtest.Note(t, db.Pool)
	return url
}

// P10: what the commands say comes from the rows, in the form of the API.
func TestRunsAreListedAndShown(t *testing.T) {
	t.Parallel()
	url := historyOf(t)
	var list struct {
		AsOf time.Time `json:"as_of"`
		Runs []struct {
			ID, Ticks int64
			Outcome   *string
		}
		Next *int64 `json:"next_before"`
	}
	for args, want := range map[string]string{
		"": "[4 3 2 1]", "--job bridge_health": "[3 2 1]", "--outcome missed": "[3]", "--limit 2": "[4 3]", "--limit 2 --before 3": "[2 1]",
	} {
		answered(t, url, &list, append([]string{"runs", "list"}, strings.Fields(args)...)...)
		ids := []int64{}
		for _, r := range list.Runs {
			ids = append(ids, r.ID)
		}
		if fmt.Sprint(ids) != want || list.AsOf.IsZero() || (list.Next != nil) != (args == "--limit 2") {
			t.Errorf("runs list %s: %v, next %v", args, ids, list.Next)
		}
	}
	page := told(t, url, "runs", "list")
	for _, want := range []string{"missed (30 ticks since 2026-01-01 10:31:00Z)", "running", "1.5s", "nobody led", "no luck?[2J", "by the database's clock"} {
		if !strings.Contains(page, want) {
			t.Errorf("runs list lacks %q:\n%s", want, page)
		}
	}
	page = told(t, url, "runs", "show", "1")
	for _, want := range []string{"failed", "why:\n  no luck?[2J\n", "log:\n  first\n  second ?[31mred\n", "by its schedule", "epoch 6"} {
		if !strings.Contains(page, want) {
			t.Errorf("runs show 1 lacks %q:\n%s", want, page)
		}
	}
	page = told(t, url, "runs", "show", "2")
	for _, want := range []string{"by bo, ", "a late file", `{"Limit": 3}`} {
		if !strings.Contains(page, want) {
			t.Errorf("runs show 2 lacks %q:\n%s", want, page)
		}
	}
	for args, want := range map[string]struct {
		code int
		says string
	}{
		"runs show 99":                  {exitUsage, "run 99: there is no such run"},
		"runs cancel 99 --reason x":     {exitUsage, "there is no run 99"},
		"runs list --job none":          {exitUsage, `there is no job "none"`},
		"audit list --job none":         {exitUsage, `there is no job "none"`},
		"runs list --limit 0":           {exitUsage, "limit 0: it must be 1 to 1000"},
		"audit list --limit 0":          {exitUsage, "limit 0: it must be 1 to 1000"},
		"runs cancel 1":                 {exitUsage, "no reason is given"},
		"jobs resume bridge_health":     {exitUsage, "no reason is given"},
		"jobs run bridge_health --key=": {exitUsage, "an empty key would be none"},
		"runs show x":                   {exitUsage, `run "x": it must be the number`},
		"runs list --outcome great":     {exitUsage, `outcome "great": it must be one of running, success`},
		"runs list --limit 5000":        {exitUsage, "limit 5000: it must be 1 to 1000"},
	} {
		if stdout, stderr, code := runHere(t, []string{"DATABASE_URL=" + url}, strings.Fields(args)...); code != want.code || !strings.Contains(stderr, want.says) || stdout != "" {
			t.Errorf("%s: exit code %d\n%s%s", args, code, stdout, stderr)
		}
	}
}

// P10: a paused job is led, and it is said who paused it, why, and until when.
func TestAJobIsShownWithItsPauseItsHolderAndItsTicks(t *testing.T) {
	t.Parallel()
	url := historyOf(t)
	page := told(t, url, "jobs", "show", "bridge_health")
	job, err := findJob("bridge_health")
	if err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{
		"held by a/1, epoch 7", "by ana, since ", "until 2999-01-01 00:00:00Z: a bad feed", job.Schedule.Words() + " (" + job.Schedule.String() + ")",
		"missed: run latest", "overlap: skip", "if lost: run again", job.Source, "bridge_status", "next ticks", "missed (30 ticks since", "2026-01-01 10:30:01Z",
	} {
		if !strings.Contains(page, want) {
			t.Errorf("jobs show lacks %q:\n%s", want, page)
		}
	}
	var shown struct {
		AsOf time.Time `json:"as_of"`
		Job  struct {
			State  string
			Paused *struct{ By, Reason string }
		}
		Next     []time.Time
		LastRuns []struct{ ID int64 } `json:"last_runs"`
		Policies struct{ Missed string }
	}
	answered(t, url, &shown, "jobs", "show", "bridge_health")
	if shown.Job.State != "held" || shown.Job.Paused == nil || shown.Job.Paused.By != "ana" || len(shown.LastRuns) != 3 || shown.Policies.Missed != "run latest" {
		t.Errorf("%+v", shown)
	}
	if want := job.Schedule.Next(shown.AsOf); len(shown.Next) != shownTicks || !shown.Next[0].Equal(want) {
		t.Errorf("next ticks %v, want %v first", shown.Next, want)
	}
	if _, stderr, code := runHere(t, []string{"DATABASE_URL=" + url}, "jobs", "show", "nothing"); code != exitUsage || !strings.Contains(stderr, `there is no job "nothing"`) {
		t.Errorf("exit code %d: %s", code, stderr)
	}
	var replicas struct {
		Replicas []struct{ ID, Standing string }
	}
	answered(t, url, &replicas, "replicas", "list")
	if len(replicas.Replicas) != 1 || replicas.Replicas[0].ID != "a/1" || replicas.Replicas[0].Standing != "member" {
		t.Errorf("%+v", replicas)
	}
	if page := told(t, url, "replicas", "list"); !strings.Contains(page, "a/1") || !strings.Contains(page, "4711") || !strings.Contains(page, "+2.5 ms") {
		t.Errorf("replicas list:\n%s", page)
	}
	if page := told(t, url, "jobs", "show", "bridge_health"); !strings.Contains(page, `{"Timeout":"2s",`) {
		t.Errorf("jobs show writes durations otherwise than a jobs file:\n%s", page)
	}
	db := lookAt(t, url)
	if page := told(t, url, "jobs", "show", "reconciliation"); !strings.Contains(page, "no live replica can lead it") {
		t.Errorf("jobs show, of one that no replica can lead:\n%s", page)
	}
	db.execute(`UPDATE replicas SET draining = true`)
	if page := told(t, url, "replicas", "list"); !strings.Contains(page, "draining") {
		t.Errorf("replicas list, of one that drains:\n%s", page)
	}
	db.execute(`UPDATE leadership SET expires_at = clock_timestamp() - interval '1 second'`)
	if page := told(t, url, "replicas", "list"); !strings.Contains(page, "drained") {
		t.Errorf("replicas list, of one that has drained:\n%s", page)
	}
}

// P7 and P10: the command, the page and the engine have the same instants, and the last tick is the
// one that history has.
func TestNextTicksAreThoseOfThePageAndOfTheEngine(t *testing.T) {
	t.Parallel()
	url := pgtest.URL(t)
	db := lookAt(t, url)
	replica := launch(t, url, "").serving()
	db.ledBy("bridge_health", replica)
	type answer struct {
		AsOf time.Time `json:"as_of"`
		Last struct {
			Tick *time.Time
			Run  *struct {
				ID   int64
				Tick time.Time
			}
			DueSince *time.Time `json:"due_since"`
		}
		Next []time.Time
	}
	var first answer
	eventually(t, 30*time.Second, "a tick was run", func() bool {
		answered(t, url, &first, "jobs", "next", "bridge_health", "-n", "2", "--last")
		return first.Last.Run != nil
	})
	if first.Last.Tick == nil || !first.Last.Run.Tick.Equal(*first.Last.Tick) || !first.Last.Tick.Before(first.AsOf) {
		t.Errorf("the last tick %v, and its run %+v, at %v", first.Last.Tick, first.Last.Run, first.AsOf)
	}
	// The page's, where it was read before the first of them passed.
	var page struct {
		AsOf time.Time `json:"as_of"`
		Jobs []struct {
			Name string
			Next *time.Time `json:"next_tick"`
		}
	}
	if err := json.Unmarshal([]byte(body(t, "http://"+replica.probeAddress()+"/api/v1/jobs")), &page); err != nil {
		t.Fatal(err)
	}
	for _, j := range page.Jobs {
		if j.Name == "bridge_health" && page.AsOf.Before(first.Next[0]) && page.AsOf.After(*first.Last.Tick) && !j.Next.Equal(first.Next[0]) {
			t.Errorf("the page has %v, the command %v", j.Next, first.Next[0])
		}
	}
	// The engine's: what it runs next is what was said, and nothing in between.
	var ticks []time.Time
	eventually(t, 30*time.Second, "both ticks were run", func() bool {
		rows, err := db.Query(t.Context(), `SELECT tick FROM runs WHERE lease = 'bridge_health' AND tick > $1 AND attempt = 1 ORDER BY tick`, *first.Last.Tick)
		if err != nil {
			t.Fatal(err)
		}
		ticks = ticks[:0]
		for rows.Next() {
			var at time.Time
			if err := rows.Scan(&at); err != nil {
				t.Fatal(err)
			}
			ticks = append(ticks, at)
		}
		return len(ticks) >= 2
	})
	if !ticks[0].Equal(first.Next[0]) || !ticks[1].Equal(first.Next[1]) {
		t.Errorf("the engine ran %v, the command said %v", ticks, first.Next)
	}
}

func body(t *testing.T, address string) string {
	t.Helper()
	_, text := get(t, address)
	return text
}

func TestTheLastTickIsSaidForWhatItIs(t *testing.T) {
	t.Parallel()
	minute := registry.Job{Name: "j", Schedule: registry.Every(time.Minute)}
	at := func(clock string) time.Time {
		t.Helper()
		parsed, err := time.Parse("15:04:05", clock)
		if err != nil {
			t.Fatal(err)
		}
		return time.Date(2026, 1, 1, parsed.Hour(), parsed.Minute(), parsed.Second(), 0, time.UTC)
	}
	run := &status.Run{ID: 9, Outcome: "failed", Epoch: 3, Ticks: 1}
	for want, last := range map[string]status.LastTick{
		"last: none, nobody has led it yet\n":                 {},
		"last: 2026-01-01T10:00:00Z failed, run 9, epoch 3\n": {Tick: at("10:00:00"), Run: run},
		"last: 2026-01-01T10:00:00Z, its history is pruned\n": {Tick: at("10:00:00")},
		"last: none since 2026-01-01T09:59:30Z\n":             {Tick: at("09:59:30"), Schedule: "another"},
		"last: 2026-01-01T09:58:00Z failed, run 9, epoch 3\ndue:  2026-01-01T09:59:00Z, and not taken yet at 2026-01-01T10:00:20Z\n": {Tick: at("09:58:00"), Run: run},
	} {
		last.AsOf = at("10:00:20")
		if last.Schedule == "" {
			last.Schedule = minute.Schedule.String()
		}
		var out strings.Builder
		printTicking(&out, tickingOf(minute, last, 2))
		if got := out.String(); got != want+"2026-01-01T10:01:00Z\n2026-01-01T10:02:00Z\n" {
			t.Errorf("%+v:\n%swant\n%s", last, got, want)
		}
	}
}

// A user's job cannot take the place of the product's own.
func TestTheNameOfTheBuiltInJobIsTaken(t *testing.T) {
	t.Parallel()
	_, stderr, code := command(t, "history", nil, "check")
	if lines := complaints(stderr); code != exitUsage || len(lines) != 1 || !strings.Contains(lines[0], "rota-history") || !strings.Contains(lines[0], "rename") {
		t.Errorf("exit code %d:\n%s", code, stderr)
	}
}

// The built-in job prunes by the settings that the replica was given.
func TestTheBuiltInJobKeepsWhatItIsTold(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		cfg  Config
		left string
	}{
		{Config{KeepHistory: 200_000 * time.Hour, KeepRuns: 10}, "1 2 3 4"},
		{Config{KeepHistory: time.Hour, KeepRuns: 10}, "2 3 4"},
		{Config{KeepHistory: 200_000 * time.Hour, KeepRuns: 1}, "2 3 4"},
	} {
		db := lookAt(t, historyOf(t))
		jobs, err := registry.Jobs()
		if err != nil {
			t.Fatal(err)
		}
		for _, j := range withHistory(jobs, db.Pool, tt.cfg) {
			if j.Name != scheduler.HistoryName {
				continue
			}
			if err := j.Run(t.Context(), &registry.Run{Log: slog.New(slog.DiscardHandler)}); err != nil {
				t.Fatal(err)
			}
		}
		var left string
		if err := db.QueryRow(t.Context(), `SELECT string_agg(id::text, ' ' ORDER BY id) FROM runs`).Scan(&left); err != nil {
			t.Fatal(err)
		}
		if left != tt.left {
			t.Errorf("%v and %d: left are %s, want %s", tt.cfg.KeepHistory, tt.cfg.KeepRuns, left, tt.left)
		}
	}
}
