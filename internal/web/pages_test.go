package web

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"regexp"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"

	"rota/internal/pgtest"
	"rota/internal/registry"
)

// told puts a job with a past into the database.
func told(t *testing.T, db *pgxpool.Pool) registry.Job {
	t.Helper()
	run(t, db, `INSERT INTO leadership (job_name, owner, expires_at, epoch) VALUES ('bridge_health', 'pod-9/11111111-5d6e-4f70-8192-a3b4c5d6e7f8', clock_timestamp() + interval '1 hour', 41)`)
	run(t, db, `UPDATE leadership SET epoch = 42, owner = $1 WHERE job_name = 'bridge_health'`, leader)
	run(t, db, `INSERT INTO requests (kind, job, lease, args, reason, asked_by, done_at, result) VALUES ('run', 'bridge_health', 'bridge_health', '{"Limit": 3}', 'after the repair', 'ana', clock_timestamp(), 'run 1')`)
	run(t, db, `INSERT INTO runs (lease, job, tick, epoch, owner, started_at, ended_at, outcome, error, refused, log, request_id) VALUES
		('bridge_health', 'bridge_health', '2026-01-01 10:00Z', 42, $1, '2026-01-01 10:00:01Z', '2026-01-01 10:00:03Z', 'panicked', E'no route to LP-3\n\ngoroutine 1 [running]:', 3, 'asked LP-3', 1)`, leader)
	run(t, db, `INSERT INTO runs (lease, job, tick, epoch, owner, started_at, ended_at, outcome, error, ticks, first_tick) VALUES
		('bridge_health', 'bridge_health', '2026-01-01 10:05Z', 42, $1, '2026-01-01 10:05Z', '2026-01-01 10:05Z', 'missed', 'nobody led', 4, '2026-01-01 10:02Z')`, leader)
	run(t, db, `INSERT INTO runs (lease, job, tick, epoch, owner) VALUES ('bridge_health', 'bridge_health', '2026-01-01 10:06Z', 42, $1)`, leader)
	run(t, db, `INSERT INTO requests (kind, job, lease, reason, asked_by) VALUES ('run', 'bridge_health', 'bridge_health', 'once more', 'ben')`)
	run(t, db, `INSERT INTO audit (actor, via, action, job, reason, detail) VALUES ('ana', 'cli', 'run', 'bridge_health', 'after the repair', '{"request": 1}')`)
	run(t, db, `INSERT INTO pauses (job, reason, paused_by, until) VALUES ('bridge_health', 'the bridge is rebuilt', 'cleo', clock_timestamp() + interval '1 hour')`)
	run(t, db, `INSERT INTO replicas (id, host, pid, version, started_at, seen_at, expires_at)
		VALUES ($1, 'pod-1', 4711, 'v9', clock_timestamp(), clock_timestamp(), clock_timestamp() + interval '1 hour')`, leader)
	return registry.Job{
		Name: "bridge_health", About: "Pings every bridge.", Schedule: registry.Cron("30 8 * * *").In("Europe/Berlin"), Runbook: "https://example.com/runbook",
		Timeout: 90 * time.Second, Retry: registry.Retry{Attempts: 3}, Source: "jobs/bridge_health.go:12",
		Args: struct {
			Limit   int
			Patient time.Duration
		}{7, 2 * time.Second},
	}
}

