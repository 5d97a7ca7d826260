package web

import (
	"context"
	"errors"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"

	"rota/internal/pgtest"
)

// A playbill is a stage that notes what it is to play.
type playbill struct {
	scene  Scene
	played []string
	err    error
}

func (p *playbill) Scene() Scene { return p.scene }

func (p *playbill) Play(_ context.Context, act, replica string) (string, error) {
	p.played = append(p.played, act+" "+replica)
	return "so be it", p.err
}

func newPlaybill() *playbill {
	return &playbill{scene: Scene{
		Title: "replica-1: frozen <b>",
		Steps: []Step{
			{State: StepDone, Text: "It is frozen."},
			{State: StepNow, Text: "Its lease runs out.", Until: time.Now().Add(time.Hour)},
			{State: StepNext, Text: "Another takes over."},
			{State: StepBad, Text: "It was <i>not</i> refused."},
		},
		Players: []Player{
			{Name: "replica-1", Owner: leader, State: "frozen", Acts: []Act{{"thaw", "Thaw", "freeze"}}},
			{Name: "replica-2", State: "gone"},
		},
		Told: []Told{{At: time.Now(), Line: "told <b>in the terminal</b>"}},
	}}
}

// staged is the server over db, with a stage.
func staged(t *testing.T, db *pgxpool.Pool, a Access, stage Stage) *server {
	t.Helper()
	s := guarded(t, db, a)
	cfg := s.Config
	cfg.Stage = stage
	return newServer(cfg)
}

var (
	onStage = Access{Listen: "127.0.0.1:8080"}
	here    = caller{from: "127.0.0.1:4711"}
)

// seen is the page as this machine sees it; a slow one may not be answered at once.
func seen(t *testing.T, s *server, path string) *httptest.ResponseRecorder {
	t.Helper()
	for deadline := time.Now().Add(time.Minute); ; time.Sleep(50 * time.Millisecond) {
		w := here.ask(s.router, http.MethodGet, path, "")
		if w.Code == http.StatusOK && w.Header().Get("Rota-Stale") == "" {
			return w
		}
		if time.Now().After(deadline) {
			t.Fatalf("GET %s: %d\n%s", path, w.Code, w.Body)
		}
	}
}

func TestTheSceneIsShownOverJobsAndReplicasAlone(t *testing.T) {
	t.Parallel()
	db := pgtest.New(t)
	run(t, db, `INSERT INTO leadership (job_name, owner, expires_at, epoch) VALUES ('job', $1, clock_timestamp() + interval '1 hour', 1)`, leader)
	s := staged(t, db, onStage, newPlaybill())
	for path, shown := range map[string]bool{"/": true, "/replicas": true, "/jobs/job": false, "/events": false, "/about": false} {
		body := seen(t, s, path).Body.String()
		if strings.Contains(body, `class="stage"`) != shown {
			t.Errorf("%s: shown %v", path, !shown)
		}
	}
	body := seen(t, s, "/").Body.String()
	for _, want := range []string{
		"frozen &lt;b&gt;", "told &lt;b&gt;in the terminal", `<li class="now">`, `<li class="bad">`, "&lt;i&gt;not", "leads <bdi>job</bdi>", "leads nothing",
		`role="status">Its lease runs out.</p>`, `action="./dev/replica-1/thaw"`, `Thaw<span class="unseen"> replica-1</span>`,
	} {
		if !strings.Contains(body, want) {
			t.Errorf("the page lacks %q", want)
		}
	}
	if guest := (caller{from: "203.0.113.7:4711"}).ask(s.router, http.MethodGet, "/", ""); strings.Contains(guest.Body.String(), "/dev/replica-1") {
		t.Error("a button is offered to somebody who may not press it")
	}
}

// What the scene says anew makes another page, whatever the rows say.
func TestANewSceneIsANewPage(t *testing.T) {
	t.Parallel()
	bill := newPlaybill()
	s := staged(t, pgtest.New(t), onStage, bill)
	tag := seen(t, s, "/").Header().Get("ETag")
	bill.scene.Told = slices.Insert(bill.scene.Told, 0, Told{At: time.Now(), Line: "news"})
	if after := seen(t, s, "/"); after.Header().Get("ETag") == tag || !strings.Contains(after.Body.String(), "news") {
		t.Error("the old page is shown")
	}
}

func TestAnActIsPlayedAndLeadsBack(t *testing.T) {
	t.Parallel()
	bill := newPlaybill()
	s := staged(t, pgtest.New(t), onStage, bill)
	w := here.ask(s.router, http.MethodPost, "/dev/replica-1/thaw", "back=%2Freplicas")
	if w.Code != http.StatusSeeOther || w.Header().Get("Location") != "../../replicas" || !slices.Equal(bill.played, []string{"thaw replica-1"}) {
		t.Errorf("%d, to %q, played %q", w.Code, w.Header().Get("Location"), bill.played)
	}
	bill.err = errors.New("it has ended")
	if w := here.ask(s.router, http.MethodPost, "/dev/replica-1/thaw", ""); w.Code != http.StatusConflict || !strings.Contains(w.Body.String(), "it has ended.") {
		t.Errorf("%d: %s", w.Code, w.Body)
	}
}

// What the scene does not offer, who may not, and another origin's page: nothing is played.
func TestNothingIsPlayedThatIsNotOffered(t *testing.T) {
	t.Parallel()
	bill := newPlaybill()
	s := staged(t, pgtest.New(t), onStage, bill)
	for _, c := range []struct {
		who          caller
		method, path string
		want         int
	}{
		{here, http.MethodPost, "/dev/replica-1/kill", http.StatusConflict},
		{here, http.MethodPost, "/dev/replica-2/thaw", http.StatusConflict},
		{here, http.MethodPost, "/dev/replica-9/thaw", http.StatusNotFound},
		{here, http.MethodGet, "/dev/replica-1/thaw", http.StatusMethodNotAllowed},
		{caller{from: "203.0.113.7:4711"}, http.MethodPost, "/dev/replica-1/thaw", http.StatusForbidden},
		{caller{here.from, map[string]string{"Sec-Fetch-Site": "cross-site"}}, http.MethodPost, "/dev/replica-1/thaw", http.StatusForbidden},
	} {
		if w := c.who.ask(s.router, c.method, c.path, ""); w.Code != c.want {
			t.Errorf("%s %s: %d, want %d", c.method, c.path, w.Code, c.want)
		}
	}
	r := httptest.NewRequest(http.MethodPost, "/dev/replica-1/thaw", strings.NewReader("{}"))
	r.RemoteAddr, r.Host = here.from, "127.0.0.1:8080"
	r.Header.Set("Content-Type", "application/json")
	w := httptest.NewRecorder()
	s.router.ServeHTTP(w, r)
	if w.Code != http.StatusUnsupportedMediaType || len(bill.played) > 0 {
		t.Errorf("%d, played %q", w.Code, bill.played)
	}
}

// Without a stage there is no route to one.
func TestWithoutAStageThereIsNothingToPlay(t *testing.T) {
	t.Parallel()
	s := guarded(t, pgtest.New(t), onStage)
	for _, method := range []string{http.MethodGet, http.MethodPost} {
		if w := here.ask(s.router, method, "/dev/replica-1/freeze", ""); w.Code != http.StatusNotFound {
			t.Errorf("%s: %d", method, w.Code)
		}
	}
	walkRoutes(t, s, func(method, pattern string) {
		if strings.HasPrefix(pattern, "/dev") {
			t.Errorf("%s %s", method, pattern)
		}
	})
}
