package web

import (
	"fmt"
	"html/template"
	"strings"
	"time"
	"unicode/utf8"
)

// duration says d in at most two units, never below zero. The page's script says it the same way.
func duration(d time.Duration) string {
	s := int64(max(d, 0) / time.Second)
	switch {
	case s < 60:
		return fmt.Sprintf("%d s", s)
	case s < 3600:
		return fmt.Sprintf("%d m %d s", s/60, s%60)
	case s < 86400:
		return fmt.Sprintf("%d h %d m", s/3600, s/60%60)
	default:
		return fmt.Sprintf("%d d %d h", s/86400, s/3600%24)
	}
}

// took says how long a run took, more finely where it was short.
func took(d time.Duration) string {
	switch {
	case d < time.Millisecond:
		return "under 1 ms"
	case d < time.Second:
		return fmt.Sprintf("%d ms", d.Milliseconds())
	case d < 10*time.Second:
		return fmt.Sprintf("%.2f s", d.Seconds())
	default:
		return duration(d)
	}
}

// An instant is a time as the page shows it: relative to the snapshot, with the whole of it on hover,
// or the whole of it.
type instant struct {
	At    time.Time
	Shape string // ago, in, for, left or at: how the script keeps Text current
	Text  string
}

// ago, in, lasting, left and at are the shapes; nil for no time.
func ago(t, asOf time.Time) *instant     { return shape(t, "ago", duration(asOf.Sub(t))+" ago") }
func in(t, asOf time.Time) *instant      { return shape(t, "in", "in "+duration(t.Sub(asOf))) }
func lasting(t, asOf time.Time) *instant { return shape(t, "for", duration(asOf.Sub(t))) }
func left(t, asOf time.Time) *instant    { return shape(t, "left", duration(t.Sub(asOf))) }
func at(t time.Time) *instant            { return shape(t, "at", t.UTC().Format("2006-01-02 15:04:05 UTC")) }

func shape(t time.Time, shape, text string) *instant {
	if t.IsZero() {
		return nil
	}
	return &instant{t, shape, text}
}

// Markup is the time for the page, which has a thousand of them: as a template each is four calls by
// reflection. None of it is anybody's text.
func (i instant) Markup() template.HTML {
	return template.HTML(`<time datetime="` + i.RFC3339() + `" title="` + i.Full() + `" data-shape="` + i.Shape + `">` + i.Text + `</time>`)
}

// RFC3339 is the time for machines.
func (i instant) RFC3339() string { return i.At.UTC().Format(time.RFC3339Nano) }

// Full is the time with its date and its zone.
func (i instant) Full() string { return full(i.At) }

func full(t time.Time) string { return t.UTC().Format("2006-01-02 15:04:05.000 UTC") }

// A holder is an owner as the page shows it.
type holder struct {
	Host    string
	Process string // the first digits of its UUID
	Whole   string
}

// holderOf is nil for nobody.
func holderOf(owner string) *holder {
	if owner == "" {
		return nil
	}
	host, process := parts(owner)
	return &holder{host, process, clip(owner, 2000)}
}

// parts are an owner's host and the first digits of its UUID, which are enough to tell replicas
// apart. Another program's owner may have any form, and stays whole.
func parts(owner string) (host, process string) {
	host, id, ok := strings.Cut(owner, "/")
	if !ok || len(id) != 36 {
		return clip(owner, 60), ""
	}
	return clip(host, 60), id[:8]
}

// zoneOf is the IANA zone that a schedule's canonical text ends with, and UTC for those that have none.
func zoneOf(schedule string) string {
	fields := strings.Fields(schedule)
	if len(fields) < 3 || fields[0] != "cron" {
		return "UTC"
	}
	return fields[len(fields)-1]
}

// clip cuts s to n characters.
func clip(s string, n int) string {
	if utf8.RuneCountInString(s) <= n {
		return s
	}
	return string([]rune(s)[:n-1]) + "…"
}

// plural is n, a whole number, and things, the last s of which one does without.
func plural(n any, things string) string {
	number := fmt.Sprint(n)
	return number + " " + thing(number, things)
}

func thing(number, things string) string {
	if number == "1" {
		return strings.TrimSuffix(things, "s")
	}
	return things
}
