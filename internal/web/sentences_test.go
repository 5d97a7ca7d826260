package web

import (
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"rota/internal/pgtest"
	"rota/internal/registry"
	"rota/internal/status"
)

// P10: what a form says will come of an order is what comes of it, for this job as it is.
func TestEachFormSaysWhatIsTrueForThisJob(t *testing.T) {
	t.Parallel()
	db := pgtest.New(t)
	run(t, db, `INSERT INTO leadership (job_name, owner, expires_at, epoch)
		SELECT unnest(ARRAY['stream', 'still', 'busy', 'idle', 'kept']), $1, clock_timestamp() + interval '1 hour', 1`, leader)
	run(t, db, `INSERT INTO runs (lease, job, tick, epoch, owner) SELECT j, j, clock_timestamp(), 1, $1 FROM unnest(ARRAY['stream', 'busy']) j`, leader)
	run(t, db, `INSERT INTO runs (lease, job, tick, epoch, owner, started_at, ended_at, outcome) VALUES ('idle', 'idle', clock_timestamp(), 1, $1, clock_timestamp(), clock_timestamp(), 'success')`, leader)
	run(t, db, `INSERT INTO pauses (job, reason, paused_by) VALUES ('kept', 'why', 'ana')`)
	run(t, db, `INSERT INTO requests (kind, job, lease, epoch, asked_by, done_at, result) VALUES ('run', 'idle', 'idle', NULL, 'ana', clock_timestamp(), 'run 3'), ('step_down', 'idle', 'idle', 1, 'ana', NULL, NULL), ('run', 'busy', 'busy', NULL, 'ana', NULL, NULL)`)
	h := serve(db, registry.Job{Name: "stream", Schedule: registry.Continuous}, registry.Job{Name: "still", Schedule: registry.Continuous},
		registry.Job{Name: "busy", Schedule: registry.Every(time.Minute)}, registry.Job{Name: "idle", Schedule: registry.Every(time.Minute)},
		registry.Job{Name: "kept", Schedule: registry.Every(time.Minute)})
	for address, c := range map[string]struct{ has, not string }{
		"/jobs/stream/pause":   {"the run under way is cancelled, and one begins when it is resumed", "goes on"},
		"/jobs/still/pause":    {"no run begins until it is resumed", "cancelled"},
		"/jobs/busy/pause":     {"The run under way goes on", "cancelled,"},
		"/jobs/idle/pause":     {"skipped and not caught up", "under way"},
		"/jobs/kept/pause":     {"This replaces that pause", "under way"},
		"/jobs/stream/run":     {"not on request", "starts the run at once"},
		"/jobs/idle/run":       {"starts the run at once", "not on request"},
		"/jobs/idle/resume":    {"nothing to resume", "takes its next tick"},
		"/jobs/kept/resume":    {"takes its next tick again", "nothing to resume"},
		"/resume":              {"nothing to resume here", "stay so"},
		"/runs/2/cancel":       {"Cancel run 2 of busy", "nothing to cancel"},
		"/runs/3/cancel":       {"nothing to cancel: the run has ended, success", "ends the run"},
		"/requests/1/withdraw": {"nothing to withdraw: the request is settled, run 3", "asked for a run"},
		"/requests/2/withdraw": {"this is one to step down", "asked for a run"},
		"/requests/3/withdraw": {"ana asked for a run of busy", "nothing to withdraw"},
		"/jobs/stream?x=":      {"no such parameter", "<table"},
		"/leases/idle/revoke":  {"The term under epoch 1 ends now", "is alive"},
		"/jobs/idle/runs/3":    {"success", "Cancel this run"},
		"/?show=refused":       {"None of the 5 jobs", "<table"},
		"/jobs/busy?outcome=":  {"busy", "no such"},
		"/?q=nothing+there":    {"none has", "<table"},
	} {
		page := until(t, h, address, func(w *httptest.ResponseRecorder) bool { return w.Code < 500 && w.Header().Get("Rota-Stale") == "" }).Body.String()
		_, page, _ = strings.Cut(page, "<main")
		if !strings.Contains(page, c.has) || strings.Contains(page, c.not) {
			t.Errorf("%s must say %q and not %q:\n%s", address, c.has, c.not, page)
		}
	}
}

