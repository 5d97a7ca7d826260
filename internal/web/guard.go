package web

import (
	"errors"
	"fmt"
	"net/http"
	"strings"

	"github.com/go-chi/chi/v5"
)

const (
	// largestBody holds the arguments of a run, with room for what a form makes of them.
	largestBody = 256 << 10
	// longestAddress bounds the path and the question.
	longestAddress = 8 << 10
)

// arrive is the first that is done with a request: see Gate.arrive.
func (s *server) arrive(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if len(r.RequestURI) > longestAddress {
			http.Error(w, "The address is too long.", http.StatusRequestURITooLong)
			return
		}
		v := s.Gate.arrive(r)
		if r.URL.Path == "" { // the prefix alone, from which no relative link would lead on
			at := s.Gate.prefix[strings.LastIndex(s.Gate.prefix, "/")+1:]
			w.Header().Set("Location", at+"/")
			w.WriteHeader(http.StatusPermanentRedirect)
			return
		}
		v.notice = takeNotice(w, r)
		r.Body = http.MaxBytesReader(w, r.Body, largestBody)
		next.ServeHTTP(w, withVisit(r, v))
	})
}

// need lets those through who have the role, and come by a name that is ours and from no other origin.
// An action that is kept from somebody is an attempt, which is written down.
func (s *server) need(role Role, a *action) func(http.Handler) http.Handler {
	return func(next http.Handler) http.Handler {
		return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			if err := s.admit(w, r, role); err != nil {
				if a != nil {
					s.requests.orders.WithLabelValues(a.name, orderRefused).Inc()
					s.attempts.note(r, *a, wanted{Tried: subject(r)}, err)
				}
				s.fail(w, r, err)
				return
			}
			next.ServeHTTP(w, r)
		})
	}
}

func (s *server) admit(w http.ResponseWriter, r *http.Request, role Role) error {
	v := visitOf(r)
	if !s.Gate.servedAs(r.Host) {
		return refusal{
			http.StatusMisdirectedRequest, fmt.Sprintf("This server does not go by the name %q.", clip(r.Host, 100)),
			"If it should, start it with --allowed-hosts, or with --external-url where a proxy stands in front of it.",
		}
	}
	who, err := s.Gate.who(r, v)
	switch {
	case errors.Is(err, errTooMany):
		w.Header().Set("Retry-After", "60")
		return refusal{http.StatusTooManyRequests, "Too many attempts to enter have failed from your address.", "Wait for a minute."}
	case errors.Is(err, errStranger):
		s.Gate.challenge(w)
		return refusal{http.StatusUnauthorized, "This server does not know who you are.", s.Gate.introduction()}
	case err != nil:
		w.Header().Set("Retry-After", "2")
		return refusal{http.StatusServiceUnavailable, "It could not be checked in time who you are.", "Try again."}
	}
	v.who = who
	if err := s.Gate.origins.Check(r); err != nil {
		return refusal{
			http.StatusForbidden, "This was sent by a page of another origin, and was not done.",
			"If it was sent by this page, a proxy in between changes the Host: have it keep the Host, or start the server with --external-url.",
		}
	}
	if who.Role < role {
		return s.Gate.below(who, role)
	}
	return nil
}

func (g *Gate) challenge(w http.ResponseWriter) {
	switch g.Auth {
	case AuthBasic:
		w.Header().Set("WWW-Authenticate", `Basic realm="rota", charset="UTF-8"`)
	case AuthToken:
		w.Header().Set("WWW-Authenticate", `Bearer realm="rota"`)
	}
}

func (g *Gate) introduction() string {
	switch g.Auth {
	case AuthToken:
		return "Send a token that it knows, as in Authorization: Bearer TOKEN."
	case AuthProxy:
		return "Come through the proxy that says who you are; it is to send " + userHeader + ", once, and to be one of --trusted-proxies."
	}
	return "Give a name and a password that it knows."
}

// below says why a role does not do.
func (g *Gate) below(who Who, needed Role) error {
	next := "Nothing was done. Somebody with that role can do it, or give it to you."
	if g.Auth == AuthNone {
		next = "Nothing was done. Where nobody is asked who they are, only this machine itself may act, without a proxy in between: --auth basic, token or proxy tells who asks."
	}
	return refusal{http.StatusForbidden, fmt.Sprintf("This is for the role %s; %s has the role %s.", needed, who.Name, who.Role), next}
}

// rightsOf says what the one who asks may do, and who it is; empty: nobody is asked, or nobody is known.
func rightsOf(r *http.Request) (can rights, who string) {
	v := visitOf(r)
	if v.who.Name != anonymous && v.who.Role > Nobody {
		who = v.who.Name
	}
	return rights{Operate: v.who.Role >= Operator, Admin: v.who.Role >= Admin}, who
}

// metricsRole is what the metrics need. Where they are open, only a name that is not ours is refused.
func (g *Gate) metricsRole() Role {
	if g.Metrics == metricsViewer {
		return Viewer
	}
	return Nobody
}

// allowed are the methods that the address answers.
func (s *server) allowed(r *http.Request) []string {
	var methods []string
	for _, m := range []string{http.MethodGet, http.MethodHead, http.MethodPost} {
		ask := m
		if m == http.MethodHead {
			ask = http.MethodGet
		}
		if s.router.Match(chi.NewRouteContext(), ask, r.URL.EscapedPath()) {
			methods = append(methods, m)
		}
	}
	return methods
}
