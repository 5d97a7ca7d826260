package web

import (
	"bytes"
	"embed"
	"fmt"
	"hash/fnv"
	"html/template"
	"net/http"
	"strconv"
	"sync"
	"time"

	"github.com/go-chi/chi/v5"

	"rota/internal/status"
)

//go:embed templates
var templatesFS embed.FS

// pageRoutes are the pages. What they load is open to all.
func (s *server) pageRoutes(r chi.Router) {
	r.Get("/", s.handle(s.jobs))
	r.Get("/replicas", s.handle(s.replicas))
}

// names are the pages, each with a template of that name.
var names = []string{"jobs", "replicas", "error"}

// parsed are the templates, each with the layout around it. They are never executed: what has been can
// no longer be cloned.
var parsed = func() map[string]*template.Template {
	all := map[string]*template.Template{}
	for _, name := range names {
		t := template.New(name).Funcs(template.FuncMap{"link": link("./")})
		all[name] = template.Must(t.ParseFS(templatesFS, "templates/layout.html", "templates/"+name+".html"))
	}
	return all
}()

// bound are the templates by name and root, with the links of that root. There are few: deepest bounds them.
var bound sync.Map

const deepest = "../../../../../../"

func bind(name, root string) (*template.Template, error) {
	key := [2]string{name, root}
	if t, ok := bound.Load(key); ok {
		return t.(*template.Template), nil
	}
	t, err := parsed[name].Clone()
	if err != nil {
		return nil, err
	}
	t.Funcs(template.FuncMap{"link": link(root)})
	if len(root) <= len(deepest) {
		bound.Store(key, t)
	}
	return t, nil
}

// A frame is what the layout needs of every page.
type frame struct {
	Head   head
	Can    rights
	Who    string // empty: nobody is asked
	Notice string // what became of the order that led here
	Body   any
}

// A head is what stands around the body.
type head struct {
	Title, Environment, Version string
	Style, Script, Icon         string

	Live  bool // a page over a snapshot, which the script keeps current
	AsOf  *instant
	Stale bool
	Age   string
	AgeMS int64

	root string
}

func (s *server) head(r *http.Request, title string) head {
	static := func(name string) string { return "/static/" + assets[name].address }
	return head{
		Title: title, Environment: s.Environment, Version: s.Version,
		Style: static("rota.css"), Script: static("rota.js"), Icon: static("rota.svg"), root: root(r),
	}
}

// over makes the head one of a page over snap.
func (h head) over(snap status.Snapshot) head {
	h.Live, h.Stale = true, snap.Stale
	h.AsOf = ago(snap.AsOf, snap.AsOf.Add(snap.Age))
	h.Age, h.AgeMS = duration(snap.Age), snap.Age.Milliseconds()
	return h
}

func render(r *http.Request, name string, h head, body any) ([]byte, error) {
	f := frame{Head: h, Notice: noticeOf(r), Body: body}
	f.Can, f.Who = rightsOf(r)
	t, err := bind(name, h.root)
	var b bytes.Buffer
	if err == nil {
		err = t.ExecuteTemplate(&b, "layout", f)
	}
	if err != nil {
		return nil, fmt.Errorf("render %s: %w", name, err)
	}
	return b.Bytes(), nil
}

// page answers with a page over snap, or with 304 where the caller has it already.
func (s *server) page(w http.ResponseWriter, r *http.Request, name, title string, snap status.Snapshot, body any) error {
	b, err := render(r, name, s.head(r, title).over(snap), body)
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
	can, who := rightsOf(r)
	fmt.Fprintf(f, "%s %q %q %q %t %v %q %q", build, s.Version, s.Environment, r.URL.RequestURI(), snap.Stale, can, who, noticeOf(r))
	return fmt.Sprintf(`W/"%s-%x"`, snap.Tag, f.Sum64())
}

// build differs between builds whose pages differ.
var build = func() string {
	f := fnv.New64a()
	for _, a := range []string{"rota.css", "rota.js", "rota.svg"} {
		f.Write([]byte(assets[a].address))
	}
	for _, name := range append([]string{"layout"}, names...) {
		b, err := templatesFS.ReadFile("templates/" + name + ".html")
		if err != nil {
			panic(err) // embedded: cannot be missing
		}
		f.Write(b)
	}
	return fmt.Sprintf("%x", f.Sum64())
}()
