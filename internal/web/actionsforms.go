package web

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"mime"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/go-chi/chi/v5"

	"rota/internal/control"
)

// form takes an order of the page, and leads back to where it was given.
func (s *server) form(a action) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		d, err := s.give(r, a, control.Page, readForm)
		if err != nil {
			s.formFailed(w, r, err)
			return
		}
		leaveNotice(w, d.notice)
		w.Header().Set("Location", back(r))
		w.WriteHeader(http.StatusSeeOther)
	}
}

// call takes an order of the API.
func (s *server) call(a action) http.HandlerFunc {
	return s.handle(func(w http.ResponseWriter, r *http.Request) error {
		d, err := s.give(r, a, control.API, readBody)
		if err != nil {
			return err
		}
		b, err := encode(r, d.body)
		if err != nil {
			return err
		}
		w.Header().Set("Content-Type", kindJSON)
		w.WriteHeader(d.code)
		_, _ = w.Write(b)
		return nil
	})
}

// give has an order given at the desk. It is not called off when the one who gave it leaves; what is
// refused there is an attempt.
func (s *server) give(r *http.Request, a action, via string, read func(*http.Request) (given, error)) (done, error) {
	in := wanted{Tried: subject(r)}
	var err error
	if in.given, err = read(r); err == nil {
		err = plausible(r)
	}
	var d done
	if err == nil {
		ctx, cancel := detached(r)
		defer cancel()
		d, err = a.do(ctx, s.Desk, s.order(r, via, in.Reason), in)
	}
	v := visitOf(r)
	if err != nil {
		err = orderFailed(a, err)
		var failed *failedOrder
		var told refusal
		outcome := orderRefused
		if errors.As(err, &told) && told.code >= http.StatusInternalServerError {
			outcome = orderFailing
		}
		s.requests.orders.WithLabelValues(a.name, outcome).Inc()
		if errors.As(err, &failed) {
			s.Log.Error("order failed", "action", a.name, "actor", v.who.Name, "error", failed.cause)
		}
		s.attempts.note(r, a, in, err)
		return done{}, err
	}
	s.requests.orders.WithLabelValues(a.name, orderDone).Inc()
	s.Log.Info("order given", "action", a.name, "actor", v.who.Name, "via", via, "from", v.from.String(),
		"job", in.Job, "lease", in.Lease, "replica", in.Replica, "run_id", in.Run, "request_id", in.Request)
	return d, nil
}

func (s *server) order(r *http.Request, via, reason string) control.Order {
	v := visitOf(r)
	return control.Order{By: v.who.Name, Via: via, From: v.from.String(), Reason: reason}
}

// subject is what an order is about, by the path.
func subject(r *http.Request) control.Tried {
	number := func(name string) int64 {
		n, err := strconv.ParseInt(chi.URLParam(r, name), 10, 64)
		if err != nil {
			return 0
		}
		return n
	}
	a := control.Tried{Job: param(r, "job"), Lease: param(r, "lease"), Replica: param(r, "id"), Run: number("run"), Request: number("request")}
	if name := param(r, "name"); name != "" {
		a.Replica = name + "/" + param(r, "rest")
	}
	return a
}

// plausible refuses a path whose number is none, or whose name is no text.
func plausible(r *http.Request) error {
	for _, name := range []string{"job", "lease", "id", "name", "rest"} {
		if text := param(r, name); !utf8.ValidString(text) || strings.ContainsRune(text, 0) {
			return refusal{http.StatusNotFound, fmt.Sprintf("There is no %s %q.", name, clip(text, 100)), "It is not even UTF-8."}
		}
	}
	for _, name := range []string{"run", "request"} {
		if text := chi.URLParam(r, name); text != "" {
			if n, err := strconv.ParseInt(text, 10, 64); err != nil || n < 1 {
				return refusal{http.StatusNotFound, fmt.Sprintf("There is no %s %q.", name, clip(text, 100)), "It must be a number that the lists show."}
			}
		}
	}
	return nil
}

