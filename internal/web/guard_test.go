package web

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"github.com/go-chi/chi/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"golang.org/x/crypto/bcrypt"

	"rota/internal/control"
	"rota/internal/pgtest"
	"rota/internal/registry"
	"rota/internal/status"
)

// open is who may do what with a route: everybody, or those who have the role.
const open = Nobody

// table is who may use each route there is. A route that is not in it fails the test.
var table = map[string]Role{
	"GET /about":                        Viewer,
	"GET /events":                       Viewer,
	"GET /jobs/{job}":                   Viewer,
	"GET /jobs/{job}/runs/{id}":         Viewer,
	"GET /jobs/{job}/run":               Viewer,
	"GET /jobs/{job}/pause":             Viewer,
	"GET /jobs/{job}/resume":            Viewer,
	"GET /pause":                        Viewer,
	"GET /resume":                       Viewer,
	"GET /leases/{lease}/step-down":     Viewer,
	"GET /leases/{lease}/revoke":        Viewer,
	"GET /runs/{run}/cancel":            Viewer,
	"GET /requests/{request}/withdraw":  Viewer,
	"GET /replicas/{id}/drain":          Viewer,
	"GET /replicas/{name}/{rest}/drain": Viewer,
	"GET /livez":                        open, "GET /readyz": open, "GET /metrics": open, "GET /static/{file}": open,

	"GET /": Viewer, "GET /replicas": Viewer,
	"GET /api/v1/leases": Viewer, "GET /api/v1/jobs": Viewer, "GET /api/v1/replicas": Viewer,
	"GET /api/v1/runs": Viewer, "GET /api/v1/runs/{id}": Viewer, "GET /api/v1/audit": Viewer,
	"GET /api/v1/jobs/{job}": Viewer, "GET /api/v1/requests": Viewer, "GET /api/v1/events": Viewer, "GET /api/v1/openapi.json": Viewer,

	"POST /jobs/{job}/run": Operator, "POST /jobs/{job}/pause": Operator, "POST /jobs/{job}/resume": Operator,
	"POST /runs/{run}/cancel": Operator, "POST /requests/{request}/withdraw": Operator,
	"POST /leases/{lease}/step-down": Operator,
	"POST /replicas/{id}/drain":      Operator, "POST /replicas/{name}/{rest}/drain": Operator,
	"POST /pause": Admin, "POST /resume": Admin, "POST /leases/{lease}/revoke": Admin,

	"POST /api/v1/jobs/{job}/run": Operator, "POST /api/v1/jobs/{job}/pause": Operator, "POST /api/v1/jobs/{job}/resume": Operator,
	"POST /api/v1/runs/{run}/cancel": Operator, "POST /api/v1/requests/{request}/withdraw": Operator,
	"POST /api/v1/leases/{lease}/step-down": Operator,
	"POST /api/v1/replicas/{id}/drain":      Operator, "POST /api/v1/replicas/{name}/{rest}/drain": Operator,
	"POST /api/v1/pause": Admin, "POST /api/v1/resume": Admin, "POST /api/v1/leases/{lease}/revoke": Admin,
}

// The passwords, and tokens, of those in the files; the others have none.
const (
	viewersWord, operatorsWord, adminsWord = "v-8161", "o-2764", "a-9350"
)

// roster is a file of the three roles, each under its own name.
func roster(t *testing.T, auth string) string {
	t.Helper()
	var lines strings.Builder
	for role, word := range map[Role]string{Viewer: viewersWord, Operator: operatorsWord, Admin: adminsWord} {
		if auth == AuthToken {
			hash := sha256.Sum256([]byte(word))
			scope := map[Role]string{Viewer: "read", Operator: "operate", Admin: "admin"}[role]
			fmt.Fprintf(&lines, "%s:%s:%s\n", role, hex.EncodeToString(hash[:]), scope)
			continue
		}
		fmt.Fprintf(&lines, "%s:%s:%s\n", role, hashes()[word], role)
	}
	return written(t, lines.String())
}

// hashes are the passwords' own; bcrypt takes its time.
var hashes = sync.OnceValue(func() map[string][]byte {
	all := map[string][]byte{}
	for _, word := range []string{viewersWord, operatorsWord, adminsWord} {
		hash, err := bcrypt.GenerateFromPassword([]byte(word), bcrypt.DefaultCost)
		if err != nil {
			panic(err)
		}
		all[word] = hash
	}
	return all
})

func written(t *testing.T, text string) string {
	t.Helper()
	file := filepath.Join(t.TempDir(), "file")
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	return file
}

func gate(t *testing.T, a Access) *Gate {
	t.Helper()
	g, err := NewGate(a)
	if err != nil {
		t.Fatal(err)
	}
	return g
}

// guarded is a server over db with the access.
func guarded(t *testing.T, db *pgxpool.Pool, a Access) *server {
	t.Helper()
	jobs := []registry.Job{{Name: "job", Schedule: registry.OnDemand}}
	return newServer(Config{
		Status: status.New(db, jobs), Desk: control.NewDesk(db, jobs), Gate: gate(t, a),
		Metrics: says("metrics"), Live: says("live"), Ready: says("ready"),
		Version: "v0.0.0-test", Log: slog.New(slog.DiscardHandler),
	})
}

// A caller is somebody who asks, from somewhere, with headers.
type caller struct {
	from    string
	headers map[string]string
}

