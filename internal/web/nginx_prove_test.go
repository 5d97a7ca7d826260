//go:build prove

package web

import (
	"fmt"
	"html"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/http/cookiejar"
	"net/http/httptest"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"rota/internal/control"
	"rota/internal/pgtest"
	"rota/internal/registry"
	"rota/internal/status"
)

// nginxConf is what an installation needs below its own prefix; the rest keeps nginx to a directory.
const nginxConf = `
daemon off; worker_processes 1; pid %[1]s/pid; error_log stderr; %[2]s
events {}
http {
  access_log off;
  client_body_temp_path %[1]s/body; proxy_temp_path %[1]s/proxy; fastcgi_temp_path %[1]s/fastcgi;
  uwsgi_temp_path %[1]s/uwsgi; scgi_temp_path %[1]s/scgi;
  server {
    listen %[3]s;
    location /ops/rota/ {
      proxy_pass http://%[4]s;
      proxy_http_version 1.1;
      %[5]s
      proxy_set_header X-Forwarded-For $remote_addr;
      proxy_set_header X-Forwarded-Proto $scheme;
      proxy_set_header X-Forwarded-User ana;
      proxy_set_header X-Forwarded-Groups rota-admins;
    }
  }
}
`

// A real nginx before the page, under a prefix that it keeps or strips: links, orders and live updates.
func TestProveThePageWorksBehindNginx(t *testing.T) {
	nginx, err := exec.LookPath("nginx")
	if err != nil {
		nginx = "/usr/sbin/nginx" // which is not on every user's PATH
	}
	if _, err := os.Stat(nginx); err != nil {
		if os.Getenv("CI") != "" {
			t.Fatal(err)
		}
		t.Skip("nginx is not installed: scripts/setup prove installs it")
	}
	keepsHost := "proxy_set_header Host $http_host;"
	for name, tt := range map[string]struct {
		path, headers string
		external      bool
	}{
		"kept":                             {"", keepsHost, true},
		"stripped":                         {"/", keepsHost, true},
		"kept, another Host":               {"", "", true},
		"stripped, another Host":           {"/", "proxy_set_header X-Forwarded-Host $http_host;", true},
		"stripped, without --external-url": {"/", keepsHost, false},
		"kept, X-Forwarded-Prefix, no --external-url": {"", keepsHost + " proxy_set_header X-Forwarded-Prefix /ops/rota;", false},
	} {
		t.Run(name, func(t *testing.T) {
			listener, err := net.Listen("tcp", "127.0.0.1:0")
			if err != nil {
				t.Fatal(err)
			}
			front := listener.Addr().String()
			_ = listener.Close()
			access := Access{Listen: "127.0.0.1:0", Auth: AuthProxy, Proxies: []string{"127.0.0.1"}, Admins: []string{"rota-admins"}}
			if tt.external {
				access.External = "http://" + front + "/ops/rota/"
			}
			b := behind(t, nginx, front, tt.path, tt.headers, access)
			b.followsEveryLink()
			b.givesOrders()
			b.staysLive()
		})
	}
}

// behindNginx is a browser, before the proxy.
type behindNginx struct {
	t      *testing.T
	client *http.Client
	root   string
	bump   func() // changes what the page shows
	asked  func() int
}

func behind(t *testing.T, nginx, front, path, headers string, access Access) behindNginx {
	t.Helper()
	db := pgtest.New(t)
	for _, sql := range answersSQL {
		run(t, db, sql)
	}
	jobs := []registry.Job{{Name: "job", Schedule: registry.Every(time.Minute)}}
	server := httptest.NewServer(Handler(Config{
		Status: status.New(db, jobs), Desk: control.NewDesk(db, jobs), Gate: gate(t, access),
		Metrics: says("metrics"), Live: says("live"), Ready: says("ready"), Log: slog.New(slog.DiscardHandler),
	}))
	t.Cleanup(server.Close)
	dir, user := t.TempDir(), ""
	if os.Getuid() == 0 {
		user = "user root;"
	}
	conf := fmt.Sprintf(nginxConf, dir, user, front, strings.TrimPrefix(server.URL, "http://")+path, headers)
	if err := os.WriteFile(filepath.Join(dir, "conf"), []byte(conf), 0o600); err != nil {
		t.Fatal(err)
	}
	var said strings.Builder
	cmd := exec.Command(nginx, "-p", dir, "-c", filepath.Join(dir, "conf"))
	cmd.Stderr = &said
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = cmd.Process.Signal(os.Interrupt)
		_ = cmd.Wait()
		if t.Failed() {
			t.Log(said.String())
		}
	})
	jar, err := cookiejar.New(nil)
	if err != nil {
		t.Fatal(err)
	}
	b := behindNginx{
		t: t, client: &http.Client{Jar: jar, Timeout: 30 * time.Second}, root: "http://" + front + "/ops/rota/",
		bump: func() { run(t, db, `UPDATE leadership SET epoch = epoch + 1 WHERE job_name = 'job'`) },
		asked: func() int {
			return number(t, db, `SELECT count(*) FROM audit WHERE actor = 'ana' AND via = 'page' AND detail->>'from' = '127.0.0.1' AND detail->>'outcome' IS NULL`)
		},
	}
	for deadline := time.Now().Add(30 * time.Second); ; time.Sleep(50 * time.Millisecond) {
		w, err := b.client.Get(b.root)
		if err == nil {
			_ = w.Body.Close()
			if w.StatusCode == http.StatusOK {
				return b
			}
		}
		if time.Now().After(deadline) {
			t.Fatalf("no page at %s: %v, %v\n%s", b.root, w, err, said.String())
		}
	}
}