// Who gives a term up is told before it whether anybody is there to take it.
func TestAFormSaysWhetherAnybodyTakesOver(t *testing.T) {
	t.Parallel()
	db := pgtest.New(t)
	h := serve(db, told(t, db))
	says := func(words map[string]string) {
		t.Helper()
		for address, want := range words {
			until(t, h, address, func(w *httptest.ResponseRecorder) bool { return strings.Contains(w.Body.String(), want) })
		}
	}
	says(map[string]string{
		"/replicas/" + leader + "/drain":  "No other replica is there to take over",
		"/leases/bridge_health/step-down": "so it may take it again",
		"/leases/bridge_health/revoke":    "so it may take it again",
	})
	run(t, db, `INSERT INTO replicas (id, host, pid, version, started_at, seen_at, expires_at)
		VALUES ('pod-2/1', 'pod-2', 1, 'v9', clock_timestamp(), clock_timestamp(), clock_timestamp() + interval '1 hour')`)
	says(map[string]string{
		"/replicas/" + leader + "/drain":  "No other replica that is there can lead bridge_health",
		"/leases/bridge_health/step-down": "no other replica that is there can lead it, so it may take it again",
		"/leases/bridge_health/revoke":    "no other replica that is there can lead it",
	})
	run(t, db, `INSERT INTO abilities VALUES ('x', '{bridge_health}')`)
	run(t, db, `UPDATE replicas SET ability = 'x'`)
	says(map[string]string{
		"/replicas/" + leader + "/drain":  "These move: bridge_health.",
		"/leases/bridge_health/step-down": "another replica takes over.",
		"/leases/bridge_health/revoke":    "another replica takes over, under a higher epoch",
	})
}

// A replica that has given all up is drained, and one that is at it is draining, wherever it is shown.
func TestADrainedReplicaIsCalledSo(t *testing.T) {
	t.Parallel()
	db := pgtest.New(t)
	told(t, db)
	bill := newPlaybill()
	bill.scene.Players = []Player{{Name: "replica-1", Owner: leader, State: "running", Well: true, Acts: []Act{{"freeze", "Freeze", "freeze"}}}}
	s := staged(t, db, onStage, bill)
	says := func(word string) {
		t.Helper()
		until(t, viaCaller{s.router, here}, "/replicas", func(w *httptest.ResponseRecorder) bool {
			return w.Code == http.StatusOK && strings.Count(w.Body.String(), "<bdi>"+word+"</bdi></span>") == 2
		})
	}
	run(t, db, `UPDATE replicas SET draining = true`)
	says("draining")
	run(t, db, `UPDATE leadership SET expires_at = clock_timestamp() - interval '1 second'`)
	says("drained")
	w := here.ask(s.router, http.MethodPost, "/dev/replica-1/reconnect", "")
	if !strings.Contains(w.Body.String(), "replica-1 is running: ") {
		t.Errorf("%d %s", w.Code, w.Body)
	}
}

// What a revoke leaves behind has the form of a term, and is none: nobody leads as it.
func TestARevokeIsToldOfTheTermThatItEnded(t *testing.T) {
	t.Parallel()
	db := pgtest.New(t)
	job := told(t, db)
	h := serve(db, job)
	get(t, h, "/")
	if w := giveOrder(h, "/leases/bridge_health/revoke", "application/x-www-form-urlencoded", "reason=hangs&typed=bridge_health"); w.Code != http.StatusSeeOther {
		t.Fatalf("%d %s", w.Code, w.Body)
	}
	free := func(w *httptest.ResponseRecorder) bool {
		return strings.Contains(w.Body.String(), "<bdi>free</bdi>") || strings.Contains(w.Body.String(), "hangs")
	}
	for _, address := range []string{"/", "/jobs/bridge_health", "/events", "/replicas"} {
		page := until(t, h, address, func(w *httptest.ResponseRecorder) bool {
			return w.Code == http.StatusOK && (free(w) || address == "/replicas")
		}).Body.String()
		if strings.Contains(page, "revoked by") {
			t.Errorf("%s shows the revoke as an owner:\n%s", address, page)
		}
	}
	page := get(t, h, "/").Body.String()
	if !strings.Contains(page, "before: <bdi>revoked</bdi>") || !strings.Contains(page, "epoch 42, led by "+leader) {
		t.Errorf("the jobs do not tell whose term was ended:\n%s", page)
	}
}

// The next tick of a job that is paused until after it is not done, and the page says so.
func TestATickThatAPauseWillSkipIsToldAsSuch(t *testing.T) {
	t.Parallel()
	asOf := time.Date(2026, 1, 1, 12, 0, 0, 0, time.UTC)
	for name, tt := range map[string]struct {
		paused *status.Pause
		skips  bool
	}{
		"not paused":          {nil, false},
		"paused until it is":  {&status.Pause{}, true},
		"paused beyond it":    {&status.Pause{Until: asOf.Add(time.Hour)}, true},
		"paused until before": {&status.Pause{Until: asOf.Add(time.Second)}, false},
	} {
		if r := row(&status.Lease{NextTick: asOf.Add(time.Minute), Paused: tt.paused}, asOf); r.Skips != tt.skips {
			t.Errorf("%s: it is skipped: %t", name, r.Skips)
		}
	}
}

func TestWhatAnEventSaysBesidesIsToldInWords(t *testing.T) {
	t.Parallel()
	for detail, want := range map[string]string{
		``: "", `null`: "", `{}`: "", `{"new_epoch": 43, "epoch": 42}`: "epoch 42; new epoch 43", `{"until": "2026-03-01T08:00:00Z"}`: "until 2026-03-01T08:00:00Z",
		`{"args": {"Limit": 3}}`: `args {"Limit": 3}`, `[1]`: "[1]",
	} {
		if got := detailWords([]byte(detail)); got != want {
			t.Errorf("%s: %q, want %q", detail, got, want)
		}
	}
}
