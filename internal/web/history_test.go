package web

import (
	"encoding/json"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"

	"rota/internal/pgtest"
	"rota/internal/registry"
)

// P10: a paused job is shown as led and as paused, with who paused it, why, and until when.
func TestAPausedJobIsShownAsLedAndPaused(t *testing.T) {
	t.Parallel()
	db := pgtest.New(t)
	run(t, db, `INSERT INTO leadership (job_name, owner, expires_at, epoch) VALUES
		('alone', $1, clock_timestamp() + interval '1 hour', 1), ('other', $1, clock_timestamp() + interval '1 hour', 1)`, leader)
	run(t, db, `INSERT INTO pauses (job, reason, paused_by, paused_at, until) VALUES
		('alone', 'the feed of LP-3 is bad', 'ana@example', clock_timestamp() - interval '5 minutes', clock_timestamp() + interval '2 hours')`)
	h := serve(db, registry.Job{Name: "alone", Schedule: registry.Every(time.Minute)})

	page := get(t, h, "/").Body.String()
	for _, want := range []string{
		"<b>2</b> held", "<b>1</b> paused", "<bdi>paused</bdi></span>", "by <bdi>ana@example</bdi>", "the feed of LP-3 is bad", ">5 m ", "ends <time", ">in 1 h 59 m<",
	} {
		if !strings.Contains(page, want) {
			t.Errorf("the page of jobs lacks %q", want)
		}
	}
	if n := strings.Count(page, "<bdi>held</bdi></span>"); n != 2 {
		t.Errorf("%d jobs are shown as held", n)
	}
	var list struct {
		Jobs []struct {
			Name, State string
			Paused      *struct {
				Job, Reason, By string
				At, Until       *time.Time
			}
		}
	}
	decode(t, get(t, h, "/api/v1/jobs").Body.Bytes(), &list)
	p := list.Jobs[0].Paused
	if p == nil || p.Job != "alone" || p.Reason != "the feed of LP-3 is bad" || p.By != "ana@example" || p.At == nil || p.Until == nil ||
		list.Jobs[0].State != "held" || list.Jobs[1].Paused != nil {
		t.Errorf("API: %+v, paused %+v", list, p)
	}

	run(t, db, `INSERT INTO pauses (job, reason, paused_by) VALUES ('*', 'maintenance', 'bo')`)
	page = get(t, serve(db), "/").Body.String()
	for _, want := range []string{"<b>2</b> paused", "paused with all jobs", "by <bdi>bo</bdi>", "until it is resumed", "maintenance"} {
		if !strings.Contains(page, want) {
			t.Errorf("with a pause of all the page lacks %q", want)
		}
	}
	if t.Failed() {
		t.Log(page)
	}
}

func decode(t *testing.T, body []byte, v any) {
	t.Helper()
	if err := json.Unmarshal(body, v); err != nil {
		t.Fatalf("%v: %s", err, body)
	}
}

func someRuns(t *testing.T) *pgxpool.Pool {
	t.Helper()
	db := pgtest.New(t)
	run(t, db, `INSERT INTO runs (lease, job, tick, attempt, epoch, owner, ended_at, outcome, error, first_tick, ticks, log) VALUES
		('a', 'a', '2026-01-01 10:00Z', 1, 1, 'x', clock_timestamp(), 'failed', 'no luck', NULL, 1, 'a <b>line</b>'),
		('a', 'a', '2026-01-01 10:00Z', 2, 1, 'x', clock_timestamp(), 'success', NULL, NULL, 1, NULL),
		('b', 'b', '2026-01-01 10:59Z', 1, 1, 'x', clock_timestamp(), 'missed', 'nobody led', '2026-01-01 10:00Z', 60, NULL),
		('b', 'b', '2026-01-01 11:00Z', 1, 1, 'x', NULL, NULL, NULL, NULL, 1, NULL)`)
	pgtest.Note(t, db)
	run(t, db, `INSERT INTO audit (actor, via, action, job, reason) VALUES ('ana', 'cli', 'pause', 'a', 'why not'), ('bo', 'page', 'resume', 'b', '')`)
	return db
}

