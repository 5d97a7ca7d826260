package web

import (
	"encoding/xml"
	"errors"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"

	"rota/internal/control"
	"rota/internal/pgtest"
	"rota/internal/registry"
	"rota/internal/status"
)

const leader = "pod-1/3fa2b1c4-5d6e-4f70-8192-a3b4c5d6e7f8"

func run(t *testing.T, db *pgxpool.Pool, sql string, args ...any) {
	t.Helper()
	if _, err := db.Exec(t.Context(), sql, args...); err != nil {
		t.Fatalf("%s: %v", sql, err)
	}
}

func says(text string) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, text) })
}

// serve returns the handler over db. This machine may do everything, others may read.
func serve(db *pgxpool.Pool, jobs ...registry.Job) http.Handler {
	gate, err := NewGate(Access{Listen: "127.0.0.1:8080", Hosts: []string{"example.com"}}) // that of httptest's requests
	if err != nil {
		panic(err) // it is in order
	}
	return Handler(Config{
		Status: status.New(db, jobs), Desk: control.NewDesk(db, jobs), Gate: gate,
		Metrics: says("metrics"), Live: says("live"), Ready: says("ready"),
		Version: "v0.0.0-test", Environment: "a test", Log: slog.New(slog.DiscardHandler), Jobs: jobs,
	})
}

func ask(h http.Handler, method, address string, headers ...string) *httptest.ResponseRecorder {
	r := httptest.NewRequest(method, address, nil)
	for i := 0; i < len(headers); i += 2 {
		r.Header.Set(headers[i], headers[i+1])
	}
	w := httptest.NewRecorder()
	h.ServeHTTP(w, r)
	return w
}

// get asks until it is answered with 200 and not from memory: a slow machine may need more than the
// 800 ms that the status takes at most.
func get(t *testing.T, h http.Handler, address string) *httptest.ResponseRecorder {
	t.Helper()
	return until(t, h, address, func(w *httptest.ResponseRecorder) bool {
		return w.Code == http.StatusOK && w.Header().Get("Rota-Stale") == ""
	})
}

func until(t *testing.T, h http.Handler, address string, good func(*httptest.ResponseRecorder) bool) *httptest.ResponseRecorder {
	t.Helper()
	for deadline := time.Now().Add(time.Minute); ; time.Sleep(50 * time.Millisecond) {
		w := ask(h, http.MethodGet, address)
		if good(w) {
			return w
		}
		if time.Now().After(deadline) {
			t.Fatalf("GET %s: still %d %v\n%s", address, w.Code, w.Header(), w.Body)
		}
	}
}

func staticAddress(name string) string { return "/static/" + assets[name].address }

func routes() []string {
	return []string{
		"/", "/replicas", "/events", "/about", "/api/v1/leases", "/api/v1/jobs", "/api/v1/replicas", "/api/v1/runs", "/api/v1/audit", "/metrics", "/livez", "/readyz",
		staticAddress("rota.css"), staticAddress("rota.js"), staticAddress("early.js"), staticAddress("rota.svg"),
	}
}

func TestEveryRouteAnswersGetAndHeadAndNothingElse(t *testing.T) {
	t.Parallel()
	h := serve(pgtest.New(t))
	for _, route := range routes() {
		got := get(t, h, route)
		if got.Body.Len() == 0 {
			t.Errorf("GET %s: empty", route)
		}
		server := httptest.NewServer(h) // it is the server that drops the body of an answer to HEAD
		head, err := server.Client().Head(server.URL + route)
		if err != nil {
			t.Fatal(err)
		}
		body, _ := io.ReadAll(head.Body)
		if head.StatusCode != http.StatusOK || len(body) > 0 {
			t.Errorf("HEAD %s: %s, %d bytes", route, head.Status, len(body))
		}
		if err := head.Body.Close(); err != nil {
			t.Error(err)
		}
		server.Close()
		for _, method := range []string{"POST", "PUT", "PATCH", "DELETE", "OPTIONS", "TRACE", "CONNECT", "ROTA"} {
			if w := ask(h, method, route); w.Code != http.StatusMethodNotAllowed || w.Header().Get("Allow") != "GET, HEAD" {
				t.Errorf("%s %s: %d, Allow %q", method, route, w.Code, w.Header().Get("Allow"))
			}
		}
	}
}

