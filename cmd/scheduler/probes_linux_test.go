package main

import (
	"net/http"
	"testing"
	"time"

	"rota/internal/pgtest"
)

// A Postgres that hangs does not hang a prober, which as a rule waits for a second.
func TestReadinessIsDeniedInTimeWhilePostgresHangs(t *testing.T) {
	t.Parallel()
	cluster, db := pgtest.MigratedCluster(t)
	p := newProbes(time.Now, time.Minute, db)
	if code, body := ask(p.ready); code != http.StatusOK {
		t.Fatalf("%d %s", code, body)
	}
	pgtest.Freeze(t, cluster)
	for range 3 {
		began := time.Now()
		code, body := ask(p.ready)
		took := time.Since(began)
		t.Logf("%d after %v", code, took)
		if code != http.StatusServiceUnavailable || took > 5*time.Second {
			t.Errorf("%d %s after %v", code, body, took)
		}
	}
}
