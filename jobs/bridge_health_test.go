package jobs

import (
	"context"
	"errors"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"rota/internal/fence"
	"rota/internal/jobtest"
	"rota/internal/pgtest"
	"rota/internal/registry"
)

func TestBridgeThatAnswersBadlyOrNotAtAllIsDownWithTheReason(t *testing.T) {
	t.Parallel()
	web := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		switch r.URL.Path {
		case "/hangs":
			<-r.Context().Done()
		case "/moved":
			http.Redirect(w, r, "/up", http.StatusFound)
		case "/sick":
			w.WriteHeader(http.StatusServiceUnavailable)
		}
	}))
	t.Cleanup(web.Close)
	tcp, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = tcp.Close() })
	closed, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	_ = closed.Close()
	short := 100

	for _, c := range []struct {
		bridge         bridge
		health, reason string
		latency        bool
	}{
		{bridge{ID: "web", Kind: "http", Address: web.URL + "/up"}, "UP", "", true},
		{bridge{ID: "tcp", Kind: "tcp", Address: tcp.Addr().String()}, "UP", "", true},
		{bridge{ID: "sick", Kind: "http", Address: web.URL + "/sick"}, "DOWN", "answered 503 Service Unavailable", true},
		{bridge{ID: "moved", Kind: "http", Address: web.URL + "/moved"}, "DOWN", "answered 302 Found", true},
		{bridge{ID: "hangs", Kind: "http", Address: web.URL + "/hangs", TimeoutMS: &short}, "DOWN", "no answer within 100ms", false},
		{bridge{ID: "gone", Kind: "tcp", Address: closed.Addr().String()}, "DOWN", "connection refused", false},
		{bridge{ID: "typo", Kind: "http", Address: "http://bridge\x00"}, "DOWN", "invalid control character", false},
	} {
		got := pingBridges(t.Context(), []bridge{c.bridge}, bridgeHealthArgs{Timeout: time.Minute})[0]
		if got.BridgeID != c.bridge.ID || got.Health != c.health || (got.LatencyMS != nil) != c.latency ||
			(c.reason == "") != (got.Reason == "") || !strings.Contains(got.Reason, c.reason) {
			t.Errorf("%s is %s because %q (latency %v), want %s because %q",
				c.bridge.ID, got.Health, got.Reason, got.LatencyMS, c.health, c.reason)
		}
	}
}

func TestBridgesArePingedSeveralAtATimeButNoMoreThanAllowed(t *testing.T) {
	t.Parallel()
	var now, most atomic.Int64
	bothAsked := make(chan struct{})
	web := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {
		n := now.Add(1)
		defer now.Add(-1)
		if n > most.Load() {
			most.Store(n)
		}
		if n == 2 {
			select {
			case <-bothAsked:
			default:
				close(bothAsked)
			}
		}
		<-bothAsked // which never comes if they are asked one by one
	}))
	t.Cleanup(web.Close)
	bridges := make([]bridge, 20)
	for i := range bridges {
		bridges[i] = bridge{Kind: "http", Address: web.URL}
	}
	for _, got := range pingBridges(t.Context(), bridges, bridgeHealthArgs{Timeout: time.Minute, Parallel: 2}) {
		if got.Health != "UP" {
			t.Fatalf("a bridge is %s: %s", got.Health, got.Reason)
		}
	}
	if most.Load() != 2 {
		t.Errorf("%d bridges were asked at a time, want 2", most.Load())
	}
}

// P5: when a term ends under a run, its failed pings are not written down as dead bridges.
func TestRunCutShortWritesNoBridgeDown(t *testing.T) {
	t.Parallel()
	asked := make(chan struct{})
	web := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		close(asked)
		<-r.Context().Done()
	}))
	t.Cleanup(web.Close)
	db := pgtest.New(t)
	if _, err := db.Exec(t.Context(), `INSERT INTO bridges VALUES ('LP-3', 'http', $1)`, web.URL); err != nil {
		t.Fatal(err)
	}
	ctx, end := context.WithCancelCause(t.Context())
	cause := errors.New("the term is over")
	go func() {
		<-asked
		end(cause)
	}()
	// It has no fence to write through: trying to would be a panic.
	err := bridgeHealth(ctx, &registry.Run{
		DB: db, Log: slog.New(slog.DiscardHandler),
		Args: bridgeHealthArgs{Timeout: time.Minute, Parallel: 1},
	})
	if !errors.Is(err, cause) {
		t.Errorf("the run returned %v, want its context's cause", err)
	}
}

// P3, P4: the article's own case, a former leader that finds a healthy bridge dead.
func TestSupersededLeaderMarksNoBridgeDown(t *testing.T) {
	t.Parallel()
	var sick atomic.Bool
	web := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if sick.Load() {
			w.WriteHeader(http.StatusServiceUnavailable)
		}
	}))
	t.Cleanup(web.Close)
	db := pgtest.New(t)
	mustExec(t, db, `INSERT INTO bridges VALUES ('LP-3', 'http', $1)`, web.URL)
	leader := jobtest.Lead(t, db, "bridge_health")
	if err := leader.Do(); err != nil {
		t.Fatal(err)
	}
	const healthSQL = `SELECT concat_ws(' ', bridge_id, health, reason, 'epoch', epoch) FROM bridge_status ORDER BY 1`
	if got := lines(t, db, healthSQL); got != "LP-3 UP  epoch 1" {
		t.Fatalf("status is %q", got)
	}

	successor := leader.Successor()
	sick.Store(true)
	mustExec(t, db, `INSERT INTO bridges VALUES ('LP-4', 'http', $1)`, web.URL) // would be a new row
	before := lines(t, db, `SELECT s::text FROM bridge_status s`)
	if err := leader.Do(); !errors.Is(err, fence.ErrFenced) {
		t.Errorf("the superseded leader returned %v, want ErrFenced", err)
	}
	if after := lines(t, db, `SELECT s::text FROM bridge_status s`); after != before {
		t.Errorf("it changed the status from %q to %q", before, after)
	}
	if err := successor.Do(); err != nil {
		t.Fatal(err)
	}
	want := "LP-3 DOWN answered 503 Service Unavailable epoch 2\nLP-4 DOWN answered 503 Service Unavailable epoch 2"
	if got := lines(t, db, healthSQL); got != want {
		t.Errorf("status is %q, want %q", got, want)
	}
}
