package main

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"
	"unicode"

	"rota/internal/pgtest"
	"rota/internal/status"
)

// A spoken is what a command has printed so far.
type spoken struct {
	mu  sync.Mutex
	all bytes.Buffer
}

func (s *spoken) Write(b []byte) (int, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.all.Write(b)
}

func (s *spoken) String() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.all.String()
}

// A watcher is the command as it runs.
type watcher struct {
	out, talk spoken
	end       context.CancelFunc
	code      chan int
}

func startWatch(t *testing.T, env []string, args ...string) *watcher {
	t.Helper()
	ctx, end := context.WithCancel(t.Context())
	w := &watcher{end: end, code: make(chan int, 1)}
	go func() {
		w.code <- run(ctx, append([]string{"watch", "--interval", "200ms"}, args...), env, strings.NewReader(""), &w.out, &w.talk)
	}()
	t.Cleanup(func() {
		end()
		if t.Failed() {
			t.Logf("stdout:\n%s\nstderr:\n%s", &w.out, &w.talk)
		}
	})
	return w
}

func (w *watcher) says(t *testing.T, what string, re string) {
	t.Helper()
	eventually(t, 30*time.Second, what, func() bool { return regexp.MustCompile(re).MatchString(w.out.String()) })
}

// stops ends it as Ctrl-C does.
func (w *watcher) stops(t *testing.T) {
	t.Helper()
	w.end()
	select {
	case code := <-w.code:
		if code != exitOK {
			t.Errorf("exit code %d", code)
		}
	case <-time.After(10 * time.Second):
		t.Error("it goes on")
	}
}

func TestWatchPrintsALineForEachChangeAndOutlivesTheServer(t *testing.T) {
	t.Parallel()
	url := pgtest.URL(t)
	first := launch(t, url, "watched").serving()
	db := lookAt(t, url)
	epoch := db.ledBy("watched_3", first).Epoch
	w := startWatch(t, nil, "--url", "http://"+first.probeAddress(), "watched_*")
	w.says(t, "its term", fmt.Sprintf(`(?m)^\S+ \S+Z  watched_3  held  by %s, epoch %d  run \d+ running$`, regexp.QuoteMeta(first.id()), epoch))
	eventually(t, 30*time.Second, "answers that cost nothing", func() bool {
		_, text := first.probe("/metrics")
		return regexp.MustCompile(`rota_http_requests_total\{[^}]*code="304"[^}]*\}`).MatchString(text)
	})

	first.send(syscall.SIGKILL)
	first.code(10 * time.Second)
	eventually(t, 30*time.Second, "it says that the server is away", func() bool { return strings.Contains(w.talk.String(), "no answer") })
	second := launch(t, url, "watched", "--listen", first.probeAddress()).serving()
	w.says(t, "the next term", fmt.Sprintf(`(?m)  watched_3  held  by %s, epoch %d `, regexp.QuoteMeta(second.id()), epoch+1))
	w.stops(t)

	if got := strings.Count(w.out.String(), fmt.Sprintf("watched_3  held  by %s, epoch %d  run", first.id(), epoch)); got > 2 { // running, then over
		t.Errorf("its term is told %d times", got)
	}
	if strings.Contains(w.out.String(), "bridge_health") {
		t.Error("it tells of a job that nobody asked for")
	}
	talk := strings.Split(strings.TrimSpace(w.talk.String()), "\n")
	if len(talk) != 2 || !strings.Contains(talk[1], "answers again, after") {
		t.Errorf("of the server it says %q", talk)
	}
}

func TestWatchPrintsSnapshotsAsLines(t *testing.T) {
	t.Parallel()
	replica := launch(t, pgtest.URL(t), "watched").serving()
	w := startWatch(t, []string{"ROTA_LISTEN=" + replica.probeAddress()}, "--json", "watched_1")
	w.says(t, "several snapshots", `(?s)\n.*\n.*\n`)
	w.stops(t)
	var last string
	for line := range strings.Lines(w.out.String()) {
		var got sighting
		if err := json.Unmarshal([]byte(line), &got); err != nil {
			t.Fatal(err)
		}
		if len(got.Jobs) != 1 || got.Jobs[0].Name != "watched_1" || got.AsOf.IsZero() {
			t.Errorf("%s", line)
		}
		jobs, err := json.Marshal(got.Jobs)
		if err != nil {
			t.Fatal(err)
		}
		if string(jobs) == last {
			t.Errorf("the same twice: %s", line)
		}
		last = string(jobs)
	}
}

