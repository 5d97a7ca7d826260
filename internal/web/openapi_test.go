package web

import (
	"encoding/json"
	"fmt"
	"math"
	"net/http"
	"net/http/httptest"
	"net/url"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"rota/internal/pgtest"
)

// A document is as much of OpenAPI 3.1 as ours uses.
type document struct {
	Paths map[string]map[string]struct {
		Role        string `json:"x-role"`
		RequestBody *struct {
			Content map[string]struct{ Schema schema }
		}
		Responses map[string]struct {
			Content map[string]struct{ Schema schema }
		}
	}
	Components struct{ Schemas map[string]schema }
}

// A schema is as much of JSON Schema as ours uses; others of its words fail the test.
type schema struct {
	Ref         string            `json:"$ref"`
	Type        any               `json:"type"`
	Format      string            `json:"format"`
	Enum        []any             `json:"enum"`
	Properties  map[string]schema `json:"properties"`
	Required    []string          `json:"required"`
	Additional  *bool             `json:"additionalProperties"`
	Items       *schema           `json:"items"`
	OneOf       []schema          `json:"oneOf"`
	Description string            `json:"description"`
	Minimum     *float64          `json:"minimum"`
	Maximum     *float64          `json:"maximum"`
}

func documented(t *testing.T) document {
	t.Helper()
	var d document
	decode(t, openAPIDocument, &d)
	return d
}

// check says what in v is not as the schema has it.
func (d document) check(s schema, v any, at string) []string {
	if s.Ref != "" {
		name := strings.TrimPrefix(s.Ref, "#/components/schemas/")
		known, found := d.Components.Schemas[name]
		if !found {
			return []string{at + ": no schema " + s.Ref}
		}
		return d.check(known, v, at)
	}
	if len(s.OneOf) > 0 {
		var all []string
		for _, one := range s.OneOf {
			wrong := d.check(one, v, at)
			if len(wrong) == 0 {
				return nil
			}
			all = append(all, wrong...)
		}
		return all
	}
	var types []string
	switch is := s.Type.(type) {
	case string:
		types = []string{is}
	case []any:
		for _, one := range is {
			types = append(types, one.(string))
		}
	}
	is := typeOf(v)
	if !slices.Contains(types, is) && !(is == "integer" && slices.Contains(types, "number")) {
		return []string{fmt.Sprintf("%s: it is %s (%v), and not %v", at, is, v, types)}
	}
	var wrong []string
	if len(s.Enum) > 0 && !slices.Contains(s.Enum, v) {
		wrong = append(wrong, fmt.Sprintf("%s: %v is none of %v", at, v, s.Enum))
	}
	switch v := v.(type) {
	case string:
		if _, err := time.Parse(time.RFC3339Nano, v); s.Format == "date-time" && err != nil {
			wrong = append(wrong, fmt.Sprintf("%s: %v", at, err))
		}
	case []any:
		for i, each := range v {
			wrong = append(wrong, d.check(*s.Items, each, fmt.Sprintf("%s[%d]", at, i))...)
		}
	case map[string]any:
		for _, name := range s.Required {
			if _, found := v[name]; !found {
				wrong = append(wrong, at+"."+name+" is missing")
			}
		}
		for name, each := range v {
			if of, known := s.Properties[name]; known {
				wrong = append(wrong, d.check(of, each, at+"."+name)...)
			} else if s.Additional != nil && !*s.Additional {
				wrong = append(wrong, at+"."+name+" is in no schema")
			}
		}
	}
	return wrong
}

func typeOf(v any) string {
	switch v := v.(type) {
	case nil:
		return "null"
	case bool:
		return "boolean"
	case string:
		return "string"
	case []any:
		return "array"
	case map[string]any:
		return "object"
	case float64:
		if v == math.Trunc(v) {
			return "integer"
		}
		return "number"
	}
	return "unknown"
}

// Each route of the API with each of its methods is in the document, with its role, and the other way.
func TestTheDocumentHasTheRoutesThatThereAre(t *testing.T) {
	t.Parallel()
	d := documented(t)
	inDocument := map[string]string{}
	for path, methods := range d.Paths {
		for method, op := range methods {
			inDocument[strings.ToUpper(method)+" "+apiPath+path] = op.Role
		}
	}
	walkRoutes(t, guarded(t, pgtest.New(t), Access{}), func(method, pattern string) {
		if !strings.HasPrefix(pattern, apiPath) {
			return
		}
		route := method + " " + pattern
		role, found := inDocument[route]
		if !found || role != table[route].String() {
			t.Errorf("%s is for %s; the document has %q", route, table[route], role)
		}
		delete(inDocument, route)
	})
	for route := range inDocument {
		t.Errorf("the document has %s, which there is not", route)
	}
}

