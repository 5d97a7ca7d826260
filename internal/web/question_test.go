package web

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"testing"

	"github.com/go-chi/chi/v5"

	"rota/internal/pgtest"
)

// existing is an address of the pattern that names what told has put there.
func existing(pattern string) string {
	name, rest, _ := strings.Cut(leader, "/")
	id := "1"
	if strings.Contains(pattern, "/replicas/") {
		id = url.PathEscape(leader)
	}
	return strings.NewReplacer("{job}", "bridge_health", "{lease}", "bridge_health", "{id}", id, "{run}", "3", "{request}", "2",
		"{name}", name, "{rest}", rest).Replace(pattern)
}

// unguarded are the routes that answer whatever their address says besides: those of probers and of files.
func unguarded(pattern string) bool {
	return pattern == "/metrics" || pattern == "/livez" || pattern == "/readyz" || strings.HasPrefix(pattern, "/static/")
}

// Each route refuses each question that it would not answer as it was meant, in the words of its kind.
func TestEveryRouteRefusesAQuestionThatItDoesNotUnderstand(t *testing.T) {
	t.Parallel()
	db := pgtest.New(t)
	job := told(t, db)
	h := serve(db, job)
	get(t, h, "/")
	walkRoutes(t, serverOf(h), func(method, pattern string) {
		if unguarded(pattern) || strings.HasPrefix(pattern, "/dev/") {
			return
		}
		bad := map[string]string{ // by the question, what the refusal must name
			"limit=1;x": "limit=1;x", "a=%zz": "a=%zz", "%": "%", "unheard=1": "unheard", "=1": "no such parameter",
		}
		if method == http.MethodGet {
			for _, name := range questions[pattern] {
				bad[name+"=1&"+name+"=1"] = name + ": it is given 2 times"
				bad[name+"=%ff"] = name
				bad[name+"=%00"] = name
			}
		}
		for question, names := range bad {
			w := ordered(h, method, existing(pattern)+"?"+question)
			body := strings.NewReplacer("&#34;", `"`, "&amp;", "&", `\"`, `"`, `\u0026`, "&").Replace(w.Body.String())
			if w.Code != http.StatusBadRequest || !strings.Contains(body, names) {
				t.Errorf("%s %s?%s: %d, and it must name %s\n%s", method, pattern, question, w.Code, names, body)
			}
			isTold(t, w, pattern)
		}
	})
}

// Each route with a name in its path answers 404 for one that is not there, and for one that cannot be.
func TestEveryRouteKnowsWhatThereIsNot(t *testing.T) {
	t.Parallel()
	db := pgtest.New(t)
	job := told(t, db)
	h := serve(db, job)
	get(t, h, "/")
	parts := []string{"{job}", "{lease}", "{id}", "{run}", "{request}", "{name}", "{rest}"}
	walkRoutes(t, serverOf(h), func(method, pattern string) {
		if unguarded(pattern) || strings.HasPrefix(pattern, "/dev/") {
			return
		}
		for _, part := range parts {
			if !strings.Contains(pattern, part) {
				continue
			}
			for _, name := range []string{"%00", "%ff", "a%00b", "nothing", "nothing.1of4", "bridge_health.1of4", "-1", "0", "99999", "99999999999999999999", "1e3", "%20", "%E2%80%8B"} {
				address := existing(strings.ReplaceAll(pattern, part, "~part~"))
				w := ordered(h, method, strings.ReplaceAll(address, "~part~", name))
				if w.Code != http.StatusNotFound {
					t.Errorf("%s %s with %s: %d\n%s", method, pattern, name, w.Code, w.Body)
				}
				isTold(t, w, pattern)
			}
		}
	})
	if n := number(t, db, `SELECT count(*) FROM requests WHERE id > 2`) + number(t, db, `SELECT count(*) FROM audit WHERE via <> 'cli' AND coalesce(detail->>'outcome', '') <> 'refused'`); n > 0 {
		t.Errorf("%d orders were carried out", n)
	}
}

// ordered asks, or gives an order that lacks nothing but what its address is about.
func ordered(h http.Handler, method, address string) *httptest.ResponseRecorder {
	if method == http.MethodGet {
		return ask(h, method, address)
	}
	typed := ""
	if path, _, _ := strings.Cut(address, "?"); path == "/pause" || path == apiPath+"/pause" {
		typed = typedAll
	} else if strings.HasSuffix(path, "/revoke") {
		typed, _ = url.PathUnescape(strings.TrimSuffix(path[strings.LastIndex(strings.TrimSuffix(path, "/revoke"), "/")+1:], "/revoke"))
	}
	if strings.HasPrefix(address, apiPath) {
		if typed != "" {
			return giveOrder(h, address, kindJSON, fmt.Sprintf(`{"reason": "why", "typed": %s}`, quoted(typed)))
		}
		return giveOrder(h, address, kindJSON, `{"reason": "why"}`)
	}
	body := url.Values{"reason": {"why"}}
	if typed != "" {
		body.Set("typed", typed)
	}
	return giveOrder(h, address, "application/x-www-form-urlencoded", body.Encode())
}

// isTold holds a refusal to its form: a problem of the API, or a page with a sentence and a way on.
func isTold(t *testing.T, w *httptest.ResponseRecorder, pattern string) {
	t.Helper()
	kind := w.Header().Get("Content-Type")
	if strings.HasPrefix(pattern, apiPath) {
		if kind != "application/problem+json" {
			t.Errorf("%s: %s", pattern, kind)
		}
		return
	}
	if !strings.HasPrefix(kind, "text/html") || !strings.Contains(w.Body.String(), "</h1>") || !strings.Contains(w.Body.String(), ">The jobs</a>") && !strings.Contains(w.Body.String(), "data-close") {
		t.Errorf("%s: a refusal without a sentence or a way on\n%s", pattern, w.Body)
	}
}

// serverOf is a server with the routes of h.
func serverOf(h http.Handler) *server {
	return &server{router: h.(chi.Router)}
}
