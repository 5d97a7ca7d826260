package web

import (
	"context"
	"net/http"
	"net/http/httptest"
	"strconv"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"rota/internal/control"
	"rota/internal/pgtest"
)

const reasoned = "reason=why"

// Each one who tries to act: refused or allowed as the table says, and in the audit.
func TestEveryAttemptToActIsInTheAudit(t *testing.T) {
	t.Parallel()
	const run = "/jobs/job/run"
	basic, proxy := callers(AuthBasic), callers(AuthProxy)
	with := func(c caller, headers ...string) caller {
		all := map[string]string{}
		for name, value := range c.headers {
			all[name] = value
		}
		for i := 0; i < len(headers); i += 2 {
			all[headers[i]] = headers[i+1]
		}
		return caller{c.from, all}
	}
	local := caller{from: "127.0.0.1:4711"}
	for name, tt := range map[string]struct {
		access             Access
		by                 caller
		address            string
		code               int
		actor, from, words string // of the audit's line; no words: it was done
	}{
		"a read-only viewer":                  {access(t, AuthBasic), basic[Viewer], run, 403, "viewer", "203.0.113.7", "for the role operator"},
		"an operator":                         {access(t, AuthBasic), basic[Operator], run, 303, "operator", "203.0.113.7", ""},
		"an operator, on all jobs":            {access(t, AuthBasic), basic[Operator], "/pause", 403, "operator", "203.0.113.7", "for the role admin"},
		"an admin":                            {access(t, AuthBasic), basic[Admin], "/pause", 303, "admin", "203.0.113.7", ""},
		"a stranger":                          {access(t, AuthBasic), basic[Nobody], run, 401, unknown, "203.0.113.7", "does not know who you are"},
		"a stranger with a wrong password":    {access(t, AuthBasic), with(basic[Nobody], "Authorization", "Basic YWRtaW46eA=="), run, 401, unknown, "203.0.113.7", "does not know who you are"},
		"a cross-origin form":                 {access(t, AuthBasic), with(basic[Admin], "Sec-Fetch-Site", "cross-site", "Origin", "https://evil.example"), run, 403, "admin", "203.0.113.7", "another origin"},
		"a form of a sibling":                 {access(t, AuthBasic), with(basic[Admin], "Sec-Fetch-Site", "same-site"), run, 403, "admin", "203.0.113.7", "another origin"},
		"a cross-origin form, an old browser": {access(t, AuthBasic), with(basic[Admin], "Origin", "https://evil.example"), run, 403, "admin", "203.0.113.7", "another origin"},
		"a form of the page":                  {access(t, AuthBasic), with(basic[Admin], "Sec-Fetch-Site", "same-origin", "Origin", "http://localhost:8080"), run, 303, "admin", "203.0.113.7", ""},
		"a rebound Host":                      {access(t, AuthNone), with(local, "Host", "evil.example", "Origin", "http://evil.example", "Sec-Fetch-Site", "same-origin"), run, 421, unknown, "127.0.0.1", "does not go by the name"},
		"a rebound Host of this machine":      {Access{Listen: "127.0.0.1:8080"}, with(local, "Host", "evil.example:8080"), run, 421, unknown, "127.0.0.1", "does not go by the name"},
		"a forged X-Forwarded-User":           {access(t, AuthProxy), with(proxy[Nobody], userHeader, "admin", groupsHeader, "root"), run, 401, unknown, "203.0.113.7", "does not know who you are"},
		"a proxy's user":                      {access(t, AuthProxy), proxy[Operator], run, 303, "operator", "198.51.100.9", ""},
		"this machine":                        {Access{Listen: "127.0.0.1:8080"}, local, run, 303, anonymous, "127.0.0.1", ""},
		"this machine, through a proxy":       {Access{Listen: "127.0.0.1:8080"}, with(local, "X-Forwarded-For", "203.0.113.7"), run, 403, anonymous, "127.0.0.1", "for the role operator"},
		"another machine, nobody being asked": {access(t, AuthNone), basic[Nobody], run, 403, anonymous, "203.0.113.7", "for the role operator"},
		"no such job":                         {Access{Listen: "127.0.0.1:8080"}, local, "/jobs/none/run", 404, anonymous, "127.0.0.1", "there is no job"},
		"what was not typed":                  {Access{Listen: "127.0.0.1:8080"}, local, "/leases/job/revoke", 400, anonymous, "127.0.0.1", "not confirmed"},
		"no reason":                           {Access{Listen: "127.0.0.1:8080"}, local, "/jobs/job/pause", 400, anonymous, "127.0.0.1", "no reason is given"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			db := pgtest.New(t)
			s := guarded(t, db, tt.access)
			body := reasoned
			switch {
			case tt.words == "no reason is given":
				body = ""
			case tt.address == "/pause", strings.HasSuffix(tt.address, "/revoke"):
				body += "&typed=all"
			}
			w := tt.by.ask(s.router, http.MethodPost, tt.address, body)
			if w.Code != tt.code {
				t.Errorf("%d, want %d\n%s", w.Code, tt.code, w.Body)
			}
			var actor, via, from, outcome, why string
			err := db.QueryRow(t.Context(), `SELECT actor, via, coalesce(detail->>'from', ''), coalesce(detail->>'outcome', ''), coalesce(detail->>'why', '') FROM audit`).
				Scan(&actor, &via, &from, &outcome, &why)
			if err != nil {
				t.Fatalf("the audit's line: %v", err)
			}
			if actor != tt.actor || via != control.Page || from != tt.from || (outcome == "refused") != (tt.words != "") || !strings.Contains(strings.ToLower(why), strings.ToLower(tt.words)) {
				t.Errorf("the audit has %s via %s from %s: %s %s", actor, via, from, outcome, why)
			}
			if n := number(t, db, `SELECT (SELECT count(*) FROM requests) + (SELECT count(*) FROM pauses)`); (n == 1) != (tt.words == "") {
				t.Errorf("%d orders were carried out", n)
			}
		})
	}
}

