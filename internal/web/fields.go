package web

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math"
	"mime"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"
)

// The fields of a form, and of a body.
type given struct {
	Args   json.RawMessage // of the run: a JSON object
	Key    string          // that makes it safe to ask again
	Reason string          // for the audit
	Until  *time.Time      // when the pause ends by itself
	Above  int64           // an epoch that the next one must be above
	Epoch  int64           // of the term that is meant; zero: whichever there is
	Typed  string          // what has to be typed: all, or the name of the lease
	Shard  int             // of the job, from 1; zero: all
}

// set gives a field the value that a form has for it.
func (g *given) set(name, text string) error {
	switch name {
	case "args":
		g.Args = json.RawMessage(text)
	case "key":
		g.Key = text
	case "reason":
		g.Reason = text
	case "typed":
		g.Typed = text
	case "until":
		return g.setUntil(strings.TrimSpace(text))
	case "above":
		n, err := whole(name, text, math.MaxInt64)
		g.Above = n
		return err
	case "epoch":
		n, err := whole(name, text, math.MaxInt64)
		g.Epoch = n
		return err
	case "shard":
		n, err := whole(name, text, mostShards)
		g.Shard = int(n)
		return err
	}
	return nil
}

// mostShards is more than any job has.
const mostShards = 9999

func (g *given) setUntil(text string) error {
	if text == "" {
		return nil
	}
	for _, layout := range []string{time.RFC3339, "2006-01-02T15:04", "2006-01-02T15:04:05"} {
		t, err := time.Parse(layout, text)
		switch {
		case err != nil:
		case t.IsZero():
			return wrongField("until", text, "a time that is still to come")
		default:
			g.Until = &t
			return nil
		}
	}
	return wrongField("until", text, "a time with its zone, as in 2026-03-01T08:00:00Z")
}

// whole is zero for no text.
func whole(name, text string, most int64) (int64, error) {
	if text = strings.TrimSpace(text); text == "" {
		return 0, nil
	}
	n, err := strconv.ParseInt(text, 10, 64)
	if err != nil || n < 0 || n > most {
		return 0, wrongField(name, text, fmt.Sprintf("a whole number from 0 to %d", most))
	}
	return n, nil
}

func wrongField(name, value, must string) error {
	return refusal{http.StatusBadRequest, fmt.Sprintf("The field %s is %s: it must be %s.", name, quoted(value), must), "Nothing was done."}
}

// quoted is what was given, however long or strange it is, for a sentence.
func quoted(value string) string {
	return strconv.Quote(clip(strings.ToValidUTF8(value, "\uFFFD"), 100))
}

// readForm reads the fields of a form that the action takes. A time without a zone is in UTC, as the
// page says.
func readForm(r *http.Request, takes []string) (g given, err error) {
	if kind, _, _ := mime.ParseMediaType(r.Header.Get("Content-Type")); kind != "application/x-www-form-urlencoded" {
		return g, refusal{http.StatusUnsupportedMediaType, "This address takes forms.", "The API, below " + apiPath + ", takes JSON."}
	}
	b, err := io.ReadAll(r.Body)
	if err != nil {
		return g, unreadable(err)
	}
	r.PostForm, err = pairs(string(b))
	if r.Form = r.PostForm; err == nil {
		err = onlyOnce(r.PostForm, append(slices.Clone(takes), "back"), "field")
	}
	if err != nil {
		return g, refusal{http.StatusBadRequest, "The form cannot be read: " + strings.ReplaceAll(err.Error(), "\n", "; ") + ".", "Nothing was done."}
	}
	for _, name := range takes {
		err = errors.Join(err, g.set(name, r.PostForm.Get(name)))
	}
	return g, firstOf(err)
}

