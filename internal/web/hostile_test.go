package web

import (
	"encoding/json"
	"fmt"
	"html"
	"net/http"
	"net/url"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5/pgxpool"

	"rota/internal/pgtest"
	"rota/internal/registry"
)

// hostile is what nobody should be named, say or be given, and somebody will.
var hostile = []string{
	`<img src=x onerror=alert(1)>`, `{{.}}`, `"><script>alert(1)</script>`, `' onmouseover='alert(1)`, `</title></svg></pre><script>alert(1)</script>`,
	"\u202Edetrever\u202C \u2067rtl", "a/../../b?c=d#e", "..", "line\nbreak", strings.Repeat("x", 10_000),
}

// infest puts the text wherever the database takes one.
func infest(t *testing.T, db *pgxpool.Pool, text string) {
	t.Helper()
	run(t, db, `INSERT INTO leadership (job_name, owner, expires_at, epoch) VALUES ($1, $1, clock_timestamp() + interval '1 hour', 1)`, text)
	run(t, db, `INSERT INTO requests (kind, job, lease, args, reason, asked_by) VALUES ('run', $1, $1, jsonb_build_object($1::text, $1::text), $1, $1)`, text)
	run(t, db, `INSERT INTO runs (lease, job, tick, epoch, owner, ended_at, outcome, error, log, request_id)
		SELECT $1, $1, clock_timestamp(), 1, $1, clock_timestamp(), 'panicked', $1 || chr(10) || $1, $1, max(id) FROM requests`, text)
	run(t, db, `INSERT INTO runs (lease, job, tick, epoch, owner, ended_at, outcome, error) VALUES ($1, $1, clock_timestamp(), 1, $1, clock_timestamp(), 'skipped', $1)`, text)
	run(t, db, `INSERT INTO progress (lease, last_tick, schedule) VALUES ($1, clock_timestamp(), $1)`, text)
	run(t, db, `INSERT INTO pauses (job, reason, paused_by) VALUES ($1, $1, $1)`, text)
	run(t, db, `UPDATE terms SET end_reason = $1, ended_at = acquired_at WHERE job_name = $1`, text)
	run(t, db, `INSERT INTO audit (actor, via, action, job, lease, replica, reason, detail) VALUES ($1, 'cli', $1, $1, $1, $1, $1, jsonb_build_object($1::text, $1::text))`, text)
	run(t, db, `INSERT INTO replicas (id, host, pid, version, started_at, seen_at, expires_at)
		VALUES ($1, $1, 1, $1, clock_timestamp(), clock_timestamp(), clock_timestamp() + interval '1 hour')`, text)
}

// Every page, with text in every place that was made to break it: it is shown as text, and nothing runs.
func TestHostileTextIsShownAsText(t *testing.T) {
	t.Parallel()
	db := pgtest.New(t)
	for _, text := range hostile {
		infest(t, db, text)
	}
	h := serve(db, registry.Job{Name: "known", About: hostile[0], Runbook: "javascript:alert(1)", Source: hostile[2], Args: struct{ A string }{hostile[2]}, Schedule: registry.OnDemand})
	pages := []string{"/", "/replicas", "/events", "/about", "/jobs/known", "/jobs/known/run", "/pause"}
	for i, text := range hostile {
		q := url.QueryEscape(text)
		if len(text) > 1000 {
			q = q[:1000]
		}
		pages = append(pages, "/?q="+q, "/?page="+q, "/?show="+q, "/events?lease="+q+"&actor="+q, "/events?before="+q, "/events?kind="+q,
			jobPath(text), jobPath(text)+"?outcome="+q, jobPath(text)+"/pause?back="+q, "/leases/"+segment(text)+"/revoke", replicaPath(text)+"/drain",
			jobPath(text)+fmt.Sprintf("/runs/%d", 2*i+1), "/"+url.PathEscape(text))
	}
	found := 0
	for _, address := range pages {
		w := ask(h, http.MethodGet, address)
		page := w.Body.String()
		if w.Code == http.StatusOK {
			found++
		}
		audit(t, clip(address, 100), page)
		if len(page) > 500_000 {
			t.Errorf("%.100s has %d bytes", address, len(page))
		}
	}
	if want := 7 + 6*len(hostile); found < want { // some of the questions are refused, most pages are there
		t.Errorf("%d pages answered with 200, of %d: at least %d should", found, len(pages), want)
	}
	for i, text := range hostile[:4] {
		for _, address := range []string{"/", "/replicas", "/events", jobPath(text), jobPath(text) + fmt.Sprintf("/runs/%d", 2*i+1)} {
			if page := get(t, h, address).Body.String(); !strings.Contains(html.UnescapeString(page), text) {
				t.Errorf("%s does not show %q", address, text)
			}
		}
	}
	// Text that is written from right to left changes no other.
	if page := get(t, h, "/").Body.String(); !strings.Contains(page, "<bdi title=\"\u202Edetrever") {
		t.Error("a name is not kept apart from what stands around it")
	}
}

func TestTheAPIKeepsHostileNames(t *testing.T) {
	t.Parallel()
	db := pgtest.New(t)
	for _, text := range hostile {
		infest(t, db, text)
	}
	var list struct {
		Leases []struct{ Name, Owner string }
	}
	if err := json.Unmarshal(get(t, serve(db), "/api/v1/leases").Body.Bytes(), &list); err != nil {
		t.Fatal(err)
	}
	for _, text := range hostile {
		found := false
		for _, l := range list.Leases {
			found = found || l.Name == text && l.Owner == text
		}
		if !found {
			t.Errorf("the API lacks %.40q", text)
		}
	}
}
