package jobs

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"rota/internal/pgtest"
	"rota/internal/registry"
)

func TestStaleFeedMakesTwoLinesHoweverLongItIsDown(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var lines bytes.Buffer
		heard := make(chan error)
		ctx, stop := context.WithCancel(t.Context())
		go watchQuotes(ctx, heard, 5*time.Second, slog.New(slog.NewTextHandler(&lines, nil)))

		for range 10 { // a quote every 4 s is no silence
			heard <- nil
			time.Sleep(4 * time.Second)
		}
		for range 3600 {
			heard <- errors.New("connection refused")
			time.Sleep(time.Second)
		}
		heard <- nil
		stop()
		synctest.Wait()
		got := lines.String()
		if strings.Count(got, "\n") != 2 || !strings.Contains(got, `"feed is stale" silent=5s error="connection refused"`) ||
			!strings.Contains(got, `"feed is back" silent=1h0m4s`) {
			t.Errorf("lines are\n%s", got)
		}
	})
}

func TestStreamEndsWhereItIsSilentOrBroken(t *testing.T) {
	t.Parallel()
	web := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/sick" {
			w.WriteHeader(http.StatusBadGateway)
			return
		}
		fmt.Fprintln(w, `{"symbol": "SAP", "bid": "195.1"}`)
		if r.URL.Path == "/odd" {
			fmt.Fprintln(w, `<html>`)
		}
		_ = http.NewResponseController(w).Flush()
		if r.URL.Path == "/silent" {
			<-r.Context().Done()
		}
	}))
	t.Cleanup(web.Close)
	for path, want := range map[string]string{
		"/sick": "502", "/odd": "no quote", "/ends": "ended", "/silent": "silent",
	} {
		quotes := 0
		err := streamQuotes(t.Context(), web.URL+path, 500*time.Millisecond, func() { quotes++ })
		if err == nil || !strings.Contains(err.Error(), want) || (quotes == 1) == (path == "/sick") {
			t.Errorf("%s: %d quotes, then %v, want %q", path, quotes, err, want)
		}
	}
}

func TestBrokenStreamIsOpenedAgainUntilTheReplicaDrains(t *testing.T) {
	t.Parallel()
	var opened atomic.Int64
	again := make(chan struct{})
	web := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {
		if opened.Add(1) == 3 {
			close(again)
		}
	}))
	t.Cleanup(web.Close)
	db := pgtest.New(t)
	if _, err := db.Exec(t.Context(), `INSERT INTO feeds VALUES ('top', $1)`, web.URL); err != nil {
		t.Fatal(err)
	}
	draining := make(chan struct{})
	go func() {
		<-again
		close(draining)
	}()
	err := quoteWatch(t.Context(), &registry.Run{
		DB: db, Log: slog.New(slog.DiscardHandler), Draining: draining,
		Args: quoteWatchArgs{Stale: time.Minute, Retry: time.Millisecond, Reload: time.Hour},
	})
	if err != nil {
		t.Errorf("a run that was asked to end returned %v", err)
	}
}
