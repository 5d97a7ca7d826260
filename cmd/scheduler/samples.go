package main

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"net/http"
	"sync"
	"sync/atomic"
	"time"
)

// samples is the world outside, as dev plays it on the loopback interface: bridges, a broker's
// statements, venues' symbol lists and a quote feed.
type samples struct {
	base string // of every HTTP address
	tcp  string // the address of the bridge that speaks plain TCP
	day  time.Time

	stop    context.CancelFunc
	server  *http.Server
	bridge  net.Listener
	serving sync.WaitGroup

	started time.Time
	flaky   atomic.Int64 // how often the flaky bridge was asked

	mu    sync.Mutex
	holds map[string]hold
}

// A hold keeps the next answer of one bridge back.
type hold struct {
	arrived  chan struct{} // closed when it has been asked
	released chan struct{} // closed when it may answer
}

// startSamples serves until ctx ends or Close is called.
func startSamples(ctx context.Context) (*samples, error) {
	web, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return nil, fmt.Errorf("serve samples: %w", err)
	}
	bridge, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		_ = web.Close()
		return nil, fmt.Errorf("serve samples: %w", err)
	}
	ctx, stop := context.WithCancel(ctx)
	now := time.Now().UTC()
	s := &samples{
		base: "http://" + web.Addr().String(), tcp: bridge.Addr().String(),
		day: now.Truncate(24 * time.Hour), started: now,
		stop: stop, bridge: bridge, holds: map[string]hold{},
	}
	s.server = &http.Server{
		Handler:           s.routes(),
		ReadHeaderTimeout: 5 * time.Second,
		// Ends the streams and the answers held back, which nothing else would.
		BaseContext: func(net.Listener) context.Context { return ctx },
	}
	s.serving.Go(func() { _ = s.server.Serve(web) })
	s.serving.Go(s.acceptTCP)
	s.serving.Go(func() {
		<-ctx.Done()
		_ = s.bridge.Close()
		_ = s.server.Close()
	})
	return s, nil
}

// Close ends every answer under way and returns once nothing is served any more.
func (s *samples) Close() {
	s.stop()
	s.serving.Wait()
}

// Hold keeps the next answer of the bridge back. arrived is closed when it has been asked, and it
// answers once release is called. Whoever asks after that is answered at once.
func (s *samples) Hold(id string) (arrived <-chan struct{}, release func()) {
	h := hold{arrived: make(chan struct{}), released: make(chan struct{})}
	s.mu.Lock()
	s.holds[id] = h
	s.mu.Unlock()
	return h.arrived, sync.OnceFunc(func() {
		s.mu.Lock()
		if s.holds[id] == h {
			delete(s.holds, id)
		}
		s.mu.Unlock()
		close(h.released)
	})
}

// held takes the hold on the bridge, if there is one, and waits for its release.
func (s *samples) held(ctx context.Context, id string) {
	s.mu.Lock()
	h, ok := s.holds[id]
	delete(s.holds, id)
	s.mu.Unlock()
	if !ok {
		return
	}
	close(h.arrived)
	select {
	case <-h.released:
	case <-ctx.Done():
	}
}

func (s *samples) routes() http.Handler {
	mux := http.NewServeMux()
	mux.HandleFunc("GET /bridges/{id}", s.serveBridge)
	mux.HandleFunc("GET /statement.csv", s.serveStatement)
	mux.HandleFunc("GET /symbols/{venue}", s.serveSymbols)
	mux.HandleFunc("GET /quotes", s.serveQuotes)
	return mux
}

func (s *samples) serveBridge(w http.ResponseWriter, r *http.Request) {
	id := r.PathValue("id")
	s.held(r.Context(), id)
	switch id {
	case slowBridge:
		select {
		case <-time.After(300 * time.Millisecond):
		case <-r.Context().Done():
		}
	case flakyBridge:
		// Two of every six answers, so that anybody who looks for half a minute sees both.
		if s.flaky.Add(1)%6 >= 4 {
			http.Error(w, "session lost", http.StatusServiceUnavailable)
			return
		}
	}
	fmt.Fprintln(w, "ok")
}

// acceptTCP is a bridge that takes connections and says nothing.
func (s *samples) acceptTCP() {
	for {
		conn, err := s.bridge.Accept()
		if errors.Is(err, net.ErrClosed) {
			return
		}
		if err == nil {
			_ = conn.Close()
		}
	}
}

func (s *samples) serveStatement(w http.ResponseWriter, r *http.Request) {
	w.Header().Set("Content-Type", "text/csv; charset=utf-8")
	_, _ = w.Write(sampleStatement(r.FormValue("account"), s.day))
}

// serveSymbols answers 304 to whoever has the list already; a list stays the same for a while.
func (s *samples) serveSymbols(w http.ResponseWriter, r *http.Request) {
	symbols, ok := sampleSymbols(r.PathValue("venue"), int(time.Since(s.started)/(3*time.Minute)))
	if !ok {
		http.NotFound(w, r)
		return
	}
	body, err := json.Marshal(map[string]any{"venue": r.PathValue("venue"), "symbols": symbols})
	if err != nil {
		http.Error(w, err.Error(), http.StatusInternalServerError)
		return
	}
	w.Header().Set("Content-Type", "application/json")
	w.Header().Set("ETag", fmt.Sprintf(`"%.8x"`, sha256.Sum256(body)))
	http.ServeContent(w, r, "", time.Time{}, bytes.NewReader(body))
}

// serveQuotes streams a quote as a JSON line twice a second.
func (s *samples) serveQuotes(w http.ResponseWriter, r *http.Request) {
	w.Header().Set("Content-Type", "application/x-ndjson")
	pace := time.NewTicker(500 * time.Millisecond)
	defer pace.Stop()
	for n := 0; ; n++ {
		cents := 1950 + n%40
		fmt.Fprintf(w, "{\"symbol\":\"SAP\",\"bid\":\"%d.%02d\",\"ask\":\"%d.%02d\"}\n",
			cents/10, cents%10*10, (cents+1)/10, (cents+1)%10*10)
		if http.NewResponseController(w).Flush() != nil {
			return
		}
		select {
		case <-pace.C:
		case <-r.Context().Done():
			return
		}
	}
}