// P10: history is listed with when it was true.
func TestRunsAreListed(t *testing.T) {
	t.Parallel()
	h := serve(someRuns(t))
	type list struct {
		AsOf  time.Time `json:"as_of"`
		Stale *bool     `json:"stale"`
		Next  *int64    `json:"next_before"`
		Runs  []struct {
			ID        int64
			Ticks     int64
			FirstTick *time.Time `json:"first_tick"`
			Outcome   *string
			Error     string
		}
	}
	for address, want := range map[string][]int64{
		"":                        {4, 3, 2, 1},
		"?limit=2":                {4, 3},
		"?limit=2&before=3":       {2, 1},
		"?job=a":                  {2, 1},
		"?job=a&outcome=failed":   {1},
		"?outcome=running":        {4},
		"?job=nobody":             {},
		"?outcome=missed&limit=1": {3},
	} {
		var got list
		w := get(t, h, "/api/v1/runs"+address)
		decode(t, w.Body.Bytes(), &got)
		found := []int64{}
		for _, r := range got.Runs {
			found = append(found, r.ID)
		}
		if !slices.Equal(found, want) || got.AsOf.IsZero() || got.Stale == nil || w.Header().Get("Rota-As-Of") == "" {
			t.Errorf("%s: runs %v, want %v; %s", address, found, want, w.Body)
		}
		if more := address == "?limit=2"; (got.Next != nil) != more {
			t.Errorf("%s: next %v", address, got.Next)
		}
		if address == "?outcome=missed&limit=1" && (got.Runs[0].Ticks != 60 || got.Runs[0].FirstTick == nil || got.Runs[0].Error != "nobody led") {
			t.Errorf("a row for several ticks: %s", w.Body)
		}
		if address == "?outcome=running" && got.Runs[0].Outcome != nil {
			t.Errorf("it runs, and has an outcome: %s", w.Body)
		}
	}
	for _, address := range []string{"?outcome=great", "?limit=0", "?limit=1001", "?limit=x", "?before=-1", "?before=99999999999999999999"} {
		if w := ask(h, "GET", "/api/v1/runs"+address); w.Code != http.StatusBadRequest || w.Header().Get("Content-Type") != "application/problem+json" {
			t.Errorf("%s: %d %s", address, w.Code, w.Body)
		}
	}
}

func TestARunIsShownWithItsLogAndItsAttempts(t *testing.T) {
	t.Parallel()
	h := serve(someRuns(t))
	var got struct {
		AsOf     time.Time `json:"as_of"`
		Run      struct{ ID int64 }
		Log      string
		Attempts []struct{ ID int64 }
		Request  *struct{}
	}
	w := get(t, h, "/api/v1/runs/1")
	decode(t, w.Body.Bytes(), &got)
	if got.Run.ID != 1 || got.Log != "a <b>line</b>" || len(got.Attempts) != 2 || got.Request != nil || got.AsOf.IsZero() {
		t.Errorf("%s", w.Body)
	}
	for _, id := range []string{"5", "0", "-1", "x", "99999999999999999999"} {
		if w := ask(h, "GET", "/api/v1/runs/"+id); w.Code != http.StatusNotFound {
			t.Errorf("run %s: %d %s", id, w.Code, w.Body)
		}
	}
}

func TestTheAuditIsListed(t *testing.T) {
	t.Parallel()
	h := serve(someRuns(t))
	var got struct {
		AsOf  time.Time `json:"as_of"`
		Audit []struct{ Actor, Via, Action, Job, Reason string }
		Next  *int64 `json:"next_before"`
	}
	w := get(t, h, "/api/v1/audit?limit=1")
	decode(t, w.Body.Bytes(), &got)
	if len(got.Audit) != 1 || got.Audit[0].Actor != "bo" || got.Next == nil || got.AsOf.IsZero() {
		t.Errorf("%s", w.Body)
	}
	w = get(t, h, "/api/v1/audit?job=a")
	decode(t, w.Body.Bytes(), &got)
	if len(got.Audit) != 1 || got.Audit[0].Actor != "ana" || got.Audit[0].Reason != "why not" {
		t.Errorf("%s", w.Body)
	}
	if w := ask(h, "GET", "/api/v1/audit?before=x"); w.Code != http.StatusBadRequest {
		t.Errorf("%d %s", w.Code, w.Body)
	}
}

// P10: history is not kept in memory; without a database that is what is said.
func TestWithoutADatabaseHistoryIsSaidToBeUnread(t *testing.T) {
	t.Parallel()
	h := serve(shut(t, pgtest.New(t)))
	for _, address := range []string{"/api/v1/runs", "/api/v1/runs/1", "/api/v1/audit"} {
		if w := ask(h, "GET", address); w.Code != http.StatusServiceUnavailable || w.Header().Get("Retry-After") == "" {
			t.Errorf("%s: %d %s", address, w.Code, w.Body)
		}
	}
}
