package web

import (
	"encoding/json"
	"fmt"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/jackc/pgx/v5/pgxpool"

	"rota/internal/pgtest"
	"rota/internal/registry"
	"rota/internal/status"
)

func TestAnUnchangedPageIsNotSentAgain(t *testing.T) {
	t.Parallel()
	db := pgtest.New(t)
	run(t, db, `INSERT INTO leadership (job_name, owner, expires_at, epoch) VALUES ('one', 'a', clock_timestamp() + interval '1 hour', 1)`)
	h := serve(db)
	for _, address := range []string{"/", "/replicas", "/api/v1/leases"} {
		first := get(t, h, address)
		tag := first.Header().Get("ETag")
		again := ask(h, "GET", address, "If-None-Match", tag)
		if again.Code != http.StatusNotModified || again.Body.Len() > 0 {
			t.Errorf("%s: %d with %d bytes", address, again.Code, again.Body.Len())
		}
		// P10: even then the answer says how old what it stands for is.
		if again.Header().Get("Rota-As-Of") == "" || again.Header().Get("Rota-Age") == "" {
			t.Errorf("%s: headers %v", address, again.Header())
		}
		if other := ask(h, "GET", address, "If-None-Match", `"another"`); other.Code != http.StatusOK {
			t.Errorf("%s with another tag: %d", address, other.Code)
		}
	}
	if a, b := get(t, h, "/").Header().Get("ETag"), get(t, h, "/replicas").Header().Get("ETag"); a == b {
		t.Error("two pages share a tag")
	}
	// It is sent again once the rows say something else.
	tag := get(t, h, "/").Header().Get("ETag")
	run(t, db, `UPDATE leadership SET epoch = 77`)
	w := until(t, h, "/", func(w *httptest.ResponseRecorder) bool { return w.Header().Get("ETag") != tag })
	if !strings.Contains(w.Body.String(), ">77</td>") {
		t.Error("another tag, and the old epoch")
	}
}

// Who has given an order sees, and is offered, what is so after it, however lately the page was read.
func TestAnOrderIsSeenAtOnce(t *testing.T) {
	t.Parallel()
	db := pgtest.New(t)
	h := serve(db, told(t, db))
	here := caller{from: "127.0.0.1:4711"}
	const job = "/jobs/bridge_health"
	for i, then := range []string{"resume", "pause", "resume", "pause"} {
		now := map[string]string{"pause": "resume", "resume": "pause"}[then]
		for _, address := range []string{"/", job, "/events"} {
			here.ask(h, http.MethodGet, address, "")
		}
		reason := fmt.Sprintf("for the %dth time", i)
		if w := here.ask(h, http.MethodPost, job+"/"+now, "reason="+url.QueryEscape(reason)); w.Code != http.StatusSeeOther {
			t.Fatalf("%s: %d %s", now, w.Code, w.Body)
		}
		for _, address := range []string{"/", job} {
			page := here.ask(h, http.MethodGet, address, "").Body.String()
			if strings.Contains(page, "bridge_health/"+now+"?") || !strings.Contains(page, "bridge_health/"+then+"?") {
				t.Errorf("after %s %s does not offer %s", now, address, then)
			}
		}
		if page := here.ask(h, http.MethodGet, "/events", "").Body.String(); !strings.Contains(page, reason) {
			t.Errorf("the audit does not tell of %s", now)
		}
	}
}

// P10, and issue 2: with the database gone the page answers at once from memory, and says how old
// that is.
func TestWithoutADatabaseThePageAnswersFromMemory(t *testing.T) {
	t.Parallel()
	db := pgtest.New(t)
	run(t, db, `INSERT INTO leadership (job_name, owner, expires_at, epoch) VALUES ('one', 'a', clock_timestamp() + interval '1 hour', 1)`)
	pool, err := pgxpool.NewWithConfig(t.Context(), db.Config())
	if err != nil {
		t.Fatal(err)
	}
	h := serve(pool)
	tag := get(t, h, "/").Header().Get("ETag")
	pool.Close()

	w := until(t, h, "/", func(w *httptest.ResponseRecorder) bool { return w.Header().Get("Rota-Stale") == "true" })
	if w.Code != http.StatusOK || w.Header().Get("ETag") == tag {
		t.Errorf("%d, tag %s as before", w.Code, w.Header().Get("ETag"))
	}
	for _, want := range []string{"Stale.", `data-stale="true"`, ">one</bdi>"} {
		if !strings.Contains(w.Body.String(), want) {
			t.Errorf("the stale page lacks %q", want)
		}
	}
	var list struct {
		AsOf       time.Time `json:"as_of"`
		Stale      bool      `json:"stale"`
		AgeSeconds float64   `json:"age_seconds"`
		Leases     []any     `json:"leases"`
	}
	began := time.Now()
	body := ask(h, "GET", "/api/v1/leases")
	if d := time.Since(began); d > 5*time.Second {
		t.Errorf("took %v", d)
	}
	if err := json.Unmarshal(body.Body.Bytes(), &list); err != nil {
		t.Fatal(err)
	}
	if !list.Stale || list.AgeSeconds <= 0 || list.AsOf.IsZero() || len(list.Leases) != 1 {
		t.Errorf("API: %+v", list)
	}
	if age, err := strconv.ParseFloat(body.Header().Get("Rota-Age"), 64); err != nil || age <= 0 {
		t.Errorf("Rota-Age %q", body.Header().Get("Rota-Age"))
	}
}