// answersSQL gives every list something of everything.
var answersSQL = []string{
	`INSERT INTO leadership (job_name, owner, expires_at, epoch) VALUES ('job', 'pod-1/a', clock_timestamp() + interval '1 hour', 41)`,
	`UPDATE leadership SET epoch = 42`,
	`INSERT INTO leadership (job_name, owner, expires_at, epoch) VALUES ('another', 'x', 'infinity', 1), ('third', 'x', 'epoch', 1)`,
	`INSERT INTO replicas (id, host, pid, version, started_at, seen_at, expires_at)
	 VALUES ('pod-1/a', 'pod-1', 4711, 'v9', clock_timestamp(), clock_timestamp(), clock_timestamp() + interval '1 hour')`,
	`INSERT INTO progress (lease, last_tick, schedule) VALUES ('job', clock_timestamp() - interval '1 hour', 'every 1m')`,
	`INSERT INTO pauses (job, reason, paused_by, until) VALUES ('another', 'a reason', 'ana', '2999-01-01Z')`,
	`INSERT INTO requests (kind, job, lease, args, asked_by, done_at, result) VALUES
	 ('run', 'job', 'job', '{"Limit": 1}', 'ana', clock_timestamp(), 'run 1'), ('run', 'job', 'job', '{"Limit": 1}', 'ana', NULL, NULL)`,
	`INSERT INTO runs (lease, job, tick, epoch, owner, started_at, ended_at, outcome, error, request_id, first_tick, ticks, log) VALUES
	 ('job', 'job', '2026-01-01 10:00Z', 42, 'pod-1/a', clock_timestamp(), clock_timestamp(), 'success', NULL, 1, NULL, 1, 'a line'),
	 ('job', 'job', '2026-01-01 10:01Z', 42, 'pod-1/a', clock_timestamp(), clock_timestamp(), 'missed', 'why', NULL, '2026-01-01 10:00Z', 2, NULL),
	 ('job', 'job', '2026-01-01 10:02Z', 42, 'pod-1/a', clock_timestamp(), NULL, NULL, NULL, NULL, NULL, 1, NULL)`,
	`INSERT INTO audit (actor, via, action, job, detail) VALUES ('ana', 'cli', 'run', 'job', '{"args": {}}'), ('ana', 'page', 'drain', NULL, NULL)`,
}

