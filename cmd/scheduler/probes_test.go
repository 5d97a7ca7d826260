package main

import (
	"net/http"
	"net/http/httptest"
	"testing"
	"time"

	"rota/internal/pgtest"
)

func ask(h http.HandlerFunc) (int, string) {
	w := httptest.NewRecorder()
	h(w, httptest.NewRequest(http.MethodGet, "/", nil))
	return w.Code, w.Body.String()
}

func TestReplicaLivesWhileItsLeaseLoopTurns(t *testing.T) {
	t.Parallel()
	beat := time.Time{}
	p := newProbes(func() time.Time { return beat }, 15*time.Second, nil) // no database: it must not be asked
	if code, body := ask(p.live); code != http.StatusOK {
		t.Errorf("before the first turn: %d %s", code, body)
	}
	p.started = time.Now().Add(-time.Minute)
	if code, _ := ask(p.live); code != http.StatusServiceUnavailable {
		t.Errorf("a loop that never began: %d", code)
	}
	beat = time.Now()
	if code, body := ask(p.live); code != http.StatusOK {
		t.Errorf("while it turns: %d %s", code, body)
	}
	beat = time.Now().Add(-16 * time.Second)
	if code, _ := ask(p.live); code != http.StatusServiceUnavailable {
		t.Errorf("a loop that stands still: %d", code)
	}
}

func TestReplicaIsReadyWithADatabaseOfItsSchemaUntilItDrains(t *testing.T) {
	t.Parallel()
	db := pgtest.New(t)
	p := newProbes(time.Now, time.Minute, db)
	if code, body := ask(p.ready); code != http.StatusOK {
		t.Errorf("%d %s", code, body)
	}
	for _, tt := range []struct {
		sql  string
		want int
	}{
		{`INSERT INTO rota_schema (version_id, is_applied) VALUES (9999, true)`, http.StatusOK}, // the next release's
		{`DELETE FROM rota_schema WHERE version_id > 1`, http.StatusServiceUnavailable},
	} {
		if _, err := db.Exec(t.Context(), tt.sql); err != nil {
			t.Fatal(err)
		}
		if code, body := ask(p.ready); code != tt.want {
			t.Errorf("after %s: %d %s", tt.sql, code, body)
		}
	}
	p.drain()
	if code, body := ask(p.ready); code != http.StatusServiceUnavailable || body != "draining\n" {
		t.Errorf("while it drains: %d %s", code, body)
	}
}