// P10: who had the job when, what it did, and what it will do.
func TestTheJobsPageTellsItsPastAndItsFuture(t *testing.T) {
	t.Parallel()
	db := pgtest.New(t)
	job := told(t, db)
	h := serve(db, job)
	page := get(t, h, "/jobs/bridge_health").Body.String()
	for what, wants := range map[string][]string{
		"who leads it":   {"pod-1", "3fa2b1c4", `<dd class="epoch">42</dd>`, "<meter ", "59 m "},
		"who led it":     {"pod-9", "replaced", ">41</th>", ">42</th>", `class="timeline"`},
		"its pause":      {"<strong>paused</strong>", "cleo", "the bridge is rebuilt", "ends"},
		"what waits":     {"Request 2, run, by <bdi>ben</bdi>", "once more"},
		"its runs":       {"panicked", "no route to LP-3", "running", "3 late writes refused", "on request", `href="../jobs/bridge_health/runs/1"`},
		"what it missed": {"missed", "nobody led", "4 ticks", "2026-01-01 10:02:00 UTC"},
		"its next ticks": {"Europe/Berlin", "08:30:00 CE", "daily at 08:30 Europe/Berlin"},
		"its times":      {`class="durations"`, "median 2.00 s"},
		"how it is set":  {"1m30s", "3, the second 1s after the first", "no table", "jobs/bridge_health.go:12", `href="https://example.com/runbook"`, `{&#34;Limit&#34;:7,&#34;Patient&#34;:&#34;2s&#34;}`},
		"what to do":     {`href="../events?lease=bridge_health"`},
	} {
		for _, want := range wants {
			if !strings.Contains(page, want) {
				t.Errorf("%s: %q is missing", what, want)
			}
		}
	}
	if only := get(t, h, "/jobs/bridge_health?outcome=missed").Body.String(); strings.Contains(only, `data-key="1"`) || !strings.Contains(only, "nobody led") {
		t.Error("the runs are not those of the outcome that was asked for")
	}
	if none := get(t, h, "/jobs/bridge_health?outcome=fenced").Body.String(); !strings.Contains(none, "None of that outcome") {
		t.Error("an empty list does not say why")
	}
	for _, address := range []string{"/jobs/nobody", "/jobs/nobody?outcome=failed", "/jobs/nobody?before=7", "/jobs/bridge_health/runs/99", "/jobs/bridge_health/runs/x", "/jobs/other/runs/1"} {
		if w := ask(h, http.MethodGet, address); w.Code != http.StatusNotFound {
			t.Errorf("%s: %d", address, w.Code)
		}
	}
	if t.Failed() {
		t.Log(page)
	}
}

func TestTheRunsPageTellsAllOfIt(t *testing.T) {
	t.Parallel()
	db := pgtest.New(t)
	job := told(t, db)
	page := get(t, serve(db, job), "/jobs/bridge_health/runs/1").Body.String()
	for _, want := range []string{
		"Run 1</h1>", "panicked", "no route to LP-3", "goroutine 1 [running]:", "asked LP-3", "after the repair", "by <bdi>ana</bdi>", "&#34;Limit&#34;: 3",
		`<dd class="epoch">42</dd>`, "3 refused", "took 2.00 s", "1.00 s after the tick", "pod-1",
	} {
		if !strings.Contains(page, want) {
			t.Errorf("%q is missing", want)
		}
	}
	if t.Failed() {
		t.Log(page)
	}
}

func TestEventsAreOfTermsAndOfOperators(t *testing.T) {
	t.Parallel()
	db := pgtest.New(t)
	h := serve(db, told(t, db))
	for address, c := range map[string]struct{ has, not []string }{
		"/events":                     {[]string{"term began", "term ended", "replaced", "after the repair", "ana"}, nil},
		"/events?kind=terms":          {[]string{"term began", "term ended"}, []string{"after the repair"}},
		"/events?kind=asked":          {[]string{"after the repair"}, []string{"term began"}},
		"/events?actor=ana":           {[]string{"after the repair"}, []string{"term began"}},
		"/events?actor=nobody":        {[]string{"Nothing of that kind"}, nil},
		"/events?lease=bridge_health": {[]string{"term ended", "after the repair"}, nil},
		"/events?lease=other":         {[]string{"Nothing of that kind"}, nil},
	} {
		page := get(t, h, address).Body.String()
		_, rows, _ := strings.Cut(page, `data-key="filter"`)
		for _, want := range c.has {
			if !strings.Contains(rows, want) {
				t.Errorf("%s lacks %q", address, want)
			}
		}
		for _, odd := range c.not {
			if strings.Contains(rows, odd) {
				t.Errorf("%s has %q", address, odd)
			}
		}
	}
}