// readBody reads a JSON object with the fields that the action takes; no body at all is an empty one.
func readBody(r *http.Request, takes []string) (g given, err error) {
	b, err := io.ReadAll(r.Body)
	if err != nil {
		return g, unreadable(err)
	}
	if len(b) == 0 {
		return g, nil
	}
	if kind, _, _ := mime.ParseMediaType(r.Header.Get("Content-Type")); kind != kindJSON {
		return g, refusal{http.StatusUnsupportedMediaType, "The API takes JSON.", "Send Content-Type: application/json."}
	}
	members, err := membersOf(b)
	if err != nil {
		return g, err
	}
	seen := map[string]bool{}
	for _, m := range members {
		switch {
		case !slices.Contains(takes, m.name):
			return g, refusal{http.StatusBadRequest, fmt.Sprintf("There is no field %s here.", quoted(m.name)), "There are: " + strings.Join(takes, ", ") + ". Nothing was done."}
		case seen[m.name]:
			return g, refusal{http.StatusBadRequest, fmt.Sprintf("The field %s is given twice.", m.name), "Leave one out. Nothing was done."}
		}
		seen[m.name] = true
		if err := g.take(m); err != nil {
			return g, err
		}
	}
	return g, nil
}

// A member is one of a JSON object.
type member struct {
	name  string
	value json.RawMessage
}

// membersOf keeps a name that comes twice, which a map would lose.
func membersOf(b []byte) ([]member, error) {
	const next = `It must be one JSON object, such as {"reason": "why"}. Nothing was done.`
	var syntax *json.SyntaxError
	var whole json.RawMessage
	switch err := json.Unmarshal(b, &whole); {
	case !utf8.Valid(b):
		return nil, refusal{http.StatusBadRequest, "The body is no text in UTF-8.", next}
	case errors.As(err, &syntax):
		return nil, refusal{http.StatusBadRequest, fmt.Sprintf("The body is no JSON from its byte %d on.", syntax.Offset), next}
	case err != nil:
		return nil, refusal{http.StatusBadRequest, "The body is no JSON.", next}
	}
	in := json.NewDecoder(strings.NewReader(string(b)))
	if open, err := in.Token(); err != nil || open != json.Delim('{') {
		return nil, refusal{http.StatusBadRequest, "The body is JSON, but no object.", next}
	}
	var members []member
	for in.More() {
		name, err := in.Token()
		if err != nil {
			return nil, err
		}
		m := member{name: fmt.Sprint(name)}
		if err := in.Decode(&m.value); err != nil {
			return nil, err
		}
		members = append(members, m)
	}
	return members, nil
}

// take gives a field the value that a body has for it; null is none.
func (g *given) take(m member) error {
	value := string(m.value)
	if value == "null" {
		return nil
	}
	var text string
	isText := json.Unmarshal(m.value, &text) == nil
	switch m.name {
	case "args":
		g.Args = m.value
		return nil
	case "above", "epoch", "shard":
		if isText {
			return wrongField(m.name, value, "a whole number, without quotes")
		}
		return g.set(m.name, value)
	case "until":
		if _, err := time.Parse(time.RFC3339, text); isText && err != nil {
			return wrongField(m.name, text, "a time with its zone, as in 2026-03-01T08:00:00Z")
		}
	}
	if !isText {
		return refusal{http.StatusBadRequest, fmt.Sprintf("The field %s is %s: it must be text, in quotes.", m.name, clip(value, 100)), "Nothing was done."}
	}
	return g.set(m.name, text)
}

// firstOf is the first of errors that were joined.
func firstOf(err error) error {
	var told refusal
	if errors.As(err, &told) {
		return told
	}
	return err
}

func unreadable(err error) error {
	var large *http.MaxBytesError
	if errors.As(err, &large) {
		return refusal{http.StatusRequestEntityTooLarge, fmt.Sprintf("More than %d KiB are not taken.", large.Limit>>10), "Nothing was done."}
	}
	return refusal{http.StatusBadRequest, "What was sent broke off before its end.", "Nothing was done. Send it again."}
}
