package web

import (
	"log/slog"
	"net/http"
	"net/http/httptest"
	"testing"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"

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
