package web

import (
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"time"

	"rota/internal/pgtest"
)

// P10: a Postgres that hangs makes nobody wait. Within some two seconds every order is answered by what
// is known of it, and none of those is carried out when the server goes on.
func TestWithPostgresFrozenEveryOrderIsAnsweredAndNoneIsDone(t *testing.T) {
	t.Parallel()
	cluster, db := pgtest.MigratedCluster(t)
	h := serve(db, told(t, db))
	get(t, h, "/")
	before := stored(t, db)
	thaw := pgtest.Freeze(t, cluster)
	var orders sync.WaitGroup
	var mu sync.Mutex
	slowest := time.Duration(0)
	for _, a := range actions {
		for _, path := range a.paths {
			for _, address := range []string{ordersWhileDown[path], apiPath + ordersWhileDown[path]} {
				orders.Go(func() {
					began := time.Now()
					w := ordered(h, http.MethodPost, address)
					d := time.Since(began)
					mu.Lock()
					slowest = max(slowest, d)
					mu.Unlock()
					if w.Code != http.StatusServiceUnavailable || !strings.Contains(w.Body.String(), "he database did not answer within 2s, and nothing was done: try again once it answers") {
						t.Errorf("%s: %d\n%s", address, w.Code, w.Body)
					}
				})
			}
		}
	}
	orders.Wait()
	t.Logf("the slowest answer took %v", slowest)
	if slowest > waitsAtMost {
		t.Errorf("an order was answered after %v", slowest)
	}
	thaw()
	until(t, h, "/", func(w *httptest.ResponseRecorder) bool { return w.Header().Get("Rota-Stale") == "" })
	if after := stored(t, db); after != before {
		t.Errorf("of orders that were not carried out something was done:\n%s\nbefore:\n%s", after, before)
	}
}
