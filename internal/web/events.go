package web

import (
	"encoding/json"
	"fmt"
	"maps"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"

	"rota/internal/status"
)

// An eventsPage is what the page of events shows.
type eventsPage struct {
	Rows         []eventRow
	Kind         string
	Kinds        []choiceOf
	Lease, Actor string
	Filtered     bool
	Older, First string // addresses; empty: none
	Note         string
}

// An eventRow is one thing that happened.
type eventRow struct {
	Key    string
	When   *instant
	Ago    *instant
	What   mark
	Lease  string
	Path   string // of its job; empty: none
	Epoch  int64
	Owner  *holder
	Actor  string
	Via    string
	Why    string
	Detail string
	Run    string // its address
	RunID  int64
}

var kinds = []choiceOf{{Value: "", Words: "everything"}, {Value: status.Terms, Words: "terms"}, {Value: status.Began, Words: "terms that began"}, {Value: status.Ended, Words: "terms that ended"}, {Value: status.Asked, Words: "what operators did"}}

func (s *server) events(w http.ResponseWriter, r *http.Request) error {
	v := r.URL.Query()
	q := status.EventsOf{Kind: v.Get("kind"), Lease: strings.TrimSpace(v.Get("lease")), Actor: strings.TrimSpace(v.Get("actor")), Before: v.Get("before")}
	if err := q.Validate(); err != nil {
		return badQuestion(err)
	}
	snap, err := s.snapshot(r)
	if err != nil {
		return err
	}
	got, err := s.Status.Events(r.Context(), q, !snap.Stale)
	if err != nil {
		if r.Context().Err() != nil {
			return err
		}
		got.Why = err
	}
	got.Value.AsOf = time.Time{}
	return s.page(w, r, "events", "Events", snap, tagOf(got.Value, got.Why != nil), func(bearings) (any, error) {
		p := eventsPage{Kind: q.Kind, Lease: clip(q.Lease, 200), Actor: clip(q.Actor, 200), Filtered: q != status.EventsOf{Before: q.Before}}
		if got.Why != nil {
			p.Note = oldHistory
		}
		for _, k := range kinds {
			k.Chosen = k.Value == q.Kind
			p.Kinds = append(p.Kinds, k)
		}
		jobs := jobsOf(snap)
		for _, e := range got.Value.Events {
			p.Rows = append(p.Rows, eventOf(e, jobs, snap.AsOf))
		}
		if got.Value.Next != "" {
			p.Older = eventsPath(q, got.Value.Next)
		}
		if q.Before != "" {
			p.First = eventsPath(q, "")
		}
		return p, nil
	})
}

// jobsOf says which job each lease is of.
func jobsOf(snap status.Snapshot) map[string]string {
	jobs := make(map[string]string, len(snap.Leases))
	for i := range snap.Leases {
		jobs[snap.Leases[i].Name] = snap.Leases[i].Job
	}
	for i := range snap.Leases {
		if _, known := jobs[snap.Leases[i].Job]; !known {
			jobs[snap.Leases[i].Job] = snap.Leases[i].Job
		}
	}
	return jobs
}

func eventsPath(q status.EventsOf, before string) string {
	v := url.Values{}
	for name, value := range map[string]string{"kind": q.Kind, "lease": q.Lease, "actor": q.Actor, "before": before} {
		if value != "" {
			v.Set(name, value)
		}
	}
	if len(v) == 0 {
		return "/events"
	}
	return "/events?" + v.Encode()
}

// detailWords are what a line of the audit says besides, each by its name.
func detailWords(detail json.RawMessage) string {
	var members map[string]json.RawMessage
	if json.Unmarshal(detail, &members) != nil {
		return string(detail)
	}
	said := make([]string, 0, len(members))
	for _, name := range slices.Sorted(maps.Keys(members)) {
		value := string(members[name])
		if text := ""; json.Unmarshal(members[name], &text) == nil {
			value = text
		}
		said = append(said, strings.ReplaceAll(name, "_", " ")+" "+value)
	}
	return strings.Join(said, "; ")
}

func eventOf(e status.Event, jobs map[string]string, asOf time.Time) eventRow {
	row := eventRow{
		When: at(e.At), Ago: ago(e.At, asOf), Lease: clip(e.Lease, 200), Epoch: e.Epoch, Owner: holderOf(e.Owner), Why: clip(e.Reason, 1000),
		Key: fmt.Sprintf("%s %d %s", e.Kind, e.Epoch, e.Lease),
	}
	if job, known := jobs[e.Lease]; known {
		row.Path = jobPath(job)
	}
	switch e.Kind {
	case status.Began:
		row.What = mark{"good", "●", "term began", ""}
	case status.Ended:
		row.What = mark{"idle", "○", "term ended", ""}
	}
	l := e.Line
	if l == nil {
		return row
	}
	row.Key = "asked " + strconv.FormatInt(l.ID, 10)
	row.What = foreign("busy", "▸", strings.ReplaceAll(l.Action, "_", " "), "in the audit")
	row.Actor, row.Via, row.Owner = clip(l.Actor, 200), l.Via, holderOf(l.Replica)
	row.Detail = clip(detailWords(l.Detail), 1000)
	if row.Lease == status.AllJobs {
		row.Lease, row.Path = "all jobs", ""
	}
	if l.Run != 0 && l.Job != "" {
		row.Run, row.RunID = runPath(l.Job, l.Run), l.Run
	}
	return row
}