func (b behindNginx) get(address string, headers ...string) (*http.Response, string) {
	b.t.Helper()
	r, err := http.NewRequest(http.MethodGet, address, nil)
	if err != nil {
		b.t.Fatal(err)
	}
	r.Header.Set("Accept", "text/html")
	for i := 0; i < len(headers); i += 2 {
		r.Header.Set(headers[i], headers[i+1])
	}
	w, err := b.client.Do(r)
	if err != nil {
		b.t.Fatal(err)
	}
	body, err := io.ReadAll(w.Body)
	_ = w.Body.Close()
	if err != nil {
		b.t.Fatal(err)
	}
	return w, string(body)
}

var (
	links  = regexp.MustCompile(`(?:href|src)="([^"]+)"`)
	posts  = regexp.MustCompile(`(?s)<form method="post" action="([^"]+)".*?</form>`)
	hidden = regexp.MustCompile(`<input type="hidden" name="([^"]+)" value="([^"]*)"`)
)

// resolve is where a link of a page leads; it is to stay below the prefix.
func (b behindNginx) resolve(page, link string) string {
	b.t.Helper()
	base, err := url.Parse(page)
	if err != nil {
		b.t.Fatal(err)
	}
	u, err := base.Parse(html.UnescapeString(link))
	if err != nil {
		b.t.Fatal(err)
	}
	u.Fragment = ""
	if !strings.HasPrefix(u.String(), b.root) {
		b.t.Fatalf("%s links to %s, outside the prefix", page, u)
	}
	return u.String()
}

func (b behindNginx) followsEveryLink() {
	b.t.Helper()
	queue, seen := []string{b.root}, map[string]bool{b.root: true}
	for len(queue) > 0 && len(seen) < 400 {
		page := queue[0]
		queue = queue[1:]
		w, body := b.get(page)
		if w.StatusCode != http.StatusOK {
			b.t.Errorf("%s: %s", page, w.Status)
		}
		if !strings.HasPrefix(w.Header.Get("Content-Type"), "text/html") {
			continue
		}
		for _, m := range links.FindAllStringSubmatch(body, -1) {
			if to := b.resolve(page, m[1]); !seen[to] {
				seen[to] = true
				queue = append(queue, to)
			}
		}
	}
	for _, want := range []string{"jobs/job", "runs/", "replicas", "events", "about", "api/v1/jobs", "metrics", "jobs/job/run"} {
		found := false
		for address := range seen {
			found = found || strings.HasPrefix(address, b.root+want)
		}
		if !found {
			b.t.Errorf("no link leads to %s", want)
		}
	}
	b.t.Logf("%d addresses", len(seen))
}

// givesOrders sends the forms as a browser does, and is led back to where they were offered.
func (b behindNginx) givesOrders() {
	b.t.Helper()
	before := b.asked()
	orders := []string{"jobs/job/run", "jobs/job/pause", "leases/job/step-down", "replicas/pod-1/a/drain", "pause"}
	for _, order := range orders {
		at := b.root + order + "?back=" + url.QueryEscape("/jobs/job?outcome=success")
		w, page := b.get(at)
		form := posts.FindStringSubmatch(page)
		if w.StatusCode != http.StatusOK || form == nil {
			b.t.Fatalf("%s: %s\n%s", at, w.Status, page)
		}
		fields := url.Values{"reason": {"behind a proxy"}}
		if strings.Contains(form[0], `name="typed"`) {
			fields.Set("typed", "all")
		}
		for _, m := range hidden.FindAllStringSubmatch(form[0], -1) {
			fields.Set(m[1], html.UnescapeString(m[2]))
		}
		r, err := http.NewRequest(http.MethodPost, b.resolve(at, form[1]), strings.NewReader(fields.Encode()))
		if err != nil {
			b.t.Fatal(err)
		}
		front, _, _ := strings.Cut(b.root, "/ops")
		r.Header.Set("Content-Type", "application/x-www-form-urlencoded")
		r.Header.Set("Accept", "text/html")
		r.Header.Set("Origin", front)
		r.Header.Set("X-Forwarded-User", "mallory") // nginx puts its own in its place
		w, err = b.client.Do(r)
		if err != nil {
			b.t.Fatal(err)
		}
		led, err := io.ReadAll(w.Body)
		_ = w.Body.Close()
		if err != nil || w.StatusCode != http.StatusOK || w.Request.URL.String() != b.root+"jobs/job?outcome=success" {
			b.t.Errorf("%s leads to %s: %s, %v\n%s", order, w.Request.URL, w.Status, err, led)
		}
		if !strings.Contains(string(led), `id="notice" role="status"><p>`) {
			b.t.Errorf("%s: the page that it leads back to says nothing of it", order)
		}
	}
	if n := b.asked() - before; n != len(orders) {
		b.t.Errorf("the audit has %d of %d orders", n, len(orders))
	}
}

// staysLive polls as the script does.
func (b behindNginx) staysLive() {
	b.t.Helper()
	_, _ = b.get(b.root) // takes the last notice
	w, _ := b.get(b.root)
	tag := w.Header.Get("ETag")
	if again, _ := b.get(b.root, "If-None-Match", tag); again.StatusCode != http.StatusNotModified && again.Header.Get("ETag") == tag {
		b.t.Errorf("unchanged: %s", again.Status)
	}
	b.bump()
	for deadline := time.Now().Add(30 * time.Second); ; time.Sleep(100 * time.Millisecond) {
		if w, body := b.get(b.root, "If-None-Match", tag); w.StatusCode == http.StatusOK && strings.Contains(body, ">43<") {
			return
		}
		if time.Now().After(deadline) {
			b.t.Fatal("the page does not show the new epoch")
		}
	}
}