func TestEveryAnswerCarriesTheSecurityHeaders(t *testing.T) {
	t.Parallel()
	db := pgtest.New(t)
	h := serve(db)
	get(t, h, "/")
	check := func(what string, w *httptest.ResponseRecorder) {
		t.Helper()
		csp := w.Header().Get("Content-Security-Policy")
		for _, want := range []string{
			"default-src 'none'", "style-src 'self'", "script-src 'self'", "connect-src 'self'",
			"img-src 'self'", "form-action 'self'", "frame-ancestors 'none'", "base-uri 'none'",
		} {
			if !strings.Contains(csp, want) {
				t.Errorf("%s: the policy %q lacks %s", what, csp, want)
			}
		}
		if strings.Contains(csp, "unsafe") || strings.Contains(csp, "data:") {
			t.Errorf("%s: the policy %q lets too much in", what, csp)
		}
		if w.Header().Get("X-Content-Type-Options") != "nosniff" || w.Header().Get("Referrer-Policy") != "no-referrer" {
			t.Errorf("%s: headers %v", what, w.Header())
		}
		if cache := w.Header().Get("Cache-Control"); strings.HasPrefix(what, "/static/") == (cache == "no-store") {
			t.Errorf("%s: Cache-Control %q", what, cache)
		}
	}
	for _, route := range routes() {
		check(route, ask(h, "GET", route))
	}
	check("no such page", ask(h, "GET", "/nowhere/at/all"))
	check("a file that is not there", ask(h, "GET", "/static/nothing.css"))
	check("no such list", ask(h, "GET", "/api/v1/nothing"))
	check("wrong method", ask(h, "POST", "/"))
	closed := Handler(Config{Status: status.New(shut(t, db), nil), Metrics: says(""), Live: says(""), Ready: says(""), Log: slog.New(slog.DiscardHandler)})
	check("no database", ask(closed, "GET", "/"))
}

// shut is a pool on the same database that is closed already.
func shut(t *testing.T, db *pgxpool.Pool) *pgxpool.Pool {
	t.Helper()
	pool, err := pgxpool.NewWithConfig(t.Context(), db.Config())
	if err != nil {
		t.Fatal(err)
	}
	pool.Close()
	return pool
}

func TestProbesMatchWithAQueryString(t *testing.T) {
	t.Parallel()
	h := serve(pgtest.New(t))
	for address, want := range map[string]string{"/livez?verbose=1": "live", "/readyz?timeout=5s": "ready", "/metrics?x": "metrics"} {
		if w := ask(h, "GET", address); w.Code != http.StatusOK || w.Body.String() != want {
			t.Errorf("%s: %d %q", address, w.Code, w.Body)
		}
	}
}

func TestAPanicCostsOneRequest(t *testing.T) {
	t.Parallel()
	var logged strings.Builder
	h := Handler(Config{
		Status: status.New(shut(t, pgtest.New(t)), nil), Metrics: says(""), Ready: says(""),
		Live: http.HandlerFunc(func(http.ResponseWriter, *http.Request) { panic("a secret") }),
		Log:  slog.New(slog.NewTextHandler(&logged, nil)),
	})
	w := ask(h, "GET", "/livez")
	if w.Code != http.StatusInternalServerError || strings.Contains(w.Body.String(), "secret") {
		t.Errorf("%d %s", w.Code, w.Body)
	}
	if !strings.Contains(logged.String(), "a secret") {
		t.Errorf("the log has %q", logged.String())
	}
}

