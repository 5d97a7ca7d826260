package browser

import (
	"fmt"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/chromedp/chromedp"
	"github.com/jackc/pgx/v5/pgxpool"

	"rota/internal/registry"
)

// paths are the addresses of all pages, forms among them.
func paths(t *testing.T, db *pgxpool.Pool) []string {
	t.Helper()
	var panicked int64
	if err := db.QueryRow(t.Context(), `SELECT max(id) FROM runs WHERE job = 'margin_report'`).Scan(&panicked); err != nil {
		t.Fatal(err)
	}
	return []string{
		"/", "/?show=paused", "/?show=overdue&q=nothing+like+it", "/jobs/bridge_health", "/jobs/venue_fees", "/jobs/symbol_sync?outcome=failed",
		fmt.Sprintf("/jobs/margin_report/runs/%d", panicked), "/replicas", "/events", "/events?kind=asked", "/about", "/nowhere",
		"/jobs/bridge_health/run", "/leases/bridge_health/revoke", "/pause",
	}
}

// WCAG 2.2 AA, as far as a program can tell: every page, in both themes, on a phone and on a desk.
func TestEveryPageIsAccessibleInBothThemesOnPhoneAndDesk(t *testing.T) {
	s := newSite(t, desk(), busy)
	b := newTab(t, s.url)
	for _, path := range paths(t, s.db) {
		b.goTo(s.url + path)
		for _, theme := range []string{"light", "dark"} {
			for _, width := range []int64{390, 1280} {
				where := fmt.Sprintf("%s, %s, %d pixels", path, theme, width)
				b.shape(width, 900, theme)
				b.accessible(where)
				b.fits(where)
				b.labelled(where)
			}
		}
		if path == "/nowhere" {
			b.quiet(path, "404")
		} else {
			b.quiet(path)
		}
	}
	// What finds nothing must be able to find something.
	b.js(`document.documentElement.style.setProperty("--soft", "#bbb"); document.querySelector("main").removeAttribute("id"); document.querySelector("form label").remove();`)
	if found := b.violations(); len(found) < 2 {
		t.Errorf("a page without contrast and labels has %d violations: %q", len(found), found)
	}
}

// The chosen theme goes before the preferred one, from the first paint on, and stays chosen.
func TestTheThemeThatIsChosenStays(t *testing.T) {
	s := newSite(t, desk(), busy)
	b := newTab(t, s.url)
	b.shape(1280, 900, "light")
	b.goTo(s.url)
	paper := func() string { return eval[string](b, `getComputedStyle(document.body).backgroundColor`) }
	light := paper()
	b.js(`const s = document.getElementById("theme"); s.value = "dark"; s.dispatchEvent(new Event("change"));`)
	b.until("the dark theme", `document.documentElement.dataset.theme === "dark"`)
	dark := paper()
	if dark == light {
		t.Fatal("the theme changes nothing")
	}
	b.goTo(s.url + "/replicas")
	if paper() != dark {
		t.Error("the next page has forgotten it")
	}
	for _, theme := range []string{"light", "auto"} {
		b.js(fmt.Sprintf(`const s = document.getElementById("theme"); s.value = %q; s.dispatchEvent(new Event("change"));`, theme))
		if paper() != light {
			t.Errorf("%s is not light", theme)
		}
	}
	b.shape(1280, 900, "dark")
	if paper() != dark {
		t.Error("auto does not follow what is preferred")
	}
	b.accessible("dark")
}

// Each time has its zone: UTC, the reader's, or the job's.
func TestTimesAreInTheZoneThatIsChosen(t *testing.T) {
	s := newSite(t, desk(), busy)
	b := newTab(t, s.url)
	b.goTo(s.url + "/jobs/margin_report")
	zone := func(name string) {
		b.js(fmt.Sprintf(`const s = document.getElementById("zone"); s.value = %q; s.dispatchEvent(new Event("change"));`, name))
	}
	tick := `document.querySelector("#runs th time").textContent`
	for name, ends := range map[string][]string{"utc": {"UTC"}, "local": {"EST", "EDT", "GMT-5", "GMT-4"}, "job": {"CET", "CEST", "GMT+1", "GMT+2"}} {
		zone(name)
		got := eval[string](b, tick)
		good := false
		for _, end := range ends {
			good = good || strings.HasSuffix(got, end)
		}
		if !good {
			t.Errorf("in %s the tick is %q", name, got)
		}
	}
	zone("job")
	b.goTo(s.url + "/jobs/margin_report")
	if got := eval[string](b, tick); strings.HasSuffix(got, "UTC") {
		t.Errorf("the choice is forgotten: %q", got)
	}
	if got := eval[string](b, `document.querySelector("#ticks ~ table time[data-shape=local], .ticks time[data-shape=local]").textContent`); len(got) < 20 {
		t.Errorf("the next tick has no local time: %q", got)
	}
	b.quiet("times")
}

