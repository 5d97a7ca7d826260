package web

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"runtime/debug"
	"strings"

	"rota/internal/status"
)

// A refusal is an error that the caller is told of in its own words.
type refusal struct {
	code   int
	reason string
	Next   string // what to do about it
}

func (e refusal) Error() string { return e.reason }

func notFound(http.ResponseWriter, *http.Request) error {
	return refusal{http.StatusNotFound, "There is no page at this address.", "Go back to the jobs."}
}

func (s *server) methodNotAllowed(w http.ResponseWriter, r *http.Request) error {
	methods := s.allowed(r)
	w.Header().Set("Allow", strings.Join(methods, ", "))
	return refusal{http.StatusMethodNotAllowed, "This address only answers " + strings.Join(methods, " and ") + ".", "Nothing was changed."}
}

// handle makes a handler of a function that returns its error, which is told in one place. The
// function writes nothing before it can no longer fail.
func (s *server) handle(f func(http.ResponseWriter, *http.Request) error) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		if err := f(w, r); err != nil {
			s.fail(w, r, err)
		}
	}
}

// fail tells the caller what is wrong, and the log what the caller need not know.
func (s *server) fail(w http.ResponseWriter, r *http.Request, err error) {
	var told refusal
	switch {
	case errors.As(err, &told):
	case r.Context().Err() != nil && errors.Is(err, context.Canceled):
		return // nobody is there to be told
	case errors.Is(err, status.ErrNothingYet):
		told = refusal{
			http.StatusServiceUnavailable,
			"The database has not answered since this replica started, so there is nothing to show yet.",
			"Check that PostgreSQL runs and that this replica can reach it; the replica keeps trying, and its log says why it fails.",
		}
		w.Header().Set("Retry-After", "2")
		if !s.stale.Swap(true) {
			s.Log.Warn("status cannot be read", "error", err)
		}
	case errors.Is(err, status.ErrUnread):
		told = refusal{http.StatusServiceUnavailable, "The database did not answer in time.", "Ask again; this replica's log says why."}
		w.Header().Set("Retry-After", "2")
		s.Log.Warn("history cannot be read", "path", r.URL.Path, "error", err)
	default:
		told = refusal{http.StatusInternalServerError, "Something went wrong in this replica.", "Its log says what."}
		s.Log.Error("request failed", "path", r.URL.Path, "error", err)
	}
	if strings.HasPrefix(r.URL.Path, "/api/") {
		problem(w, told)
		return
	}
	body, err := render(r, "error", s.head(r, http.StatusText(told.code)), nil, told)
	if err != nil {
		s.Log.Error("render the error page", "error", err)
		http.Error(w, told.reason, told.code)
		return
	}
	w.Header().Set("Content-Type", "text/html; charset=utf-8")
	w.WriteHeader(told.code)
	_, _ = w.Write(body)
}

// problem answers as RFC 9457 has it.
func problem(w http.ResponseWriter, e refusal) {
	w.Header().Set("Content-Type", "application/problem+json")
	w.WriteHeader(e.code)
	_ = json.NewEncoder(w).Encode(struct {
		Title  string `json:"title"`
		Status int    `json:"status"`
		Detail string `json:"detail"`
	}{http.StatusText(e.code), e.code, e.reason + " " + e.Next})
}

// contain turns a panic into an error page, so that it costs one request and not the leases.
func (s *server) contain(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		defer func() {
			switch p := recover(); p {
			case nil:
			case http.ErrAbortHandler:
				panic(p)
			default:
				s.fail(w, r, fmt.Errorf("panic: %v\n%s", p, debug.Stack()))
			}
		}()
		next.ServeHTTP(w, r)
	})
}

// policy lets the page load its own style, script and icon, and ask itself for news: nothing else.
const policy = "default-src 'none'; style-src 'self'; script-src 'self'; img-src 'self'; connect-src 'self'; " +
	"form-action 'self'; base-uri 'none'; frame-ancestors 'none'"

// permissions takes from the page what it has no use for.
const permissions = "camera=(), display-capture=(), geolocation=(), microphone=(), payment=(), usb=()"

// secure sets the headers that every answer carries.
func (s *server) secure(next http.Handler) http.Handler {
	https := s.Gate.external != nil && s.Gate.external.Scheme == "https"
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		h := w.Header()
		h.Set("Content-Security-Policy", policy)
		h.Set("X-Content-Type-Options", "nosniff")
		h.Set("Referrer-Policy", "no-referrer")
		h.Set("Permissions-Policy", permissions)
		h.Set("Cross-Origin-Opener-Policy", "same-origin")
		h.Set("Cross-Origin-Resource-Policy", "same-origin")
		if https {
			h.Set("Strict-Transport-Security", "max-age=31536000")
		}
		h.Set("Cache-Control", "no-store")
		next.ServeHTTP(w, r)
	})
}