func TestTheOverviewLeadsToWhatItCounts(t *testing.T) {
	t.Parallel()
	db := pgtest.New(t)
	h := serve(db, told(t, db), registry.Job{Name: "fresh", About: "Ingots & bars", Schedule: registry.OnDemand})
	for address, c := range map[string]struct{ has, not []string }{
		"/":                     {[]string{"All jobs", "bridge_health", "fresh"}, nil},
		"/?show=held":           {[]string{"1 of 2 jobs, held", "bridge_health"}, []string{">fresh<"}},
		"/?show=never":          {[]string{">fresh<"}, []string{">bridge_health<"}},
		"/?show=paused":         {[]string{">bridge_health<"}, []string{">fresh<"}},
		"/?show=running":        {[]string{">bridge_health<"}, []string{">fresh<"}},
		"/?show=free":           {[]string{"None of the 2 jobs is free", "Show all jobs"}, []string{"<table"}},
		"/?q=INGOTS+%26":        {[]string{">fresh<"}, []string{">bridge_health<"}},
		"/?q=pod-1":             {[]string{">bridge_health<"}, []string{">fresh<"}},
		"/?q=pod-9":             {[]string{"None of the 2 jobs"}, []string{"<table"}},
		"/?show=held&q=bridge":  {[]string{">bridge_health<", `value="bridge"`, `name="show" value="held"`}, nil},
		"/?show=held&q=nothing": {[]string{"Show all jobs"}, []string{"<table"}},
	} {
		page := get(t, h, address).Body.String()
		for _, want := range c.has {
			if !strings.Contains(page, want) {
				t.Errorf("%s lacks %q", address, want)
			}
		}
		for _, odd := range c.not {
			if strings.Contains(page, odd) {
				t.Errorf("%s has %q", address, odd)
			}
		}
	}
	if w := ask(h, http.MethodGet, "/?show=odd"); w.Code != http.StatusBadRequest || !strings.Contains(w.Body.String(), "it must be one of held, free,") {
		t.Errorf("a filter that there is not: %d", w.Code)
	}
}

// Who may not act is offered nothing.
func TestOrdersAreOfferedToThoseWhoMayGiveThem(t *testing.T) {
	t.Parallel()
	b := bearings{here: "/?q=a&page=2", can: rights{Operate: true}}
	db := pgtest.New(t)
	h := serve(db, told(t, db))
	get(t, h, "/")
	if page := ask(h, http.MethodGet, "/").Body.String(); strings.Contains(page, "data-order") {
		t.Error("a stranger is offered orders")
	}
	if got, want := b.order("run", "Run now", "/jobs/x/run").Path, "/jobs/x/run?back=%2F%3Fq%3Da%26page%3D2"; got != want {
		t.Errorf("%s, want %s", got, want)
	}
}

func TestEachFormSaysWhatWillComeOfIt(t *testing.T) {
	t.Parallel()
	db := pgtest.New(t)
	h := serve(db, told(t, db))
	for address, wants := range map[string][]string{
		"/jobs/bridge_health/run":                 {"Run bridge_health now", "this one starts after it", `name="args"`, "&#34;Limit&#34;: 7", `name="key" value="`},
		"/jobs/bridge_health/pause":               {"skipped and not caught up", `name="until"`, `name="reason"`, " required"},
		"/jobs/bridge_health/resume":              {"Paused by cleo", "the bridge is rebuilt"},
		"/pause":                                  {`name="typed"`, "<bdi>all</bdi>"},
		"/resume":                                 {"Resume all jobs"},
		"/leases/bridge_health/step-down":         {"pod-1 gives up its term under epoch 42", `name="epoch" value="42"`},
		"/leases/bridge_health/revoke":            {"<bdi>bridge_health</bdi>", `name="typed"`, `name="epoch" value="42"`, "is alive"},
		"/runs/3/cancel":                          {"Cancel run 3 of bridge_health"},
		replicaPath(leader) + "/drain":            {"Drain pod-1", "These are given up: bridge_health.", "No other replica is there"},
		"/replicas/" + segment(leader) + "/drain": {"Drain pod-1"},
		"/requests/2/withdraw":                    {"Withdraw request 2"},
	} {
		page := get(t, h, address+"?back=/jobs/bridge_health?outcome=failed").Body.String()
		for _, want := range append(wants, `method="post"`, `name="back" value="/jobs/bridge_health?outcome=failed"`) {
			if !strings.Contains(page, want) {
				t.Errorf("%s lacks %q", address, want)
			}
		}
		audit(t, address, page)
	}
	for _, back := range []string{"https://elsewhere.example/", "//elsewhere.example/", `/\elsewhere.example`, "javascript:alert(1)"} {
		if page := get(t, h, "/pause?back="+back).Body.String(); !strings.Contains(page, `name="back" value="/"`) {
			t.Errorf("a form leads to %s", back)
		}
	}
	for _, address := range []string{"/jobs/nobody/pause", "/leases/nobody/revoke", "/replicas/nobody/drain"} {
		if w := ask(h, http.MethodGet, address); w.Code != http.StatusNotFound {
			t.Errorf("%s: %d", address, w.Code)
		}
	}
}