// A stranger cannot make the audit grow as he pleases, and is counted all the same.
func TestManyAttemptsShareALine(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		lines, counted := 0, 0
		as := attempts{names: map[string]*tries{}}
		as.write = func(_ context.Context, _ attempt, more int) { lines, counted = lines+1, counted+1+more }
		try := func() {
			at := attempt{order: control.Order{By: unknown}}
			if more, now := as.may(at); now {
				as.write(t.Context(), at, more)
			}
		}
		for range 10_000 {
			try()
		}
		if lines != attemptBurst || counted != attemptBurst {
			t.Errorf("%d lines for 10,000 attempts at once", lines)
		}
		for range 60 * 120 { // one a second, for two hours
			time.Sleep(time.Second)
			synctest.Wait()
			try()
		}
		time.Sleep(attemptEvery)
		synctest.Wait()
		if counted != 10_000+60*120 || lines > attemptBurst+61 {
			t.Errorf("%d attempts are counted in %d lines", counted, lines)
		}
	})
}

func TestAnAttemptThatWaitsIsWrittenWithoutAnother(t *testing.T) {
	t.Parallel()
	db := pgtest.New(t)
	s := guarded(t, db, access(t, AuthBasic))
	stranger := callers(AuthBasic)[Nobody]
	for range attemptBurst + 5 {
		stranger.ask(s.router, http.MethodPost, "/jobs/job/run", reasoned)
	}
	if n := number(t, db, `SELECT count(*) FROM audit`); n != attemptBurst {
		t.Fatalf("%d lines", n)
	}
	s.attempts.catchUp(s.attempts.names[unknown])
	if n := number(t, db, `SELECT (detail->>'more')::int FROM audit ORDER BY id DESC LIMIT 1`); n != 4 {
		t.Errorf("the last line stands for %d more", n)
	}
	s.attempts.catchUp(s.attempts.names[unknown])
	if n := number(t, db, `SELECT count(*) FROM audit`); n != attemptBurst+1 {
		t.Errorf("%d lines", n)
	}
}

func TestTooManyNamesShareTheirAttempts(t *testing.T) {
	t.Parallel()
	as := attempts{names: map[string]*tries{}, write: func(context.Context, attempt, int) {}}
	for i := range 3 * attemptNames {
		as.may(attempt{order: control.Order{By: strconv.Itoa(i)}})
	}
	if len(as.names) > attemptNames+1 {
		t.Errorf("%d names are remembered", len(as.names))
	}
}

// Failing to enter costs a wait; those who are known come in meanwhile.
func TestGuessingIsSlowedDown(t *testing.T) {
	t.Parallel()
	for _, auth := range []string{AuthBasic, AuthToken} {
		s := guarded(t, pgtest.New(t), access(t, auth))
		all := callers(auth)
		if w := all[Viewer].ask(s.router, http.MethodGet, "/metrics", ""); w.Code != http.StatusOK {
			t.Fatal(w.Code)
		}
		until(t, viaCaller{s.router, all[Viewer]}, "/", func(w *httptest.ResponseRecorder) bool { return w.Code == http.StatusOK })
		guess := caller{all[Viewer].from, map[string]string{"Authorization": "Bearer guess"}}
		if auth == AuthBasic {
			guess.headers["Authorization"] = "Basic dmlld2VyOmd1ZXNz" // viewer:guess
		}
		for range mostFailures - 1 {
			s.Gate.failures.add(remote(&http.Request{RemoteAddr: guess.from}))
		}
		if w := guess.ask(s.router, http.MethodGet, "/", ""); w.Code != http.StatusUnauthorized || w.Header().Get("WWW-Authenticate") == "" {
			t.Fatalf("%s: %d", auth, w.Code)
		}
		if w := guess.ask(s.router, http.MethodGet, "/", ""); w.Code != http.StatusTooManyRequests || w.Header().Get("Retry-After") == "" {
			t.Errorf("%s: %d", auth, w.Code)
		}
		if w := all[Viewer].ask(s.router, http.MethodGet, "/", ""); w.Code != http.StatusOK {
			t.Errorf("%s: one who is known: %d", auth, w.Code)
		}
		elsewhere := caller{"198.51.100.1:1", guess.headers}
		if w := elsewhere.ask(s.router, http.MethodGet, "/", ""); w.Code != http.StatusUnauthorized {
			t.Errorf("%s: from elsewhere: %d", auth, w.Code)
		}
	}
}

// viaCaller asks as the caller does.
type viaCaller struct {
	http.Handler
	by caller
}

func (v viaCaller) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	r.Host, r.RemoteAddr = "localhost:8080", v.by.from
	for name, value := range v.by.headers {
		r.Header.Set(name, value)
	}
	v.Handler.ServeHTTP(w, r)
}

func TestFailuresAreForgottenAndBounded(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		f := newFailures()
		one := caller{from: "203.0.113.7:1"}
		from := remote(&http.Request{RemoteAddr: one.from})
		for range mostFailures {
			f.add(from)
		}
		if f.may(from) {
			t.Error("it may go on")
		}
		time.Sleep(failureWindow)
		if !f.may(from) {
			t.Error("it may not, a minute later")
		}
		ip := from
		for range 3 * mostAddresses {
			f.add(ip)
			ip = ip.Next()
		}
		if len(f.counted) > mostAddresses+1 {
			t.Errorf("%d addresses are remembered", len(f.counted))
		}
	})
}