// readForm reads the fields of a form. A time without a zone is in UTC, as the page says.
func readForm(r *http.Request) (g given, err error) {
	if kind, _, _ := mime.ParseMediaType(r.Header.Get("Content-Type")); kind != "application/x-www-form-urlencoded" {
		return g, refusal{http.StatusUnsupportedMediaType, "This address takes forms.", "The API, below " + apiPath + ", takes JSON."}
	}
	if err := r.ParseForm(); err != nil {
		return g, unreadable(err)
	}
	f := r.PostForm
	g = given{Args: json.RawMessage(f.Get("args")), Key: f.Get("key"), Reason: f.Get("reason"), Typed: f.Get("typed")}
	if text := strings.TrimSpace(f.Get("until")); text != "" {
		if g.Until, err = parseUntil(text); err != nil {
			return g, err
		}
	}
	if text := f.Get("shard"); text != "" {
		if g.Shard, err = strconv.Atoi(text); err != nil {
			return g, refusal{http.StatusBadRequest, fmt.Sprintf("The shard %q is no number.", clip(text, 100)), "Nothing was done."}
		}
	}
	if text := strings.TrimSpace(f.Get("above")); text != "" {
		if g.Above, err = strconv.ParseInt(text, 10, 64); err != nil {
			return g, refusal{http.StatusBadRequest, fmt.Sprintf("The epoch %q is no number.", clip(text, 100)), "Nothing was done."}
		}
	}
	return g, nil
}

func parseUntil(text string) (*time.Time, error) {
	for _, layout := range []string{time.RFC3339, "2006-01-02T15:04", "2006-01-02T15:04:05"} {
		if t, err := time.Parse(layout, text); err == nil {
			return &t, nil
		}
	}
	return nil, refusal{http.StatusBadRequest, fmt.Sprintf("The time %q cannot be read.", clip(text, 100)), "Give it as in 2026-03-01T08:00:00Z."}
}

// readBody reads a JSON object; no body at all is an empty one.
func readBody(r *http.Request) (g given, err error) {
	b, err := io.ReadAll(r.Body)
	if err != nil {
		return g, unreadable(err)
	}
	if len(b) == 0 {
		return g, nil
	}
	if kind, _, _ := mime.ParseMediaType(r.Header.Get("Content-Type")); kind != kindJSON {
		return g, refusal{http.StatusUnsupportedMediaType, "The API takes JSON.", "Send Content-Type: application/json."}
	}
	d := json.NewDecoder(strings.NewReader(string(b)))
	d.DisallowUnknownFields()
	if err := d.Decode(&g); err != nil {
		return g, refusal{http.StatusBadRequest, "The body cannot be read: " + clip(err.Error(), 300) + ".", `It must be a JSON object, such as {"reason": "why"}.`}
	}
	if d.More() {
		return g, refusal{http.StatusBadRequest, "The body holds more than one JSON object.", "Send one order at a time."}
	}
	return g, nil
}

func unreadable(err error) error {
	var large *http.MaxBytesError
	if errors.As(err, &large) {
		return refusal{http.StatusRequestEntityTooLarge, fmt.Sprintf("More than %d KiB are not taken.", large.Limit>>10), "Nothing was done."}
	}
	return refusal{http.StatusBadRequest, "What was sent cannot be read.", "Nothing was done."}
}

// back is the address that the form's answer leads to: the page of ours that the form names, or the
// first one. It is relative, as all links are.
func back(r *http.Request) string {
	to := r.PostForm.Get("back")
	u, err := url.Parse(to)
	if err != nil || !strings.HasPrefix(to, "/") || u.Scheme != "" || u.Host != "" || u.User != nil || u.Opaque != "" ||
		strings.HasPrefix(u.Path, "//") || strings.Contains(u.Path, "..") || strings.ContainsFunc(to, odd) {
		to = "/"
	}
	return root(r) + strings.TrimPrefix(to, "/")
}

// odd is what browsers take for a slash, leave out, or end a header with.
func odd(r rune) bool { return r == '\\' || r < ' ' || r == 0x7f }