// P10: the page says what the rows say.
func TestThePageShowsEachJobsRow(t *testing.T) {
	t.Parallel()
	db := pgtest.New(t)
	run(t, db, `INSERT INTO leadership (job_name, owner, expires_at, epoch) VALUES
		('bridge_health', $1, clock_timestamp() + interval '1 hour', 41), ('legacy', 'psql', clock_timestamp() - interval '1 minute', 7)`, leader)
	run(t, db, `UPDATE leadership SET epoch = 42 WHERE job_name = 'bridge_health'`)
	run(t, db, `INSERT INTO replicas (id, host, pid, version, started_at, seen_at, expires_at)
		VALUES ($1, 'pod-1', 4711, 'v9', clock_timestamp(), clock_timestamp(), clock_timestamp() + interval '1 hour')`, leader)
	run(t, db, `INSERT INTO runs (lease, job, tick, epoch, owner, started_at, ended_at, outcome, error, refused) VALUES
		('bridge_health', 'bridge_health', '2026-01-01 10:00Z', 42, $1, clock_timestamp() - interval '2.5 s', clock_timestamp() - interval '2 s', 'failed', 'no route to LP-3', 3)`, leader)
	h := serve(db,
		registry.Job{Name: "bridge_health", About: "Pings every bridge.", Schedule: registry.Every(time.Minute), Runbook: "https://example.com/runbook"},
		registry.Job{Name: "fresh", Schedule: registry.OnDemand})

	page := get(t, h, "/").Body.String()
	for _, want := range []string{
		"<title>Jobs · Rota · a test</title>", "Pings every bridge.", `href="./jobs/bridge_health"`, `href="./jobs/bridge_health/runs/1"`,
		`title="` + leader + `"`, ">pod-1</bdi>", ">3fa2b1c4</bdi>", ">42</td>", ">59 m ", "<meter ",
		registry.Every(time.Minute).Words(), "failed", "took 500 ms", "no route to LP-3", "tick of 2026-01-01 10:00:00.000 UTC",
		"before: <bdi>replaced</bdi>", "unknown here", "not registered yet", "never held",
		"3 late writes refused", "last 1: 1 failed; newest failed",
		"<b>3</b> jobs", "<b>1</b> held", "<b>1</b> free", "<b>1</b> never held", "<b>1</b> failing", "<b>1</b> with refused writes", "<b>1</b> replica<",
	} {
		if !strings.Contains(page, want) {
			t.Errorf("the page of jobs lacks %q", want)
		}
	}
	page = get(t, h, "/replicas").Body.String()
	for _, want := range []string{leader, "4711", "v9", "member", "polls", "0.0 ms"} {
		if !strings.Contains(page, want) {
			t.Errorf("the page of replicas lacks %q", want)
		}
	}
	if t.Failed() {
		t.Log(page)
	}
}

func TestEmptyPagesSayWhyAndWhatNext(t *testing.T) {
	t.Parallel()
	h := serve(pgtest.New(t))
	for address, want := range map[string]string{"/": "No jobs.", "/replicas": "No replicas."} {
		if page := get(t, h, address).Body.String(); !strings.Contains(page, want) || !strings.Contains(page, "scheduler serve") {
			t.Errorf("%s does not say %q and what next:\n%s", address, want, page)
		}
	}
}

// elements are all that a page may consist of.
var elements = strings.Fields(`html head meta title link script body header main footer nav noscript div span p a img button h1 h2 section
	ul li b strong small code pre bdi time meter dl dt dd figure figcaption details summary dialog form label input select option textarea
	table caption thead tbody tr th td svg rect line text`)

// audit reads the page's markup, and refuses what could run or leave the page's own rules.
func audit(t *testing.T, address, page string) {
	t.Helper()
	d := xml.NewDecoder(strings.NewReader(page))
	d.Strict, d.AutoClose, d.Entity = false, []string{"meta", "link", "input", "img"}, xml.HTMLEntity
	for {
		token, err := d.Token()
		if errors.Is(err, io.EOF) {
			return
		}
		if err != nil {
			t.Fatalf("%s: %v", address, err)
		}
		e, ok := token.(xml.StartElement)
		if !ok {
			continue
		}
		if !slices.Contains(elements, e.Name.Local) {
			t.Errorf("%s: a %s", address, e.Name.Local)
		}
		outside := e.Name.Local != "script"
		for _, a := range e.Attr {
			switch name := a.Name.Local; {
			case strings.HasPrefix(name, "on"), name == "style", name == "srcdoc":
				t.Errorf("%s: a %s with %s", address, e.Name.Local, name)
			case name == "src", name == "href", name == "action":
				outside = true
				if strings.HasPrefix(a.Value, "/") || strings.HasPrefix(a.Value, "javascript") {
					t.Errorf("%s: %s=%q", address, name, a.Value)
				}
			}
		}
		if !outside {
			t.Errorf("%s: a script of its own", address)
		}
	}
}

