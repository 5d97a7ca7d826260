package web

import (
	"errors"
	"net/http"
	"net/url"
	"strconv"
	"strings"

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
func (s *server) give(r *http.Request, a action, via string, read func(r *http.Request, takes []string) (given, error)) (done, error) {
	in := wanted{Tried: subject(r)}
	var err error
	if err = understood(r); err == nil {
		in.given, err = read(r, a.takes)
	}
	var d done
	if err == nil {
		ctx, cancel := detached(r)
		defer cancel()
		d, err = a.do(ctx, s.Desk, s.order(r, via, in.Reason), in)
		s.Status.Outdate() // with an error as well: that of a lost answer leaves open what was done
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