func TestADatabaseThatNeverAnsweredIsSaidSo(t *testing.T) {
	t.Parallel()
	var logged strings.Builder
	h := Handler(Config{
		Status: status.New(shut(t, pgtest.New(t)), nil), Metrics: says(""), Live: says(""), Ready: says(""),
		Log: slog.New(slog.NewTextHandler(&logged, nil)),
	})
	for range 3 {
		w := ask(h, "GET", "/")
		if w.Code != http.StatusServiceUnavailable || w.Header().Get("Retry-After") == "" ||
			!strings.Contains(w.Body.String(), "has not answered") || !strings.Contains(w.Body.String(), "Check that PostgreSQL runs") {
			t.Errorf("%d %v\n%s", w.Code, w.Header(), w.Body)
		}
	}
	w := ask(h, "GET", "/api/v1/leases")
	var problem struct {
		Status        int
		Title, Detail string
	}
	if err := json.Unmarshal(w.Body.Bytes(), &problem); err != nil || w.Header().Get("Content-Type") != "application/problem+json" {
		t.Errorf("%v %v: %s", err, w.Header(), w.Body)
	}
	if problem.Status != 503 || problem.Title != "Service Unavailable" || !strings.Contains(problem.Detail, "has not answered") {
		t.Errorf("%+v", problem)
	}
	if lines := strings.Count(logged.String(), "\n"); lines != 1 {
		t.Errorf("%d lines in the log:\n%s", lines, &logged)
	}
}

