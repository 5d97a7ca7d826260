package web

import (
	"bytes"
	"embed"
	"fmt"
	"hash/fnv"
	"html/template"
	"net/http"
	"strconv"
	"strings"
	"time"

	"rota/internal/status"
)

//go:embed templates
var templatesFS embed.FS

// pages are the templates, each with the layout around it.
var pages = func() map[string]*template.Template {
	all := map[string]*template.Template{}
	for _, name := range []string{"jobs", "replicas", "error"} {
		all[name] = template.Must(template.ParseFS(templatesFS, "templates/layout.html", "templates/"+name+".html"))
	}
	return all
}()

// A head is what the layout needs of every page.
type head struct {
	Title, Environment, Version string
	Root                        string // from this page to the first, for every link is relative
	Path                        string
	Style, Script, Icon         string

	Live  bool // a page over a snapshot, which the script keeps current
	AsOf  *instant
	Stale bool
	Age   string
	AgeMS int64
}

func (s *server) head(r *http.Request, title string) head {
	root := strings.Repeat("../", max(0, strings.Count(r.URL.Path, "/")-1))
	if root == "" {
		root = "./"
	}
	return head{
		Title: title, Environment: s.Environment, Version: s.Version, Root: root, Path: r.URL.Path,
		Style:  root + "static/" + assets["rota.css"].address,
		Script: root + "static/" + assets["rota.js"].address,
		Icon:   root + "static/" + assets["rota.svg"].address,
	}
}

// over makes the head one of a page over snap.
func (h head) over(snap status.Snapshot) head {
	h.Live, h.Stale = true, snap.Stale
	h.AsOf = ago(snap.AsOf, snap.AsOf.Add(snap.Age))
	h.Age, h.AgeMS = duration(snap.Age), snap.Age.Milliseconds()
	return h
}

func render(name string, h head, body any) ([]byte, error) {
	var b bytes.Buffer
	err := pages[name].ExecuteTemplate(&b, "layout", struct {
		Head head
		Body any
	}{h, body})
	if err != nil {
		return nil, fmt.Errorf("render %s: %w", name, err)
	}
	return b.Bytes(), nil
}

// page answers with a page over snap, or with 304 where the caller has it already.
func (s *server) page(w http.ResponseWriter, r *http.Request, name, title string, snap status.Snapshot, body any) error {
	b, err := render(name, s.head(r, title).over(snap), body)
	if err != nil {
		return err
	}
	s.send(w, r, snap, "text/html; charset=utf-8", b)
	return nil
}

// send answers with what was made of snap. The tag is a weak one: it stands for what the rows say
// and not for how old that is, which every answer tells in its headers, a 304 too.
func (s *server) send(w http.ResponseWriter, r *http.Request, snap status.Snapshot, kind string, body []byte) {
	h := w.Header()
	h.Set("Content-Type", kind)
	h.Set("ETag", s.etag(r, snap))
	h.Set("Rota-As-Of", snap.AsOf.UTC().Format(time.RFC3339Nano))
	h.Set("Rota-Age", strconv.FormatFloat(snap.Age.Seconds(), 'f', 3, 64))
	if snap.Stale {
		h.Set("Rota-Stale", "true")
	}
	http.ServeContent(w, r, "", time.Time{}, bytes.NewReader(body))
}

// etag differs where the rows say something else, where they become stale, and between builds,
// whose pages may look different.
func (s *server) etag(r *http.Request, snap status.Snapshot) string {
	f := fnv.New64a()
	fmt.Fprintf(f, "%s %q %q %q %t", build, s.Version, s.Environment, r.URL.RequestURI(), snap.Stale)
	return fmt.Sprintf(`W/"%s-%x"`, snap.Tag, f.Sum64())
}

// build differs between builds whose pages differ.
var build = func() string {
	f := fnv.New64a()
	for _, a := range []string{"rota.css", "rota.js", "rota.svg"} {
		f.Write([]byte(assets[a].address))
	}
	for _, name := range []string{"layout", "jobs", "replicas", "error"} {
		b, err := templatesFS.ReadFile("templates/" + name + ".html")
		if err != nil {
			panic(err) // embedded: cannot be missing
		}
		f.Write(b)
	}
	return fmt.Sprintf("%x", f.Sum64())
}()