func (c caller) ask(h http.Handler, method, address, body string) *httptest.ResponseRecorder {
	r := httptest.NewRequest(method, address, strings.NewReader(body))
	r.Host, r.RemoteAddr = "localhost:8080", c.from
	if method == http.MethodPost {
		r.Header.Set("Content-Type", "application/x-www-form-urlencoded")
		if strings.HasPrefix(address, apiPath) {
			r.Header.Set("Content-Type", kindJSON)
		}
	}
	for name, value := range c.headers {
		if name == "Host" {
			r.Host = value
			continue
		}
		r.Header.Set(name, value)
	}
	w := httptest.NewRecorder()
	h.ServeHTTP(w, r)
	return w
}

// callers are one of each role, as the way of asking has it. Nobody is a stranger.
func callers(auth string) map[Role]caller {
	const remote, proxy = "203.0.113.7:4711", "10.0.0.5:4711"
	all := map[Role]caller{Nobody: {from: remote}}
	for role, word := range map[Role]string{Viewer: viewersWord, Operator: operatorsWord, Admin: adminsWord} {
		switch auth {
		case AuthBasic:
			r := httptest.NewRequest(http.MethodGet, "/", nil)
			r.SetBasicAuth(role.String(), word)
			all[role] = caller{remote, map[string]string{"Authorization": r.Header.Get("Authorization")}}
		case AuthToken:
			all[role] = caller{remote, map[string]string{"Authorization": "Bearer " + word}}
		case AuthProxy:
			groups := map[Role]string{Viewer: "people", Operator: "people, ops", Admin: "ops,root"}[role]
			all[role] = caller{proxy, map[string]string{userHeader: role.String(), groupsHeader: groups, "X-Forwarded-For": "198.51.100.9"}}
		}
	}
	return all
}

func access(t *testing.T, auth string) Access {
	t.Helper()
	a := Access{Listen: "0.0.0.0:8080", Auth: auth}
	switch auth {
	case AuthBasic, AuthToken:
		a.File = roster(t, auth)
	case AuthProxy:
		a.Proxies, a.Operators, a.Admins = []string{"10.0.0.0/24"}, []string{"ops"}, []string{"root"}
	}
	return a
}

// Each route, with each method, for each role, in each way of saying who one is.
func TestEveryRouteAsksForItsRole(t *testing.T) {
	t.Parallel()
	for _, auth := range []string{AuthBasic, AuthToken, AuthProxy} {
		t.Run(auth, func(t *testing.T) {
			t.Parallel()
			s := guarded(t, pgtest.New(t), access(t, auth))
			who := callers(auth)
			seen := map[string]bool{}
			walkRoutes(t, s, func(method, pattern string) {
				route := method + " " + pattern
				seen[route] = true
				need, listed := table[route]
				if !listed {
					t.Errorf("%s is not in the table: who may use it?", route)
					return
				}
				for role, c := range who {
					w := c.ask(s.router, method, example(pattern), "")
					var want string
					switch {
					case role >= need:
						want = "let through"
					case role == Nobody:
						want = "401"
					default:
						want = "403"
					}
					if got := verdict(w.Code); got != want {
						t.Errorf("%s by %s: %s (%d), want %s\n%s", route, role, got, w.Code, want, w.Body)
					}
				}
			})
			for route := range table {
				if !seen[route] {
					t.Errorf("the table has %s, which there is not", route)
				}
			}
		})
	}
}

// walkRoutes calls f with each route there is; HEAD goes with GET.
func walkRoutes(t *testing.T, s *server, f func(method, pattern string)) {
	t.Helper()
	err := chi.Walk(s.router, func(method, pattern string, _ http.Handler, _ ...func(http.Handler) http.Handler) error {
		f(method, pattern)
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
}

// example is an address of the pattern. What it names is not there, so that nothing is done.
func example(pattern string) string {
	return strings.NewReplacer("{job}", "nothing", "{lease}", "nothing", "{id}", "999", "{run}", "999", "{request}", "999",
		"{name}", "nothing", "{rest}", "nothing", "{file}", assets["rota.css"].address).Replace(pattern)
}

func verdict(code int) string {
	switch code {
	case http.StatusUnauthorized, http.StatusForbidden, http.StatusMisdirectedRequest, http.StatusTooManyRequests:
		return fmt.Sprint(code)
	}
	return "let through"
}

func TestNoGetChangesAnything(t *testing.T) {
	t.Parallel()
	db := pgtest.New(t)
	s := guarded(t, db, Access{Listen: "127.0.0.1:8080"})
	walkRoutes(t, s, func(method, pattern string) {
		if method != http.MethodGet && method != http.MethodPost {
			t.Errorf("%s %s", method, pattern)
		}
	})
	local := caller{from: "127.0.0.1:4711"}
	for route := range table {
		if method, pattern, _ := strings.Cut(route, " "); method == http.MethodPost {
			for _, safe := range []string{http.MethodGet, http.MethodHead, http.MethodOptions} {
				local.ask(s.router, safe, strings.ReplaceAll(example(pattern), "nothing", "job")+"?reason=x&typed=all", "reason=x&typed=all")
			}
		}
	}
	if n := number(t, db, `SELECT (SELECT count(*) FROM audit) + (SELECT count(*) FROM requests) + (SELECT count(*) FROM pauses)`); n > 0 {
		t.Errorf("%d rows", n)
	}
}

func number(t *testing.T, db *pgxpool.Pool, sql string, args ...any) (n int) {
	t.Helper()
	if err := db.QueryRow(t.Context(), sql, args...).Scan(&n); err != nil {
		t.Fatal(err)
	}
	return n
}
