// Package web serves the page and the JSON API over what the rows say, takes the orders that are
// given through them, and mounts the probes and the metrics that it is handed.
package web

import (
	"log/slog"
	"net/http"
	"sync/atomic"

	"github.com/go-chi/chi/v5"
	"github.com/go-chi/chi/v5/middleware"
	"github.com/prometheus/client_golang/prometheus"

	"rota/internal/control"
	"rota/internal/registry"
	"rota/internal/status"
)

// Config is what the handler serves.
type Config struct {
	Status  *status.Reader
	Desk    *control.Desk         // where orders are given
	Gate    *Gate                 // who may do what; nil: whoever asks may read, and nobody more
	Metrics http.Handler          // at /metrics
	Counts  prometheus.Registerer // of requests; nil: they are not counted
	Live    http.Handler          // at /livez
	Ready   http.Handler          // at /readyz

	Version     string // the program's, in the footer
	Environment string // such as "production", in the header and the title; may be empty
	Log         *slog.Logger

	EnvironmentColor string         // one of Colors, for the band above the header; empty: none
	Owner            string         // this replica's; empty: it is none
	Jobs             []registry.Job // those compiled in
	Pools            func() []Pool  // this process's connections; nil: nothing is said of them
	Stage            Stage          // what dev plays on; nil: there is none, nor a route to it
}

type server struct {
	Config
	router   chi.Router
	attempts *attempts
	requests *requests
	press    press
	stale    atomic.Bool // whether the last answer was stale: the log gets the change, not each answer
}

// Handler serves every route there is. What changes anything is a POST, and asks for a role.
func Handler(cfg Config) http.Handler { return newServer(cfg).router }

func newServer(cfg Config) *server {
	if cfg.Gate == nil {
		cfg.Gate = closedGate()
	}
	s := &server{Config: cfg, router: chi.NewRouter(), attempts: newAttempts(cfg.Desk, cfg.Log), requests: newRequests(cfg.Counts)}
	r := s.router
	r.Use(s.requests.count, s.contain, s.secure, s.arrive, middleware.GetHead)
	r.NotFound(s.handle(notFound))
	r.MethodNotAllowed(s.handle(s.methodNotAllowed))

	// Open to all: what a prober needs, and what the page that refuses a stranger is made with.
	r.Method(http.MethodGet, "/livez", cfg.Live)
	r.Method(http.MethodGet, "/readyz", cfg.Ready)
	r.Get("/static/{file}", s.handle(static))
	r.Group(func(r chi.Router) {
		if cfg.Gate.Metrics == metricsViewer || cfg.Gate.local {
			r.Use(s.need(cfg.Gate.metricsRole(), nil))
		}
		r.Method(http.MethodGet, "/metrics", cfg.Metrics)
	})
	r.Group(func(r chi.Router) {
		r.Use(s.need(Viewer, nil), s.understand)
		s.pageRoutes(r)
		s.apiRoutes(r)
	})
	s.stageRoutes(r)
	for _, a := range actions {
		for _, path := range a.paths {
			of := r.With(s.need(a.role, &a))
			of.Method(http.MethodPost, path, s.form(a))
			of.Method(http.MethodPost, apiPath+path, s.call(a))
		}
	}
	return s
}

// snapshot is the status as of now, or as of when the database last answered.
func (s *server) snapshot(r *http.Request) (status.Snapshot, error) {
	snap, err := s.Status.Snapshot(r.Context())
	if err != nil {
		return snap, err
	}
	if was := s.stale.Swap(snap.Stale); was != snap.Stale {
		if snap.Stale {
			s.Log.Warn("status is stale", "error", snap.Why)
		} else {
			s.Log.Info("status is current again")
		}
	}
	return snap, nil
}