// The forms below are public: other programs read them.
func TestTheAPIKeepsItsForm(t *testing.T) {
	t.Parallel()
	db := pgtest.New(t)
	run(t, db, `INSERT INTO leadership (job_name, owner, expires_at, epoch) VALUES
		('held',  $1, '2200-01-01 00:00:00.5Z', 41), ('freed', $1, '2020-01-01Z', 7), ('fresh', '', '2020-01-01Z', 0)`, leader)
	run(t, db, `UPDATE leadership SET acquired_at = '2026-01-01Z' WHERE epoch > 0`)
	run(t, db, `UPDATE terms SET ended_at = '2026-02-01Z', end_reason = 'stepped down' WHERE job_name = 'held'`)
	run(t, db, `UPDATE terms SET ended_at = '2020-01-01Z' WHERE job_name = 'freed'`)
	run(t, db, `INSERT INTO pauses (job, reason, paused_by, paused_at) VALUES ('held', 'a reason', 'ana', '2026-01-01Z')`)
	run(t, db, `INSERT INTO runs (lease, job, tick, epoch, owner, started_at, ended_at, outcome, error, refused) VALUES
		('held',  'held',  '2026-01-01 10:00Z', 41, $1, '2026-01-01 10:00:01Z', '2026-01-01 10:00:02Z', 'failed', 'why', 2),
		('freed', 'freed', '2026-01-01 10:00Z', 7,  $1, '2026-01-01 10:00:01Z', NULL, NULL, NULL, 0)`, leader)
	run(t, db, `INSERT INTO replicas (id, host, pid, version, started_at, seen_at, expires_at, clock_offset, hints)
		VALUES ($1, 'pod-1', 4711, 'v9', '2026-01-01Z', '2026-01-02Z', '2200-01-01Z', '0.25', true)`, leader)
	h := serve(db, registry.Job{Name: "held", About: "a job", Runbook: "https://example.com/", Schedule: registry.OnDemand})
	onDemand := registry.OnDemand

	lease := func(name, owner string, epoch int, expires, acquired any, state string) map[string]any {
		return map[string]any{
			"name": name, "job": name, "shard": nil, "owner": owner, "epoch": float64(epoch),
			"expires_at": expires, "acquired_at": acquired, "state": state,
		}
	}
	held := lease("held", leader, 41, "2200-01-01T00:00:00.5Z", "2026-01-01T00:00:00Z", "held")
	freed := lease("freed", leader, 7, "2020-01-01T00:00:00Z", "2026-01-01T00:00:00Z", "free")
	fresh := lease("fresh", "", 0, nil, nil, "never")
	with := func(lease, more map[string]any) map[string]any {
		job := map[string]any{
			"about": "", "runbook": "", "stranded": lease["state"] != "held", "disabled": false, "compiled_in": false, "registered": true, "schedule": "", "schedule_words": "",
			"next_tick": nil, "due_since": nil, "paused": nil, "last_run": nil, "last_success_at": nil, "refused_writes": 0.0, "last_end": nil,
		}
		for _, m := range []map[string]any{lease, more} {
			for k, v := range m {
				job[k] = v
			}
		}
		return job
	}
	for address, want := range map[string]map[string]any{
		"/api/v1/leases": {"next_after": nil, "leases": []any{freed, fresh, held}},
		"/api/v1/jobs": {"next_after": nil, "jobs": []any{
			with(freed, map[string]any{
				"last_run": map[string]any{
					"id": 2.0, "job": "freed", "lease": "freed", "first_tick": nil, "ticks": 1.0, "refused_writes": 0.0, "request_id": nil,
					"tick": "2026-01-01T10:00:00Z", "attempt": 1.0, "epoch": 7.0, "owner": leader,
					"started_at": "2026-01-01T10:00:01Z", "ended_at": nil, "outcome": nil, "error": "",
				},
				"last_end": map[string]any{"epoch": 7.0, "owner": leader, "ended_at": "2020-01-01T00:00:00Z", "reason": "expired"},
			}),
			with(fresh, nil),
			with(held, map[string]any{
				"about": "a job", "runbook": "https://example.com/", "compiled_in": true,
				"schedule": onDemand.String(), "schedule_words": onDemand.Words(), "refused_writes": 2.0,
				"paused": map[string]any{"job": "held", "reason": "a reason", "by": "ana", "at": "2026-01-01T00:00:00Z", "until": nil},
				"last_run": map[string]any{
					"id": 1.0, "job": "held", "lease": "held", "first_tick": nil, "ticks": 1.0, "refused_writes": 2.0, "request_id": nil,
					"tick": "2026-01-01T10:00:00Z", "attempt": 1.0, "epoch": 41.0, "owner": leader,
					"started_at": "2026-01-01T10:00:01Z", "ended_at": "2026-01-01T10:00:02Z", "outcome": "failed", "error": "why",
				},
				"last_end": map[string]any{"epoch": 41.0, "owner": leader, "ended_at": "2026-02-01T00:00:00Z", "reason": "stepped down"},
			}),
		}},
		"/api/v1/replicas": {"next_after": nil, "replicas": []any{map[string]any{
			"id": leader, "standing": "member", "host": "pod-1", "pid": 4711.0, "version": "v9",
			"started_at": "2026-01-01T00:00:00Z", "seen_at": "2026-01-02T00:00:00Z", "expires_at": "2200-01-01T00:00:00Z",
			"clock_offset_seconds": 0.25, "notified": true, "leases": 1.0,
		}}},
	} {
		w := get(t, h, address)
		if kind := w.Header().Get("Content-Type"); kind != "application/json" {
			t.Errorf("%s is %s", address, kind)
		}
		var got map[string]any
		if err := json.Unmarshal(w.Body.Bytes(), &got); err != nil {
			t.Fatalf("%s: %v", address, err)
		}
		asOf, err := time.Parse(time.RFC3339Nano, got["as_of"].(string))
		if err != nil || time.Since(asOf) > time.Hour || asOf.Location() != time.UTC {
			t.Errorf("%s: as of %v", address, got["as_of"])
		}
		if age := got["age_seconds"].(float64); age < 0 || age > 60 {
			t.Errorf("%s: age %v", address, age)
		}
		delete(got, "as_of")
		delete(got, "age_seconds")
		want["stale"] = false
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("%s (-want +got):\n%s", address, diff)
		}
	}
}

func TestListsAreNeverNull(t *testing.T) {
	t.Parallel()
	h := serve(pgtest.New(t))
	for _, name := range []string{"leases", "jobs", "replicas"} {
		if body := get(t, h, "/api/v1/"+name).Body.String(); !strings.Contains(body, `"`+name+`":[]`) {
			t.Errorf("%s: %s", name, body)
		}
	}
}

func TestDurationsAreShortAndNeverNegative(t *testing.T) {
	t.Parallel()
	for d, want := range map[time.Duration]string{
		-time.Hour: "0 s", 0: "0 s", 59*time.Second + 999*time.Millisecond: "59 s", time.Minute: "1 m 0 s",
		3*time.Minute + 12*time.Second: "3 m 12 s", time.Hour + time.Minute + time.Second: "1 h 1 m", 52 * time.Hour: "2 d 4 h",
	} {
		if got := duration(d); got != want {
			t.Errorf("duration(%v) = %q, want %q", d, got, want)
		}
	}
	for d, want := range map[time.Duration]string{
		-time.Second: "under 1 ms", 240 * time.Millisecond: "240 ms", 1240 * time.Millisecond: "1.24 s", 12 * time.Second: "12 s",
	} {
		if got := took(d); got != want {
			t.Errorf("took(%v) = %q, want %q", d, got, want)
		}
	}
}