// Every answer is as the document has it, those that refuse too.
func TestTheAnswersAreAsTheDocumentHasThem(t *testing.T) {
	t.Parallel()
	db := pgtest.New(t)
	for _, sql := range answersSQL {
		run(t, db, sql)
	}
	d, s := documented(t), guarded(t, db, Access{Listen: "127.0.0.1:8080"})
	local := caller{from: "127.0.0.1:4711"}
	until(t, viaCaller{s.router, local}, "/api/v1/jobs", func(w *httptest.ResponseRecorder) bool { return w.Code == http.StatusOK })
	asked := map[string]bool{}
	for _, tt := range []struct{ method, path, address, body string }{
		{"get", "/leases", "/leases?limit=1", ""},
		{"get", "/leases", "/leases?after=job", ""},
		{"get", "/leases", "/leases?limit=0", ""},
		{"get", "/jobs", "/jobs", ""},
		{"get", "/jobs/{job}", "/jobs/job", ""},
		{"get", "/jobs/{job}", "/jobs/nothing", ""},
		{"get", "/replicas", "/replicas", ""},
		{"get", "/runs", "/runs?limit=1", ""},
		{"get", "/runs", "/runs?outcome=great", ""},
		{"get", "/runs", "/runs?job=%ff", ""},
		{"get", "/runs/{id}", "/runs/1", ""},
		{"get", "/runs/{id}", "/runs/99", ""},
		{"get", "/requests", "/requests", ""},
		{"get", "/events", "/events", ""},
		{"get", "/events", "/events?kind=great", ""},
		{"get", "/audit", "/audit?limit=1", ""},
		{"get", "/openapi.json", "/openapi.json", ""},
		{"post", "/jobs/{job}/run", "/jobs/job/run", `{"key": "a", "reason": "b"}`},
		{"post", "/jobs/{job}/run", "/jobs/job/run", `{"args": {"x": 1}}`},
		{"post", "/jobs/{job}/run", "/jobs/%ff/run", `{}`},
		{"post", "/requests/{request}/withdraw", "/requests/3/withdraw", `{"reason": "b"}`},
		{"post", "/jobs/{job}/pause", "/jobs/job/pause", `{"reason": "b", "until": "2999-01-01T00:00:00Z"}`},
		{"post", "/jobs/{job}/pause", "/jobs/job/pause", `{}`},
		{"post", "/jobs/{job}/pause", "/jobs/job/pause", `{"reason": "b", "untl": "2999-01-01T00:00:00Z"}`},
		{"post", "/pause", "/pause", `{"reason": "b", "typed": "all"}`},
		{"post", "/jobs/{job}/resume", "/jobs/job/resume", `{"reason": "b"}`},
		{"post", "/resume", "/resume", `{"reason": "b"}`},
		{"post", "/runs/{run}/cancel", "/runs/3/cancel", `{"reason": "b"}`},
		{"post", "/leases/{lease}/step-down", "/leases/job/step-down", `{"reason": "b"}`},
		{"post", "/leases/{lease}/revoke", "/leases/job/revoke", `{"reason": "b", "typed": "job"}`},
		{"post", "/replicas/{id}/drain", "/replicas/pod-1/drain", `{"reason": "b"}`},
		{"post", "/replicas/{name}/{rest}/drain", "/replicas/pod-1/a/drain", `{"reason": "b"}`},
	} {
		op := d.Paths[tt.path][tt.method]
		w := local.ask(s.router, strings.ToUpper(tt.method), apiPath+tt.address, tt.body)
		answer, known := op.Responses[fmt.Sprint(w.Code)]
		if !known {
			answer = op.Responses["default"]
			if w.Code < 400 || w.Code >= 500 {
				t.Errorf("%s %s: %d\n%s", tt.method, tt.address, w.Code, w.Body)
			}
		} else {
			asked[tt.method+tt.path] = true
		}
		content, known := answer.Content[w.Header().Get("Content-Type")]
		if !known {
			t.Errorf("%s %s: %d with %s", tt.method, tt.address, w.Code, w.Header().Get("Content-Type"))
			continue
		}
		var v any
		decode(t, w.Body.Bytes(), &v)
		for _, wrong := range d.check(content.Schema, v, tt.address) {
			t.Errorf("%s: %s", tt.method, wrong)
		}
		if op.RequestBody != nil && w.Code < 400 {
			decode(t, []byte(tt.body), &v)
			for _, wrong := range d.check(op.RequestBody.Content[kindJSON].Schema, v, "body of "+tt.address) {
				t.Error(wrong)
			}
		}
	}
	for path, methods := range d.Paths {
		for method := range methods {
			if !asked[method+path] {
				t.Errorf("%s %s was not answered as it is meant to be", method, path)
			}
		}
	}
}

// The checker itself must not nod.
func TestTheCheckerFindsWhatIsWrong(t *testing.T) {
	t.Parallel()
	d := documented(t)
	good := `{"job": "a", "reason": "b", "by": "c", "at": "2026-01-01T00:00:00Z", "until": null}`
	for text, wrong := range map[string]bool{
		good:                                                         false,
		strings.Replace(good, `"a"`, `1`, 1):                         true,
		strings.Replace(good, `"a"`, `null`, 1):                      true,
		strings.Replace(good, `"job"`, `"jab"`, 1):                   true,
		strings.Replace(good, `2026-01-01T`, `yesterday `, 1):        true,
		strings.Replace(good, `"until": null`, `"until": "soon"`, 1): true,
		`[]`: true,
	} {
		var v any
		if err := json.Unmarshal([]byte(text), &v); err != nil {
			t.Fatal(err)
		}
		if found := d.check(schema{Ref: "#/components/schemas/Pause"}, v, "it"); (len(found) > 0) != wrong {
			t.Errorf("%s: %v", text, found)
		}
	}
	// Of the words of JSON Schema, the document uses those that the checker knows.
	for _, word := range []string{"anyOf", "allOf", "pattern", "nullable", "minLength", "const", "patternProperties"} {
		if regexp.MustCompile(`"` + word + `":`).Match(openAPIDocument) {
			t.Errorf("the document uses %s, which the checker does not know", word)
		}
	}
}