// hostile is what nobody should be named, and somebody will.
var hostile = []string{
	`<script>alert(1)</script>{{.}}`, `"><svg onload=alert(1)><img src=x onerror=alert(1)>`, `' onfocus='alert(1)' autofocus='`,
	"\u202Edetrever\u202C \u2067rtl", strings.Repeat("x", 10_000), strings.Repeat("\u202E<b>", 3000),
}

func infested(t *testing.T, db *pgxpool.Pool) {
	for _, text := range hostile {
		run(t, db, `INSERT INTO leadership (job_name, owner, expires_at, epoch) VALUES ($1, $1, clock_timestamp() + interval '15 s', 1)`, text)
		run(t, db, `INSERT INTO requests (kind, job, lease, args, reason, asked_by) VALUES ('run', $1, $1, jsonb_build_object($1::text, $1::text), $1, $1)`, text)
		run(t, db, `INSERT INTO runs (lease, job, tick, epoch, owner, ended_at, outcome, error, log, request_id)
			SELECT $1, $1, clock_timestamp(), 1, $1, clock_timestamp(), 'panicked', $1 || chr(10) || $1, $1, max(id) FROM requests`, text)
		run(t, db, `INSERT INTO progress (lease, last_tick, schedule) VALUES ($1, clock_timestamp(), $1)`, text)
		run(t, db, `INSERT INTO pauses (job, reason, paused_by) VALUES ($1, $1, $1)`, text)
		run(t, db, `INSERT INTO audit (actor, via, action, job, lease, replica, reason, detail) VALUES ($1, 'cli', $1, $1, $1, $1, $1, jsonb_build_object($1::text, $1::text))`, text)
		run(t, db, `INSERT INTO replicas (id, host, pid, version, started_at, seen_at, expires_at)
			VALUES ($1, $1, 1, $1, clock_timestamp(), clock_timestamp(), clock_timestamp() + interval '15 s')`, text)
	}
}

// Nothing of it runs, and the layout holds, on every page that shows it.
func TestHostileTextNeitherRunsNorBreaksTheLayout(t *testing.T) {
	jobs := []registry.Job{{Name: "known", About: hostile[0], Runbook: "javascript:alert(1)", Source: hostile[4], Schedule: registry.OnDemand}}
	s := newSite(t, jobs, infested)
	b := newTab(t, s.url)
	pages := []string{"/", "/replicas", "/events", "/jobs/known", "/?q=" + url.QueryEscape(hostile[1])}
	for i, text := range hostile {
		job := "/jobs/" + url.PathEscape(text)
		if len(job) < 8000 {
			pages = append(pages, job, fmt.Sprintf("%s/runs/%d", job, i+1))
		}
	}
	for _, path := range pages {
		b.goTo(s.url + path)
		for _, width := range []int64{390, 1280} {
			b.shape(width, 900, "light")
			b.fits(fmt.Sprintf("%.80s, %d pixels", path, width))
		}
		b.quiet(fmt.Sprintf("%.80s", path), "status of 4")
	}
	if found := eval[int](b, `document.querySelectorAll("main script, main img, main b[onerror], [onload], [onerror], [onfocus]").length`); found > 0 {
		t.Errorf("%d elements came out of text", found)
	}
}

// TestScreenshots makes the pictures of the README anew, where ROTA_SHOTS is set.
func TestScreenshots(t *testing.T) {
	if os.Getenv("ROTA_SHOTS") == "" {
		t.Skip("ROTA_SHOTS is not set")
	}
	s := newSite(t, desk(), busy)
	b := newTab(t, s.url)
	dir := filepath.Join("..", "..", "..", "docs", "img")
	if err := os.MkdirAll(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	for name, path := range map[string]string{"jobs": "/", "job": "/jobs/bridge_health"} {
		for _, theme := range []string{"light", "dark"} {
			b.shape(1280, 960, theme)
			b.goTo(s.url + path)
			b.until("an update", `document.getElementById("age").textContent !== ""`)
			png, err := chromedp.Run(b.ctx, chromedp.CaptureScreenshot())
			if err != nil {
				t.Fatal(err)
			}
			if err := os.WriteFile(filepath.Join(dir, name+"-"+theme+".png"), png, 0o644); err != nil {
				t.Fatal(err)
			}
		}
	}
}
