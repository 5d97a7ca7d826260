// Package web serves the page and the JSON API over what the rows say, and mounts the probes and
// the metrics that it is handed. It changes nothing.
package web

import (
	"log/slog"
	"net/http"
	"sync/atomic"

	"github.com/go-chi/chi/v5"
	"github.com/go-chi/chi/v5/middleware"

	"rota/internal/status"
)

// Config is what the handler serves.
type Config struct {
	Status  *status.Reader
	Metrics http.Handler // at /metrics
	Live    http.Handler // at /livez
	Ready   http.Handler // at /readyz

	Version     string // the program's, in the footer
	Environment string // such as "production", in the header and the title; may be empty
	Log         *slog.Logger
}

type server struct {
	Config
	stale atomic.Bool // whether the last answer was stale: the log gets the change, not each answer
}

// Handler serves every route there is. All of them answer GET and HEAD, and nothing else.
func Handler(cfg Config) http.Handler {
	s := &server{Config: cfg}
	r := chi.NewRouter()
	r.Use(s.contain, secure, middleware.GetHead)
	r.NotFound(s.handle(notFound))
	r.MethodNotAllowed(s.handle(methodNotAllowed))

	s.pageRoutes(r)

	r.Get("/api/v1/leases", s.handle(s.apiLeases))
	r.Get("/api/v1/jobs", s.handle(s.apiJobs))
	r.Get("/api/v1/replicas", s.handle(s.apiReplicas))
	r.Get("/api/v1/runs", s.handle(s.apiRuns))
	r.Get("/api/v1/runs/{id}", s.handle(s.apiRun))
	r.Get("/api/v1/audit", s.handle(s.apiAudit))

	r.Method(http.MethodGet, "/metrics", cfg.Metrics)
	r.Method(http.MethodGet, "/livez", cfg.Live)
	r.Method(http.MethodGet, "/readyz", cfg.Ready)
	return r
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
