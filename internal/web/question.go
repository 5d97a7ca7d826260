package web

import (
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"unicode/utf8"

	"github.com/go-chi/chi/v5"
)

// questions are the parameters that the address of each page, form and list may have. What is not
// named takes none, and neither does an order, whose body says what it wants.
var questions = map[string][]string{
	"/":                             {"show", "q", "page"},
	"/jobs/{job}":                   {"outcome", "before"},
	"/events":                       {"kind", "lease", "actor", "before"},
	"/jobs/{job}/run":               {"back", "shard"},
	"/jobs/{job}/pause":             {"back"},
	"/jobs/{job}/resume":            {"back"},
	"/pause":                        {"back"},
	"/resume":                       {"back"},
	"/leases/{lease}/step-down":     {"back"},
	"/leases/{lease}/revoke":        {"back"},
	"/runs/{run}/cancel":            {"back"},
	"/requests/{request}/withdraw":  {"back"},
	"/replicas/{id}/drain":          {"back"},
	"/replicas/{name}/{rest}/drain": {"back"},
	apiPath + "/leases":             {"after", "limit"},
	apiPath + "/jobs":               {"after", "limit"},
	apiPath + "/replicas":           {"after", "limit"},
	apiPath + "/runs":               {"job", "outcome", "before", "limit"},
	apiPath + "/requests":           {"after", "limit"},
	apiPath + "/events":             {"kind", "lease", "actor", "before", "limit"},
	apiPath + "/audit":              {"job", "actor", "before", "limit"},
}

// understand lets through what can be meant. What is behind it may rely on names that are text, and
// on parameters that it knows, each given once.
func (s *server) understand(next http.Handler) http.Handler {
	return s.handle(func(w http.ResponseWriter, r *http.Request) error {
		if err := understood(r); err != nil {
			return err
		}
		next.ServeHTTP(w, r)
		return nil
	})
}

// understood refuses a path that can name nothing, and a question that nobody answers.
func understood(r *http.Request) error {
	if err := plausible(r); err != nil {
		return err
	}
	var known []string
	if r.Method != http.MethodPost {
		known = questions[chi.RouteContext(r.Context()).RoutePattern()]
	}
	given, err := pairs(r.URL.RawQuery)
	if err == nil {
		err = onlyOnce(given, known, "parameter")
	}
	if err != nil {
		return badQuestion(err)
	}
	return nil
}

// plausible refuses a path whose number is none, or whose name is no text.
func plausible(r *http.Request) error {
	params := chi.RouteContext(r.Context()).URLParams
	for i, key := range params.Keys {
		text := param(r, key)
		kind := pathNames[key]
		if key == "id" && strings.Contains(chi.RouteContext(r.Context()).RoutePattern(), "/replicas/") {
			kind = "replica"
		}
		numbered := kind == "run" || kind == "request"
		n, err := strconv.ParseInt(params.Values[i], 10, 64)
		switch {
		case numbered && (err != nil || n < 1):
			return refusal{http.StatusNotFound, fmt.Sprintf("There is no %s %q.", kind, clip(text, 100)), "A " + kind + " goes by a number, which the lists show."}
		case !utf8.ValidString(text) || strings.ContainsRune(text, 0):
			return refusal{http.StatusNotFound, fmt.Sprintf("There is no %s %q.", kind, clip(text, 100)), "That is no text in UTF-8, as every name is; the lists show what there is."}
		}
	}
	return nil
}

// pathNames is what the parts of a path name.
var pathNames = map[string]string{
	"job": "job", "lease": "lease", "run": "run", "request": "request", "id": "run", "name": "replica", "rest": "replica",
	"replica": "replica", "act": "act", "file": "file", "*": "page",
}

// pairs reads what stands behind the question mark of an address, or in the body of a form.
func pairs(raw string) (url.Values, error) {
	values := url.Values{}
	var errs []error
	for pair := range strings.SplitSeq(raw, "&") {
		if strings.Contains(pair, ";") {
			errs = append(errs, fmt.Errorf("%q: a semicolon parts nothing here; put & between parameters, and %%3B for a semicolon", clip(pair, 60)))
			continue
		}
		name, value, _ := strings.Cut(pair, "=")
		plainName, err := url.QueryUnescape(name)
		plainValue, wrong := url.QueryUnescape(value)
		if err != nil || wrong != nil {
			errs = append(errs, fmt.Errorf("%q: a percent sign stands before two hexadecimal digits; %%25 is one by itself", clip(pair, 60)))
			continue
		}
		if pair != "" {
			values.Add(plainName, plainValue)
		}
	}
	return values, errors.Join(errs...)
}

// onlyOnce refuses what nobody asks for, what is given twice, and what is no text.
func onlyOnce(values url.Values, known []string, kind string) error {
	var errs []error
	for _, name := range sortedNames(values) {
		given := values[name]
		switch {
		case !slices.Contains(known, name) && len(known) == 0:
			errs = append(errs, fmt.Errorf("%q: there is no such %s, nor any other", clip(name, 40), kind))
		case !slices.Contains(known, name):
			errs = append(errs, fmt.Errorf("%q: there is no such %s; there are: %s", clip(name, 40), kind, strings.Join(known, ", ")))
		case len(given) > 1:
			errs = append(errs, fmt.Errorf("%s: it is given %d times", name, len(given)))
		case !utf8.ValidString(given[0]), strings.ContainsRune(given[0], 0):
			errs = append(errs, fmt.Errorf("%s %q: it must be UTF-8, without zero bytes", name, clip(given[0], 40)))
		}
	}
	return errors.Join(errs...)
}

func sortedNames(values url.Values) []string {
	names := make([]string, 0, len(values))
	for name := range values {
		names = append(names, name)
	}
	slices.Sort(names)
	return names
}

// params are a question's that was understood, with all that is wrong with their values.
type params struct {
	url.Values
	err error
}

func paramsOf(r *http.Request) params { return params{Values: r.URL.Query()} }

// number is zero where it is not given.
func (p *params) number(name string) int64 {
	text := p.Get(name)
	if text == "" {
		return 0
	}
	n, err := strconv.ParseInt(text, 10, 64)
	if err != nil || n < 1 {
		p.err = errors.Join(p.err, fmt.Errorf("%s %q: it must be a positive whole number", name, clip(text, 40)))
	}
	return n
}

func badQuestion(err error) error {
	return refusal{http.StatusBadRequest, "This cannot be asked for: " + strings.ReplaceAll(err.Error(), "\n", "; ") + ".", "Nothing was read. Correct the address, or begin anew with the list."}
}
