package registry

import (
	"encoding/json"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

type level string

func (l *level) UnmarshalText(b []byte) error {
	*l = level(strings.ToUpper(string(b)))
	return nil
}

type limits struct {
	Timeout  time.Duration
	Max      int8 `json:"max_bytes"`
	Share    float64
	Venue    string
	Dry      bool
	Pauses   []time.Duration
	Names    []string
	Weights  map[string]int
	Since    time.Time
	Level    level
	Inner    struct{ Depth, Width int }
	Optional *int
	Secret   string `json:"-"`
	hidden   int
}

func withLimits() Job {
	j := good("x")
	j.Args = limits{
		Timeout: time.Second, Max: 7, Names: []string{"a", "b"}, Weights: map[string]int{"a": 1},
		Inner: struct{ Depth, Width int }{3, 4}, hidden: 5,
	}
	return j
}

func TestArgumentsAreLaidOverThoseOfTheJob(t *testing.T) {
	t.Parallel()
	one := 1
	for _, c := range []struct {
		object string
		change func(*limits)
	}{
		{``, func(*limits) {}},
		{`{}`, func(*limits) {}},
		{`{"Timeout": "90s"}`, func(l *limits) { l.Timeout = 90 * time.Second }},
		{`{"timeout": 2000000000}`, func(l *limits) { l.Timeout = 2 * time.Second }},
		{`{"timeout": 0}`, func(l *limits) { l.Timeout = 0 }},
		{`{"max_bytes": 9, "share": 0.5, "dry": true}`, func(l *limits) { l.Max, l.Share, l.Dry = 9, 0.5, true }},
		{`{"Max": 9}`, func(l *limits) { l.Max = 9 }},
		{`{"venue": "XETR"}`, func(l *limits) { l.Venue = "XETR" }},
		{`{"pauses": ["1s", 2000000000]}`, func(l *limits) { l.Pauses = []time.Duration{time.Second, 2 * time.Second} }},
		{`{"names": ["c"]}`, func(l *limits) { l.Names = []string{"c"} }},
		{`{"names": null}`, func(l *limits) { l.Names = nil }},
		{`{"weights": {"b": 2}}`, func(l *limits) { l.Weights = map[string]int{"b": 2} }},
		{`{"since": "2026-07-01T00:00:00Z"}`, func(l *limits) { l.Since = time.Date(2026, 7, 1, 0, 0, 0, 0, time.UTC) }},
		{`{"level": "warn"}`, func(l *limits) { l.Level = "WARN" }},
		{`{"inner": {"width": 5}}`, func(l *limits) { l.Inner.Width = 5 }},
		{`{"optional": 1}`, func(l *limits) { l.Optional = &one }},
	} {
		j := withLimits()
		want := withLimits().Args.(limits)
		c.change(&want)
		got, err := j.WithArgs(json.RawMessage(c.object))
		if err != nil {
			t.Errorf("%s: %v", c.object, err)
			continue
		}
		if diff := cmp.Diff(want, got, cmp.AllowUnexported(limits{})); diff != "" {
			t.Errorf("%s: %s", c.object, diff)
		}
		if diff := cmp.Diff(withLimits().Args, j.Args, cmp.AllowUnexported(limits{})); diff != "" {
			t.Errorf("%s changes the job's own: %s", c.object, diff)
		}
	}
}

// What is shown of arguments can be given back: durations with their units, wherever they stand.
func TestArgumentsAreWrittenAsTheyAreGiven(t *testing.T) {
	type part struct{ Wait time.Duration }
	type args struct {
		Wait   time.Duration `json:"wait"`
		Pauses []time.Duration
		Part   part
		Names  []string
		At     time.Time
		hidden int
		Not    int `json:"-"`
	}
	given := args{Wait: 90 * time.Second, Pauses: []time.Duration{time.Second, 0}, Part: part{time.Minute}, Names: []string{`a"b`}, hidden: 1, Not: 2}
	text := string(Job{Args: given}.ArgsJSON())
	const want = `{"wait":"1m30s","Pauses":["1s","0s"],"Part":{"Wait":"1m"},"Names":["a\"b"],"At":"0001-01-01T00:00:00Z"}`
	if text != want {
		t.Errorf("%s, want %s", text, want)
	}
	back, err := Job{Args: args{hidden: 1, Not: 2}}.WithArgs([]byte(text))
	if err != nil || !reflect.DeepEqual(back, given) {
		t.Errorf("given back they are %+v, %v", back, err)
	}
	for _, none := range []any{nil, struct{}{}, struct{ hidden int }{1}} {
		if text := (Job{Args: none}).ArgsJSON(); text != nil {
			t.Errorf("the arguments of a job with none: %s", text)
		}
	}
}

func TestArgumentThatDoesNotFitIsRefusedInOneLine(t *testing.T) {
	t.Parallel()
	for object, want := range map[string][]string{
		`{"timeot": "1s"}`:                {`"timeot"`, "there are: Timeout, max_bytes, Share"},
		`{"hidden": 1}`:                   {`"hidden"`},
		`{"secret": "x"}`:                 {`"secret"`},
		`{"-": "x"}`:                      {`"-"`},
		`{"timeout": "soon"}`:             {"Timeout", `"soon"`, "30s"},
		`{"timeout": 5}`:                  {"Timeout", "5", "unit"},
		`{"timeout": true}`:               {"Timeout", "true", "unit"},
		`{"timeout": null}`:               {"Timeout", "null", "leave it out"},
		`{"pauses": ["1s", "x"]}`:         {"Pauses", `"x"`, "30s"},
		`{"pauses": "1s"}`:                {"Pauses", `"1s"`, "a list"},
		`{"max_bytes": 300}`:              {"max_bytes", "300", "int8"},
		`{"max_bytes": 1.5}`:              {"max_bytes", "1.5", "whole number"},
		`{"max_bytes": "1"}`:              {"max_bytes", `"1"`, "whole number"},
		`{"venue": 7}`:                    {"Venue", "7", "quotes"},
		`{"dry": "yes"}`:                  {"Dry", `"yes"`, "true or false"},
		`{"names": [1]}`:                  {"Names", "[1]", "a list"},
		`{"since": "today"}`:              {"Since", "today"},
		`{"inner": {"deep": 1}}`:          {"Inner", `"deep"`, "Depth, Width"},
		`{"inner": 5}`:                    {"Inner", "5", "object"},
		`{"timeout": "1s", "Timeout": 0}`: {"Timeout", "twice"},
		`{"dry": true, "dry": false}`:     {"Dry", "twice"},
		`[1]`:                             {"[1]", "JSON object"},
		`null`:                            {"null", "JSON object"},
		`{"dry": true} x`:                 {"no JSON"},
		`{`:                               {"no JSON"},
	} {
		got, err := withLimits().WithArgs(json.RawMessage(object))
		if err == nil || got != nil {
			t.Errorf("%s is accepted: %+v", object, got)
			continue
		}
		for _, w := range want {
			if !strings.Contains(err.Error(), w) {
				t.Errorf("%s: %q does not say %q", object, err, w)
			}
		}
		if strings.Contains(err.Error(), "\n") {
			t.Errorf("%s: more than a line: %v", object, err)
		}
	}
}

func TestEveryWrongArgumentIsNamedAtOnce(t *testing.T) {
	t.Parallel()
	_, err := withLimits().WithArgs(json.RawMessage(`{"a": 1, "dry": 1, "inner": {"b": 1, "depth": "x"}}`))
	if err == nil || strings.Count(err.Error(), "\n") != 3 || strings.Count(err.Error(), "Inner: ") != 2 {
		t.Errorf("want four lines, two of Inner:\n%v", err)
	}
}

func TestJobWithoutArgumentsTakesNone(t *testing.T) {
	t.Parallel()
	if got, err := good("x").WithArgs(json.RawMessage(` {} `)); got != nil || err != nil {
		t.Errorf("got %v, %v", got, err)
	}
	if _, err := good("x").WithArgs(json.RawMessage(`{"a": 1}`)); err == nil || !strings.Contains(err.Error(), "takes none") {
		t.Errorf("error is %v", err)
	}
}