// P10, and the page at three in the morning: without a database, what was looked at is still there, within a second.
func TestWithoutADatabaseEveryPageAnswersFromMemory(t *testing.T) {
	t.Parallel()
	db := pgtest.New(t)
	job := told(t, db)
	pool, err := pgxpool.NewWithConfig(t.Context(), db.Config())
	if err != nil {
		t.Fatal(err)
	}
	h := serve(pool, job)
	seen := map[string]string{
		"/": "last 3:", "/jobs/bridge_health": "no route to LP-3", "/jobs/bridge_health/runs/1": "asked LP-3",
		"/replicas": "pod-1", "/events": "after the repair", "/about": "PostgreSQL",
	}
	for address, want := range seen {
		until(t, h, address, func(w *httptest.ResponseRecorder) bool {
			return w.Code == http.StatusOK && strings.Contains(w.Body.String(), want)
		})
	}
	pool.Close()
	until(t, h, "/", func(w *httptest.ResponseRecorder) bool { return w.Header().Get("Rota-Stale") == "true" })
	for address, want := range seen {
		began := time.Now()
		w := ask(h, http.MethodGet, address)
		if d := time.Since(began); d > 5*time.Second { // a second, with room for a busy machine
			t.Errorf("%s took %v", address, d)
		}
		page := w.Body.String()
		if w.Code != http.StatusOK || !strings.Contains(page, want) || !strings.Contains(page, "<strong>Stale.</strong>") || !strings.Contains(page, `class="old"`) {
			t.Errorf("%s: %d, with what was seen: %t\n%s", address, w.Code, strings.Contains(page, want), page)
		}
	}
	// What was never looked at is shown as far as the snapshot has it.
	if w := ask(h, http.MethodGet, "/jobs/bridge_health?outcome=failed"); w.Code != http.StatusOK || !strings.Contains(w.Body.String(), "could not be read just now") {
		t.Errorf("%d", w.Code)
	}
	if w := ask(h, http.MethodGet, "/jobs/bridge_health/runs/2"); w.Code != http.StatusServiceUnavailable {
		t.Errorf("a run that was not looked at: %d", w.Code)
	}
}

// Whoever looks, and however many: the database is asked as often as for one.
func TestManyViewersCostTheDatabaseNoMoreThanOne(t *testing.T) {
	t.Parallel()
	db := pgtest.New(t)
	job := told(t, db)
	pool, err := pgxpool.NewWithConfig(t.Context(), db.Config())
	if err != nil {
		t.Fatal(err)
	}
	defer pool.Close()
	h := serve(pool, job)
	pages := []string{"/", "/jobs/bridge_health", "/jobs/bridge_health/runs/1", "/events", "/about"}
	for _, address := range pages {
		get(t, h, address)
	}
	asked, began := pool.Stat().AcquireCount(), time.Now()
	var viewers sync.WaitGroup
	for range 50 {
		viewers.Go(func() {
			for _, address := range pages {
				if w := ask(h, http.MethodGet, address); w.Code != http.StatusOK {
					t.Errorf("%s: %d", address, w.Code)
				}
			}
		})
	}
	viewers.Wait()
	// Each question is asked at most once in a second, and once where it grows too old.
	most := int64(len(pages)+1) * (2 + int64(time.Since(began)/time.Second))
	if n := pool.Stat().AcquireCount() - asked; n > most {
		t.Errorf("50 viewers of %d pages asked the database %d times in %v, and at most %d are good", len(pages), n, time.Since(began), most)
	}
}