func TestWatchNamesTheWayOut(t *testing.T) {
	t.Parallel()
	file := filepath.Join(t.TempDir(), "tokens")
	// That of "abc".
	if err := os.WriteFile(file, []byte("ana:ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad:read\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	replica := launch(t, pgtest.URL(t), "watched", "--auth", "token", "--auth-file", file).serving()
	here := "http://" + replica.probeAddress()
	other := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		switch r.URL.Path {
		case "/login/api/v1/jobs":
			http.Redirect(w, r, "/sign-in?from=here", http.StatusFound)
		case "/page/api/v1/jobs":
			_, _ = w.Write([]byte("<html>"))
		default:
			http.NotFound(w, r)
		}
	}))
	t.Cleanup(other.Close)
	nobody := httptest.NewServer(nil)
	nobody.Close()
	for name, c := range map[string]struct {
		args, env []string
		code      int
		words     string
	}{
		"no token":       {[]string{"--url", here}, nil, exitFailed, "401: This server does not know who you are. Send a token that it knows, as in Authorization: Bearer TOKEN. --token (ROTA_TOKEN) or --user"},
		"wrong token":    {[]string{"--url", here}, []string{"ROTA_TOKEN=x"}, exitFailed, "401"},
		"password":       {[]string{"--url", strings.Replace(here, "://", "://ana:secret@", 1)}, nil, exitFailed, "401"},
		"unknown job":    {[]string{"--url", here, "--token", "abc", "watched_9"}, nil, exitUsage, `job "watched_9": the server has none like that; it has: bridge_health, `},
		"bad pattern":    {[]string{"--url", here, "[a"}, nil, exitUsage, `job "[a": it must be a job's name, or a pattern`},
		"nobody there":   {[]string{"--url", nobody.URL}, nil, exitFailed, "--url names another server"},
		"other path":     {[]string{"--url", other.URL + "/ops"}, nil, exitFailed, "/ops has no API of Rota: 404 Not Found; --url must have the path that a proxy has the page under"},
		"a page":         {[]string{"--url", other.URL + "/page/"}, nil, exitFailed, `/page has no API of Rota: it answers with "text/html"`},
		"a login":        {[]string{"--url", other.URL + "/login"}, nil, exitFailed, `has no API of Rota: it sends to "/sign-in?`},
		"no URL":         {[]string{"--url", "ops.example.com:80"}, nil, exitUsage, "url: it must be that of the page"},
		"no name":        {[]string{"--url", here, "--user", "ana"}, nil, exitUsage, "user: it must be name:password"},
		"two ways":       {[]string{"--url", here, "--user", "ana:x", "--token", "y"}, nil, exitUsage, "token and user"},
		"short interval": {[]string{"--url", here, "--interval", "1ms"}, nil, exitUsage, "interval 1ms: it must be at least 200ms"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			var out, talk bytes.Buffer
			ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
			defer cancel()
			code := run(ctx, append([]string{"watch"}, c.args...), c.env, strings.NewReader(""), &out, &talk)
			if code != c.code || !strings.Contains(talk.String(), c.words) || strings.Count(talk.String(), "\n") != 1 {
				t.Errorf("exit code %d, want %d; it says %q, want %q", code, c.code, &talk, c.words)
			}
			for _, secret := range []string{"secret", "abc"} {
				if strings.Contains(talk.String(), secret) {
					t.Errorf("it tells a secret: %s", &talk)
				}
			}
			if strings.ContainsRune(talk.String(), '\x1b') {
				t.Error("it moves the cursor")
			}
		})
	}
	w := startWatch(t, nil, "--url", here, "--token", "abc")
	w.says(t, "with a token it is let in", `watched_1  held`)
	w.stops(t)
}

