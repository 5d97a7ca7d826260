package web

import (
	"bytes"
	"embed"
	"encoding/json"
	"fmt"
	"hash/fnv"
	"html/template"
	"net/http"
	"slices"
	"strconv"
	"strings"
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
	r.Get("/jobs/{job}", s.handle(s.job))
	r.Get("/jobs/{job}/runs/{id}", s.handle(s.run))
	r.Get("/replicas", s.handle(s.replicas))
	r.Get("/events", s.handle(s.events))
	r.Get("/about", s.handle(s.about))
	for path, form := range forms {
		r.Get(path, s.handle(s.confirm(form)))
	}
}

// Colors are those that the band above the header may have: each is readable in both themes.
var Colors = []string{"red", "amber", "green", "blue", "violet", "grey"}

// names are the pages, each with a template of that name.
var names = []string{"jobs", "job", "run", "replicas", "events", "about", "form", "error"}

// shared are the templates that every page may use.
var shared = []string{"templates/layout.html", "templates/parts.html", "templates/stage.html"}

// parsed are the templates, each with the layout around it. They are never executed: what has been can
// no longer be cloned.
var parsed = func() map[string]*template.Template {
	all := map[string]*template.Template{}
	for _, name := range names {
		t := template.New(name).Funcs(template.FuncMap{"link": link("./"), "plural": plural})
		all[name] = template.Must(t.ParseFS(templatesFS, append([]string{"templates/" + name + ".html"}, shared...)...))
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
	Who    string     // empty: nobody is asked
	Notice string     // what became of the order that led here
	Scene  *sceneView // what dev plays; nil: nothing
	Body   any

	ReadOnly string // why nobody may act here; empty: some may
}

// A head is what stands around the body.
type head struct {
	Title, Environment, Color, Version string
	Section                            string // of the navigation
	Style, Script, Early, Icon         string

	Live  bool // a page over a snapshot, which the script keeps current
	AsOf  *instant
	Stale bool
	Age   string
	AgeMS int64

	root     string
	readOnly string
}

func (s *server) head(r *http.Request, title string) head {
	static := func(name string) string { return "/static/" + assets[name].address }
	return head{
		Title: title, Environment: s.Environment, Color: s.EnvironmentColor, Version: s.Version, Section: section(r.URL.Path),
		Style: static("rota.css"), Script: static("rota.js"), Early: static("early.js"), Icon: static("rota.svg"), root: root(r), readOnly: s.Gate.ReadOnly,
	}
}

// section is the part of the navigation that a path belongs to.
func section(path string) string {
	first, _, _ := strings.Cut(strings.TrimPrefix(path, "/"), "/")
	if first == "" {
		first = "jobs"
	}
	return first
}

// over makes the head one of a page over snap.
func (h head) over(snap status.Snapshot) head {
	h.Live, h.Stale = true, snap.Stale
	h.AsOf = at(snap.AsOf)
	h.Age, h.AgeMS = duration(snap.Age), snap.Age.Milliseconds()
	return h
}

// Bearings are what a view needs to know of the request.
type bearings struct {
	here string // the path that was asked for, which forms lead back to
	can  rights
}

func bearingsOf(r *http.Request) bearings {
	b := bearings{here: r.URL.EscapedPath()}
	if r.URL.RawQuery != "" {
		b.here += "?" + r.URL.RawQuery
	}
	b.can, _ = rightsOf(r)
	return b
}

// render makes a page, or the part of it that the script asks for.
func render(r *http.Request, name string, h head, scene *sceneView, body any) ([]byte, error) {
	f := frame{Head: h, Notice: noticeOf(r), Scene: scene, Body: body, ReadOnly: h.readOnly}
	f.Can, f.Who = rightsOf(r)
	t, err := bind(name, h.root)
	var b bytes.Buffer
	if err == nil {
		part := "layout"
		if isPart(r) {
			part = "live"
		}
		err = t.ExecuteTemplate(&b, part, f)
	}
	if err != nil {
		return nil, fmt.Errorf("render %s: %w", name, err)
	}
	return b.Bytes(), nil
}

// isPart says that the script asks, which has the rest of the page already.
func isPart(r *http.Request) bool { return r.Header.Get("Rota-Part") == "main" }

// page answers with a page over snap and what else the tag stands for. However many ask for the same,
// it is made once.
func (s *server) page(w http.ResponseWriter, r *http.Request, name, title string, snap status.Snapshot, tag string, view func(bearings) (any, error)) error {
	h := s.head(r, title).over(snap)
	snap.Tag += tag
	var scene Scene
	staged := s.Stage != nil && slices.Contains(stagePages, name)
	if staged {
		scene = s.Stage.Scene()
		snap.Tag += tagOf(scene)
	}
	const kind = "text/html; charset=utf-8"
	address := s.addressOf(r, snap)
	whole := tagAt(snap, address)
	if r.Header.Get("If-None-Match") == whole {
		deliver(w, r, snap, kind, whole, nil)
		return nil
	}
	made := s.press.sheet(address, imprintOf(whole, snap), snap, isPart(r), func() ([]byte, error) {
		b := bearingsOf(r)
		v, err := view(b)
		if err != nil {
			return nil, err
		}
		var shown *sceneView
		if staged {
			shown = sceneOf(scene, snap, b)
		}
		return render(r, name, h, shown, v)
	})
	if made.err != nil {
		return made.err
	}
	given := made.snap
	given.Age = time.Since(made.read)
	deliver(w, r, given, kind, made.tag, made.body)
	return nil
}

// send answers with what is made of snap, which it is not for who has it already.
func (s *server) send(w http.ResponseWriter, r *http.Request, snap status.Snapshot, kind string, make func() ([]byte, error)) error {
	tag := tagAt(snap, s.addressOf(r, snap))
	var body []byte
	if r.Header.Get("If-None-Match") != tag {
		var err error
		if body, err = make(); err != nil {
			return err
		}
	}
	deliver(w, r, snap, kind, tag, body)
	return nil
}

// deliver writes the answer. The tag is a weak one: it stands for what the rows say and not for how old
// that is, which every answer tells in its headers, a 304 too.
func deliver(w http.ResponseWriter, r *http.Request, snap status.Snapshot, kind, tag string, body []byte) {
	h := w.Header()
	h.Set("Content-Type", kind)
	h.Set("ETag", tag)
	h.Set("Rota-As-Of", snap.AsOf.UTC().Format(time.RFC3339Nano))
	h.Set("Rota-Age", strconv.FormatFloat(snap.Age.Seconds(), 'f', 3, 64))
	if snap.Stale {
		h.Set("Rota-Stale", "true")
	}
	http.ServeContent(w, r, "", time.Time{}, bytes.NewReader(body))
}

// tagAt is what tells an answer at an address from the next.
func tagAt(snap status.Snapshot, address uint64) string {
	return fmt.Sprintf(`W/"%s-%x"`, snap.Tag, address)
}

// addressOf differs where what is shown does not only differ by what the rows say: where they become
// stale, between builds, whose pages may look different, and between those who may do more and less.
func (s *server) addressOf(r *http.Request, snap status.Snapshot) uint64 {
	f := fnv.New64a()
	can, who := rightsOf(r)
	fmt.Fprintf(f, "%s %q %q %q %q %t %t %v %q %q", build, s.Version, s.Environment, s.EnvironmentColor, r.URL.RequestURI(), isPart(r), snap.Stale, can, who, noticeOf(r))
	return f.Sum64()
}

// An imprint tells pages apart, those that only time does too.
type imprint struct {
	tag  string
	asOf time.Time
	age  int64 // of what is stale, in seconds: what is not is made once
}

func imprintOf(tag string, snap status.Snapshot) imprint {
	i := imprint{tag: tag, asOf: snap.AsOf}
	if snap.Stale {
		i.age = int64(snap.Age / time.Second)
	}
	return i
}

// tagOf is a tag for what a page shows beside the snapshot.
func tagOf(shown ...any) string {
	f := fnv.New64a()
	if err := json.NewEncoder(f).Encode(shown); err != nil {
		return time.Now().String() // never the same
	}
	return fmt.Sprintf("-%x", f.Sum64())
}

// build differs between builds whose pages differ.
var build = func() string {
	f := fnv.New64a()
	for _, a := range []string{"rota.css", "rota.js", "early.js", "rota.svg"} {
		f.Write([]byte(assets[a].address))
	}
	for _, name := range append([]string{"layout", "parts", "stage"}, names...) {
		b, err := templatesFS.ReadFile("templates/" + name + ".html")
		if err != nil {
			panic(err) // embedded: cannot be missing
		}
		f.Write(b)
	}
	return fmt.Sprintf("%x", f.Sum64())
}()