// The script has the frame of the page already.
func TestTheScriptIsGivenTheMainPartAlone(t *testing.T) {
	t.Parallel()
	h := serve(pgtest.New(t))
	whole := get(t, h, "/")
	part := ask(h, http.MethodGet, "/", "Rota-Part", "main")
	if body := part.Body.String(); !strings.HasPrefix(body, "<main ") || strings.Contains(body, "<header>") || !strings.Contains(whole.Body.String(), "<header>") {
		t.Errorf("the part is %.200s", body)
	}
	if part.Header().Get("ETag") == whole.Header().Get("ETag") {
		t.Error("a part and the whole share a tag")
	}
	if again := ask(h, http.MethodGet, "/", "Rota-Part", "main", "If-None-Match", part.Header().Get("ETag")); again.Code != http.StatusNotModified {
		t.Errorf("again: %d", again.Code)
	}
}

// The figures of the overview are of what they name, and one shard can be run by itself.
func TestShardsAreCountedAsLeasesAndRunAlone(t *testing.T) {
	t.Parallel()
	db := pgtest.New(t)
	run(t, db, `INSERT INTO leadership (job_name, owner, expires_at, epoch)
		SELECT name, 'a/1', clock_timestamp() + interval '1 hour', 1 FROM unnest(ARRAY['other', 'sync.1of3', 'sync.2of3', 'sync.3of3']) name`)
	run(t, db, `INSERT INTO job_shards (job, n, acting) VALUES ('sync', 3, 3)`)
	h := serve(db, registry.Job{Name: "sync", Schedule: registry.OnDemand, Shards: 3}, registry.Job{Name: "other", Schedule: registry.OnDemand})
	page := get(t, h, "/").Body.String()
	for _, want := range []string{"<b>2</b> jobs", "<b>4</b> leases", "<b>4</b> held"} {
		if !strings.Contains(page, want) {
			t.Errorf("it lacks %q", want)
		}
	}
	if page := get(t, h, "/?show=held").Body.String(); !strings.Contains(page, "4 of 4 leases, held") {
		t.Error("the caption counts leases as jobs")
	}
	local := caller{from: "127.0.0.1:4711"}
	if page := local.ask(h, http.MethodGet, "/", "").Body.String(); !strings.Contains(page, "./jobs/sync/run?shard=2&amp;back=") {
		t.Error("the row of a shard does not offer to run it")
	}
	form := local.ask(h, http.MethodGet, "/jobs/sync/run?shard=2", "").Body.String()
	if !strings.Contains(form, `<option value="2" selected>2 of 3</option>`) || !strings.Contains(form, `<option value="">all of them</option>`) {
		t.Errorf("the form lacks the choice of a shard:\n%s", form)
	}
	if form := local.ask(h, http.MethodGet, "/jobs/other/run", "").Body.String(); strings.Contains(form, "Shard") {
		t.Error("a job without shards is asked for one")
	}
	for _, tt := range []struct {
		shard, words string
		code, asked  int
	}{
		{"2", "", http.StatusSeeOther, 1},
		{"", "", http.StatusSeeOther, 3},
		{"4", "Shard 4: job &#34;sync&#34; has 3.", http.StatusBadRequest, 0},
		{"x", "The field shard is &#34;x&#34;: it must be a whole number", http.StatusBadRequest, 0},
	} {
		before := number(t, db, `SELECT count(*) FROM requests`)
		w := giveOrder(h, "/jobs/sync/run", "application/x-www-form-urlencoded", "shard="+tt.shard)
		if w.Code != tt.code || !strings.Contains(w.Body.String(), tt.words) {
			t.Errorf("shard %q: %d\n%s", tt.shard, w.Code, w.Body)
		}
		if n := number(t, db, `SELECT count(*) FROM requests`) - before; n != tt.asked {
			t.Errorf("shard %q: %d requests", tt.shard, n)
		}
	}
	if w := giveOrder(h, apiPath+"/jobs/sync/run", kindJSON, `{"shard": 3}`); w.Code != http.StatusAccepted || number(t, db, `SELECT count(*) FROM requests WHERE lease = 'sync.3of3'`) != 2 {
		t.Errorf("by the API: %d %s", w.Code, w.Body)
	}
}

