package web

import (
	"log/slog"
	"net/http"
	"net/http/httptest"
	"testing"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"

	"rota/internal/pgtest"
	"rota/internal/status"
)

// However many paths and methods strangers think of, there are few series.
func TestRequestsAreCountedByTheirRoute(t *testing.T) {
	t.Parallel()
	reg := prometheus.NewPedanticRegistry()
	handler := Handler(Config{
		Status: status.New(nil, nil), Metrics: says(""), Live: says("ok"), Ready: says("ok"), Log: slog.New(slog.DiscardHandler), Counts: reg,
	})
	for _, c := range [][2]string{{"GET", "/livez"}, {"GET", "/livez"}, {"HEAD", "/livez"}, {"GET", "/one"}, {"GET", "/two"}, {"BREW", "/livez"}, {"STEEP", "/livez"}} {
		r := httptest.NewRequestWithContext(t.Context(), c[0], c[1], http.NoBody)
		r.Host = "127.0.0.1"
		handler.ServeHTTP(httptest.NewRecorder(), r)
	}
	if n, err := testutil.GatherAndCount(reg, "rota_http_requests_total"); err != nil || n != 4 {
		families, _ := reg.Gather()
		t.Errorf("%d series, %v: %v", n, err, families)
	}
	if problems, err := testutil.GatherAndLint(reg); err != nil || len(problems) > 0 {
		t.Errorf("the linter says %v, %v", problems, err)
	}
}

// Each order counts once, by what came of it: given, refused by the desk, refused at the door, or lost
// with the database.
func TestOrdersAreCountedByWhatCameOfThem(t *testing.T) {
	t.Parallel()
	db := pgtest.New(t)
	run(t, db, `INSERT INTO leadership (job_name, owner, expires_at, epoch) VALUES ('job', $1, clock_timestamp() + interval '1 hour', 1)`, leader)
	s := guarded(t, db, onStage)
	pause := func(c caller, job, body string) { c.ask(s.router, http.MethodPost, "/jobs/"+job+"/pause", body) }
	pause(here, "job", "reason=why")
	pause(here, "job", "reason=")
	pause(here, "nothing", "reason=why")
	pause(caller{from: "203.0.113.7:4711"}, "job", "reason=why")
	db.Close()
	pause(here, "job", "reason=why")
	for outcome, want := range map[string]float64{orderDone: 1, orderRefused: 3, orderFailing: 1} {
		if n := testutil.ToFloat64(s.requests.orders.WithLabelValues("pause", outcome)); n != want {
			t.Errorf("%s: %v, want %v", outcome, n, want)
		}
	}
	if n := testutil.CollectAndCount(s.requests.orders); n != 24 {
		t.Errorf("%d series from the start, want 24", n)
	}
}
