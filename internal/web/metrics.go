package web

import (
	"net/http"
	"strconv"
	"time"

	"github.com/go-chi/chi/v5"
	"github.com/go-chi/chi/v5/middleware"
	"github.com/prometheus/client_golang/prometheus"
)

// requests count what is asked for, by the route's pattern: a path would make a series of each name
// that anybody thinks of.
type requests struct {
	counted *prometheus.CounterVec
	took    prometheus.Histogram
	orders  *prometheus.CounterVec
}

// What came of an order, as it is counted.
const (
	orderDone    = "done"
	orderRefused = "refused"
	orderFailing = "failed" // the database did not carry it out, or nobody knows
)

func newRequests(reg prometheus.Registerer) *requests {
	r := &requests{
		counted: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "rota_http_requests_total", Help: "Requests that this replica has answered, by route, method and status code.",
		}, []string{"route", "method", "code"}),
		took: prometheus.NewHistogram(prometheus.HistogramOpts{
			Name: "rota_http_request_seconds", Help: "How long this replica took to answer a request.",
			Buckets: []float64{.001, .005, .01, .025, .05, .1, .25, .5, 1, 2.5, 5, 10},
		}),
	}
	r.orders = prometheus.NewCounterVec(prometheus.CounterOpts{
		Name: "rota_operator_actions_total", Help: "Orders given through this replica's page and API, by what came of them; those of the command line are in the audit alone.",
	}, []string{"action", "outcome"})
	for _, a := range actions {
		for _, outcome := range []string{orderDone, orderRefused, orderFailing} {
			r.orders.WithLabelValues(a.name, outcome)
		}
	}
	if reg != nil {
		reg.MustRegister(r.counted, r.took, r.orders)
	}
	return r
}

func (m *requests) count(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		begun := time.Now()
		answer := middleware.NewWrapResponseWriter(w, r.ProtoMajor)
		defer func() {
			route := chi.RouteContext(r.Context()).RoutePattern()
			if route == "" {
				route = "none"
			}
			code := answer.Status()
			if code == 0 {
				code = http.StatusOK
			}
			m.counted.WithLabelValues(route, method(r.Method), strconv.Itoa(code)).Inc()
			m.took.Observe(time.Since(begun).Seconds())
		}()
		next.ServeHTTP(answer, r)
	})
}

// method is one of few: a client may send any word for it.
func method(m string) string {
	switch m {
	case http.MethodGet, http.MethodHead, http.MethodPost:
		return m
	}
	return "other"
}