func TestListsAreTaggedAndComeInParts(t *testing.T) {
	t.Parallel()
	db := pgtest.New(t)
	for _, sql := range answersSQL {
		run(t, db, sql)
	}
	h := serve(db)
	for _, address := range []string{"/api/v1/runs", "/api/v1/runs/1", "/api/v1/audit", "/api/v1/requests", "/api/v1/events", "/api/v1/openapi.json"} {
		first := get(t, h, address)
		again := ask(h, "GET", address, "If-None-Match", first.Header().Get("ETag"))
		if again.Code != http.StatusNotModified || first.Header().Get("ETag") == "" {
			t.Errorf("%s: %d, tag %q", address, again.Code, first.Header().Get("ETag"))
		}
	}
	tag := get(t, h, "/api/v1/audit").Header().Get("ETag")
	run(t, db, `INSERT INTO audit (actor, via, action) VALUES ('bo', 'cli', 'run')`)
	if w := ask(h, "GET", "/api/v1/audit", "If-None-Match", tag); w.Code != http.StatusOK {
		t.Errorf("with another line: %d", w.Code)
	}
	var names []string
	for after, parts := "", 0; parts < 10; parts++ {
		var part struct {
			Leases []struct{ Name string }
			Next   *string `json:"next_after"`
		}
		decode(t, get(t, h, "/api/v1/leases?limit=2&after="+after).Body.Bytes(), &part)
		for _, l := range part.Leases {
			names = append(names, l.Name)
		}
		if part.Next == nil {
			break
		}
		after = *part.Next
	}
	if fmt.Sprint(names) != "[another job third]" {
		t.Errorf("in parts: %v", names)
	}
}

// Every list comes in parts that leave nothing out and say nothing twice.
func TestReplicasRequestsAndEventsComeInParts(t *testing.T) {
	t.Parallel()
	db := pgtest.New(t)
	run(t, db, `INSERT INTO leadership (job_name, owner, expires_at, epoch) SELECT 'job-' || i, 'a/1', clock_timestamp() + interval '1 hour', 1 FROM generate_series(1, 5) i`)
	run(t, db, `INSERT INTO replicas (id, host, pid, version, started_at, seen_at, expires_at)
		SELECT 'pod-' || i || '/1', 'pod', 1, 'v', clock_timestamp(), clock_timestamp(), clock_timestamp() + CASE WHEN i > 2 THEN interval '1 hour' ELSE '-1 second' END FROM generate_series(1, 5) i`)
	run(t, db, `INSERT INTO requests (kind, job, lease, asked_by) SELECT 'run', 'job-1', 'job-1', 'ana' FROM generate_series(1, 5)`)
	h := serve(db)
	for list, from := range map[string]string{"replicas": "after", "requests": "after", "events": "before"} {
		var whole, parts []any
		read := func(question string) (all []any, next any) {
			var answer map[string]any
			decode(t, get(t, h, apiPath+"/"+list+question).Body.Bytes(), &answer)
			all, _ = answer[list].([]any)
			return all, answer["next_"+from]
		}
		whole, next := read("")
		if len(whole) < 5 || next != nil {
			t.Errorf("%s: %d at once, then %v", list, len(whole), next)
		}
		question := "?limit=2"
		for range 10 {
			part, next := read(question)
			if parts = append(parts, part...); next == nil {
				break
			}
			if len(part) != 2 {
				t.Errorf("%s%s: %d", list, question, len(part))
			}
			question = fmt.Sprintf("?limit=2&%s=%s", from, url.QueryEscape(fmt.Sprint(next)))
		}
		if fmt.Sprint(parts) != fmt.Sprint(whole) {
			t.Errorf("%s in parts:\n%v\nat once:\n%v", list, parts, whole)
		}
	}
}

func TestWhatIsNoQuestionIsRefused(t *testing.T) {
	t.Parallel()
	h := serve(pgtest.New(t))
	for _, address := range []string{
		"/runs?job=%ff", "/runs?job=a%00b", "/runs?outcome=%ff", "/audit?job=%ff", "/audit?actor=%ff", "/runs?limit=0", "/runs?limit=-1", "/runs?limit=1001",
		"/audit?limit=0", "/leases?limit=0", "/leases?limit=1001", "/jobs?after=%ff", "/runs?befor=1", "/runs?job=a&job=b", "/requests?x=1", "/requests?after=x", "/requests?limit=1001", "/replicas?limit=0", "/replicas?after=nobody", "/events?limit=0", "/events?limit=1001", "/events?before=x", "/events?lease=%ff",
	} {
		w := ask(h, "GET", apiPath+address)
		if w.Code != http.StatusBadRequest || w.Header().Get("Content-Type") != "application/problem+json" {
			t.Errorf("%s: %d %s", address, w.Code, w.Body)
		}
	}
}