func TestManyJobsComeInPages(t *testing.T) {
	t.Parallel()
	db := pgtest.New(t)
	run(t, db, `INSERT INTO leadership (job_name, owner, expires_at, epoch) SELECT to_char(i, 'FM"job-"000'), 'a', clock_timestamp(), 1 FROM generate_series(1, 250) i`)
	h := serve(db)
	for address, want := range map[string][3]string{
		"/":        {"Jobs 1 to 100 of 250", "job-001", `href="./?page=2"`},
		"/?page=2": {"Jobs 101 to 200 of 250", "job-150", `href="./?page=3"`},
		"/?page=3": {"Jobs 201 to 250 of 250", "job-250", `href="./?page=2"`},
	} {
		page := get(t, h, address).Body.String()
		for _, w := range want {
			if !strings.Contains(page, w) {
				t.Errorf("%s lacks %q", address, w)
			}
		}
	}
	for n, want := range map[string]int{"0": 400, "-1": 400, "x": 400, "99999999999999999999": 400, "4": 404, "9223372036854775807": 404} {
		if w := ask(h, "GET", "/?page="+n); w.Code != want {
			t.Errorf("page %s: %d", n, w.Code)
		}
	}
}

func TestLinksAreRelative(t *testing.T) {
	t.Parallel()
	h := serve(pgtest.New(t))
	for _, address := range []string{"/", "/replicas", "/deep/er/nowhere"} {
		w := ask(h, "GET", address)
		root := "./"
		if address == "/deep/er/nowhere" {
			root = "../../"
		}
		for _, m := range regexp.MustCompile(`(?:href|src)="([^"]*)"`).FindAllStringSubmatch(w.Body.String(), -1) {
			if strings.HasPrefix(m[1], "/") || strings.Contains(m[1], ":") {
				t.Errorf("%s links to %s", address, m[1])
			}
		}
		if !strings.Contains(w.Body.String(), `href="`+root+`static/rota.`) {
			t.Errorf("%s does not find its style under %s", address, root)
		}
	}
}

func TestAFileIsFoundOnlyUnderTheHashOfItsContent(t *testing.T) {
	t.Parallel()
	h := serve(pgtest.New(t))
	for _, name := range []string{"rota.css", "rota.js", "rota.svg", "..%2fhandler.go", "."} {
		if w := ask(h, "GET", "/static/"+name); w.Code != http.StatusNotFound {
			t.Errorf("%s: %d", name, w.Code)
		}
	}
	for name, kind := range map[string]string{"rota.css": "text/css", "rota.js": "text/javascript", "rota.svg": "image/svg+xml"} {
		w := ask(h, "GET", staticAddress(name))
		if got := w.Header().Get("Content-Type"); !strings.HasPrefix(got, kind) {
			t.Errorf("%s is %s", name, got)
		}
		if !strings.Contains(w.Header().Get("Cache-Control"), "immutable") {
			t.Errorf("%s: %v", name, w.Header())
		}
	}
}

// A pause is something else: it keeps a job from taking ticks.
func TestWhatStopsThePagesUpdatesIsNotCalledAPause(t *testing.T) {
	t.Parallel()
	page, script := get(t, serve(pgtest.New(t)), "/").Body.String(), string(assets["rota.js"].body)
	if !strings.Contains(page, `id="updates" hidden>Stop updating</button>`) || !strings.Contains(script, `"Update again" : "Stop updating"`) {
		t.Error("the button or its script has other words")
	}
	if strings.Contains(strings.ToLower(script), "pause") || strings.Contains(page, ">Pause<") {
		t.Error("it is called a pause")
	}
}