func TestTheAboutPageSaysHowFarTheTablesAreMigrated(t *testing.T) {
	t.Parallel()
	db := pgtest.New(t)
	h := serve(db)
	want := fmt.Sprintf("%05d, and the jobs&#39; own tables to 00001", number(t, db, `SELECT max(version_id) FROM rota_schema`))
	if page := get(t, h, "/about").Body.String(); !strings.Contains(page, want) {
		t.Errorf("it lacks %q", want)
	}
	run(t, db, `DROP TABLE rota_schema`)
	until(t, h, "/about", func(w *httptest.ResponseRecorder) bool {
		return strings.Contains(w.Body.String(), "unknown: the tables that say so") && strings.Contains(w.Body.String(), "PostgreSQL")
	})
}

func TestShardsOfAJobShareItsPage(t *testing.T) {
	t.Parallel()
	snap := shardsOf("sync", 3)
	p := (&server{}).jobView("sync", snap, snap.Leases, jobOf("sync"), noHistory(), bearings{})
	if len(p.Rows) != 3 || p.Row != nil || p.Rows[0].Name != "sync.1of3" || p.Rows[0].Path != "/jobs/sync" {
		t.Errorf("%+v", p.Rows)
	}
}

func TestABarGoesUpForWhatWentWellAndDownForWhatDidNot(t *testing.T) {
	t.Parallel()
	s := outcomeStrip(outcomesIn("success", "failed", "skipped", ""))
	if len(s.Bars) != 4 || s.Bars[0].Y >= stripRise-2 || s.Bars[1].Y != stripRise || s.Bars[2].H != 2 || s.Bars[3].Class != "busy" {
		t.Errorf("%+v", s.Bars)
	}
	if want := "last 4: 1 success, 1 failed, 1 skipped, 1 running; newest running"; s.Words != want {
		t.Errorf("%q, want %q", s.Words, want)
	}
	if last := s.Bars[3].X + s.Bars[3].W; last > float64(s.Width) || last < float64(s.Width)-stripStep {
		t.Errorf("the newest stands at %v of %d", last, s.Width)
	}
}

// What there is one of is counted as one, wherever it is counted.
func TestOneIsNotSeveral(t *testing.T) {
	t.Parallel()
	db := pgtest.New(t)
	job := told(t, db)
	run(t, db, `UPDATE runs SET refused = 1 WHERE refused > 0`)
	h := serve(db, job)
	several := regexp.MustCompile(`(?:^|[^0-9.])1 (?:late )?(?:jobs|leases|replicas|members|writes|ticks)`)
	for address, want := range map[string]string{
		"/": "<b>1</b> job</a>", "/?q=nothing": "None of the 1 job ", "/?show=paused": "1 of 1 job,", "/replicas": "1 lease held", "/about": "1 lease;",
		"/jobs/bridge_health": "1 late write refused",
	} {
		page := get(t, h, address).Body.String()
		text := regexp.MustCompile(`<[^>]*>`).ReplaceAllString(page, "")
		if odd := several.FindString(text); odd != "" || !strings.Contains(page, want) {
			t.Errorf("%s: %q, and it must say %q", address, odd, want)
		}
	}
}

// The shards of a job have runs for the same ticks, so each says whose it is.
func TestARunOfAShardSaysSo(t *testing.T) {
	t.Parallel()
	db := pgtest.New(t)
	for k := 1; k <= 2; k++ {
		run(t, db, `INSERT INTO leadership (job_name, owner, expires_at, epoch) VALUES ($1, $2, clock_timestamp() + interval '1 hour', 1)`, fmt.Sprintf("split.%dof2", k), leader)
		run(t, db, `INSERT INTO runs (lease, job, tick, epoch, owner, ended_at, outcome) VALUES ($1, 'split', '2026-01-01 10:00Z', 1, $2, now(), 'success')`, fmt.Sprintf("split.%dof2", k), leader)
	}
	page := get(t, serve(db, registry.Job{Name: "split", Schedule: registry.OnDemand, Shards: 2}), "/jobs/split").Body.String()
	for _, want := range []string{"<small>shard 1 of 2</small>", "<small>shard 2 of 2</small>"} {
		if strings.Count(page, want) != 1 {
			t.Errorf("the page has %q %d times", want, strings.Count(page, want))
		}
	}
}
