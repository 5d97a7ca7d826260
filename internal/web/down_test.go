package web

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"net/url"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"

	"rota/internal/pgtest"
)

// ordersWhileDown are an order at every path of every action, all of them good if the database answered.
var ordersWhileDown = map[string]string{
	"/jobs/{job}/run":               "/jobs/bridge_health/run",
	"/jobs/{job}/pause":             "/jobs/bridge_health/pause",
	"/jobs/{job}/resume":            "/jobs/bridge_health/resume",
	"/pause":                        "/pause",
	"/resume":                       "/resume",
	"/runs/{run}/cancel":            "/runs/3/cancel",
	"/requests/{request}/withdraw":  "/requests/2/withdraw",
	"/leases/{lease}/step-down":     "/leases/bridge_health/step-down",
	"/leases/{lease}/revoke":        "/leases/bridge_health/revoke",
	"/replicas/{id}/drain":          "/replicas/" + url.PathEscape(leader) + "/drain",
	"/replicas/{name}/{rest}/drain": "/replicas/" + leader + "/drain",
}

// waitsAtMost is a second, with room for a busy machine.
const waitsAtMost = 5 * time.Second

// P10: with Postgres down pages answer from memory within a second, marked as stale, and every order is
// refused with a message, nothing of it done, by the page and by the API. Once it is up, all goes on.
func TestWithPostgresDownPagesAnswerAndOrdersAreRefusedWhole(t *testing.T) {
	t.Parallel()
	cluster, db := pgtest.MigratedCluster(t)
	h := serve(db, told(t, db))
	pages := []string{"/", "/jobs/bridge_health", "/jobs/bridge_health/runs/1", "/replicas", "/events", "/about", "/api/v1/jobs", "/api/v1/leases", "/api/v1/replicas"}
	for _, address := range pages {
		get(t, h, address)
	}
	before := stored(t, db)
	if err := cluster.Halt(); err != nil {
		t.Fatal(err)
	}

	until(t, h, "/", func(w *httptest.ResponseRecorder) bool { return w.Header().Get("Rota-Stale") == "true" })
	for _, address := range pages {
		began := time.Now()
		w := ask(h, http.MethodGet, address)
		if d := time.Since(began); d > waitsAtMost {
			t.Errorf("%s took %v", address, d)
		}
		if w.Code != http.StatusOK || w.Header().Get("Rota-Stale") != "true" {
			t.Errorf("%s: %d, stale %q", address, w.Code, w.Header().Get("Rota-Stale"))
		}
	}
	for _, a := range actions {
		for _, path := range a.paths {
			address := ordersWhileDown[path]
			if address == "" {
				t.Errorf("no order at %s", path)
				continue
			}
			if w := ask(h, http.MethodGet, address); w.Code != http.StatusOK {
				t.Errorf("the form of %s: %d", path, w.Code)
			}
			refusedWhole(t, h, a, address)
		}
	}

	if err := cluster.Resume(t.Context()); err != nil {
		t.Fatal(err)
	}
	if after := stored(t, db); after != before {
		t.Errorf("of orders that were refused something was done:\n%s\nbefore:\n%s", after, before)
	}
	get(t, h, "/")
	if w := giveOrder(h, "/jobs/bridge_health/resume", "application/x-www-form-urlencoded", "reason=again"); w.Code != http.StatusSeeOther {
		t.Errorf("an order once the database is up: %d %s", w.Code, w.Body)
	}
}

// refusedWhole gives an order by both ways.
func refusedWhole(t *testing.T, h http.Handler, a action, address string) {
	t.Helper()
	typedForm, typedBody := "", ""
	if slices.Contains(a.takes, "typed") {
		typed := typedAll
		if a.name == "revoke" {
			typed = "bridge_health"
		}
		typedForm, typedBody = "&typed="+typed, fmt.Sprintf(`, "typed": %q`, typed)
	}
	for _, way := range []struct{ address, kind, body string }{
		{address, "application/x-www-form-urlencoded", "reason=in+the+night" + typedForm},
		{apiPath + address, kindJSON, `{"reason": "in the night"` + typedBody + `}`},
	} {
		began := time.Now()
		w := giveOrder(h, way.address, way.kind, way.body)
		if d := time.Since(began); d > waitsAtMost {
			t.Errorf("%s took %v", way.address, d)
		}
		next := "Nothing was done"
		if a.name == "revoke" {
			next = "look at the lease, and revoke it again"
		}
		if w.Code != http.StatusServiceUnavailable || !strings.Contains(w.Body.String(), "The database did not carry this out.") || !strings.Contains(w.Body.String(), next) {
			t.Errorf("%s: %d\n%s", way.address, w.Code, w.Body)
		}
		if way.kind != kindJSON && !strings.Contains(w.Body.String(), `value="in the night"`) {
			t.Errorf("%s: what was filled in is lost\n%s", way.address, w.Body)
		}
	}
}

func giveOrder(h http.Handler, address, kind, body string) *httptest.ResponseRecorder {
	r := httptest.NewRequest(http.MethodPost, address, strings.NewReader(body))
	r.RemoteAddr = "127.0.0.1:4711"
	r.Header.Set("Content-Type", kind)
	w := httptest.NewRecorder()
	h.ServeHTTP(w, r)
	return w
}

// stored is all that orders change, but for the lines of attempts that were refused.
func stored(t *testing.T, db *pgxpool.Pool) string {
	t.Helper()
	var all strings.Builder
	for _, table := range []string{"leadership", "requests", "pauses", "runs", "audit WHERE coalesce(detail->>'outcome', '') <> 'refused'"} {
		var rows string
		sql := `SELECT coalesce(string_agg(r::text, E'\n' ORDER BY r::text), '') FROM (SELECT * FROM ` + table + `) r`
		for deadline := time.Now().Add(waitsAtMost); ; time.Sleep(20 * time.Millisecond) { // connections of before are broken
			err := db.QueryRow(t.Context(), sql).Scan(&rows)
			if err == nil {
				break
			}
			if time.Now().After(deadline) {
				t.Fatal(err)
			}
		}
		fmt.Fprintf(&all, "%s:\n%s\n", table, rows)
	}
	return all.String()
}
