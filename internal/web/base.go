package web

import (
	"net/http"
	"net/url"
	"strings"

	"github.com/go-chi/chi/v5"
)

// root is the address of the first page as seen from the one that was asked for. Links are relative,
// so that they hold under any prefix, whether a proxy keeps it or strips it; only the router must see
// paths without it.
func root(r *http.Request) string {
	depth := strings.Count(r.URL.EscapedPath(), "/") - 1
	if depth <= 0 {
		return "./"
	}
	return strings.Repeat("../", depth)
}

// link is what the templates call link: it makes a path of ours, such as "/jobs/a?page=2", an address
// for a page whose root is this one.
func link(root string) func(path string) string {
	return func(path string) string { return root + strings.TrimPrefix(path, "/") }
}

// param is a part of the path, whatever a name in it is made of.
func param(r *http.Request, name string) string {
	value := chi.URLParam(r, name)
	if r.URL.RawPath == "" {
		return value
	}
	if plain, err := url.PathUnescape(value); err == nil {
		return plain
	}
	return value
}

// jobPath is the path of a job's page. No name leads out of it.
func jobPath(job string) string { return "/jobs/" + segment(job) }

// segment makes a name one segment of a path. Browsers take a segment of dots for a step, escaped or not.
func segment(name string) string {
	if name == "." || name == ".." {
		name = "no such name: " + name
	}
	return url.PathEscape(name)
}

// rights are what the one who looks may do.
type rights struct{ Operate, Admin bool }