// What it shows is as of when the database last answered, and it says so.
func TestWatchSaysHowOldWhatItShowsIs(t *testing.T) {
	t.Parallel()
	then := time.Now().UTC().Add(-time.Minute)
	seen := sighting{Moment: status.Moment{AsOf: then, AgeSeconds: 3, Stale: true}, at: time.Now()}
	running, expires := time.Now().Add(-2*time.Minute), then.Add(7*time.Second)
	seen.Jobs = []status.JobJSON{{LeaseJSON: status.LeaseJSON{Name: "j", Job: "j", Owner: "a/1", Epoch: 3, State: status.Held, ExpiresAt: &expires}, LastRun: &status.RunJSON{ID: 1, StartedAt: &running}}}
	var out bytes.Buffer
	_ = newScreen(&out, "here", func() int { return 24 }).show(seen, outage{})
	for _, want := range []string{"STALE: as of " + stamp(then) + ", by the database's clock, 3s old", "  7s  ", "running for 1m"} { // as of then
		if !strings.Contains(out.String(), want) {
			t.Errorf("it does not say %q: %q", want, &out)
		}
	}
	out.Reset()
	_ = newScreen(&out, "here", func() int { return 24 }).show(seen, outage{since: time.Now().Add(-5 * time.Second), why: "refused"})
	if !strings.Contains(out.String(), "no answer for 5s: refused") {
		t.Errorf("it does not say that the server is away: %q", &out)
	}
}

// What others wrote cannot move the cursor, turn text around, or push the table off its lines.
func TestHostileTextStaysInItsCellOnTheTerminal(t *testing.T) {
	t.Parallel()
	evil := "\x1b[2J\x1b]0;x\a\u202ebad\u2066\r\n\t\u009b31m" + strings.Repeat("x", 10000)
	ended, outcome := time.Now(), evil
	seen := sighting{Moment: status.Moment{AsOf: time.Now()}, at: time.Now()}
	for range 50 {
		seen.Jobs = append(seen.Jobs, status.JobJSON{
			LeaseJSON: status.LeaseJSON{Name: evil, Job: evil, Owner: evil, State: status.Held, Epoch: 1, ExpiresAt: &ended},
			LastRun:   &status.RunJSON{Error: evil, Outcome: &outcome, StartedAt: &ended, EndedAt: &ended},
		})
	}
	var drawn, lines, talk bytes.Buffer
	s := newScreen(&drawn, "here", func() int { return 24 })
	_ = s.show(seen, outage{})
	_ = s.show(seen, outage{since: time.Now(), why: evil})
	s.end()
	_ = (&changes{out: &lines, news: news{to: &talk, server: "here"}}).show(seen, outage{})
	_ = (&changes{out: &lines, news: news{to: &talk, server: "here"}}).show(seen, outage{since: time.Now(), why: evil})
	ours := strings.NewReplacer(enterScreen, "", leaveScreen, "", home, "\f", endOfLine, "", restBelow, "")
	text := ours.Replace(drawn.String())
	for i, frame := range strings.Split(text, "\f")[1:] {
		if n := strings.Count(frame, "\n") + 1; n > 24 {
			t.Errorf("frame %d has %d lines", i, n)
		}
	}
	for _, r := range strings.ReplaceAll(text, "\f", "") + lines.String() + talk.String() {
		if r != '\n' && !unicode.IsPrint(r) {
			t.Fatalf("%U reaches the terminal", r)
		}
	}
	for line := range strings.Lines(lines.String()) {
		if len(line) > 600 {
			t.Errorf("a line of %d bytes", len(line))
		}
	}
}

// A server is called by its address, whether that ends in a slash or not.
func TestWatchNamesItsServer(t *testing.T) {
	t.Parallel()
	for address, name := range map[string]string{
		"http://ops:8080":             "ops:8080",
		"http://ops:8080/":            "ops:8080",
		"https://ops.example.com/a/b": "ops.example.com/a/b",
	} {
		a, err := newAsker(address, "", "")
		if err != nil {
			t.Fatal(err)
		}
		if a.name() != name {
			t.Errorf("%s is called %q, want %q", address, a.name(), name)
		}
	}
}
