package web

import (
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"

	"rota/internal/control"
	"rota/internal/registry"
	"rota/internal/status"
)

// A jobPage is what the page of one job shows.
type jobPage struct {
	Name, Title  string
	About        string
	Rows         []jobRow // its leases: one, or one for each shard
	Row          *jobRow  // the only one; nil: there are several, or none
	Paused       *pause
	Orders       []order
	Waiting      []waiting
	Ticks        []tick
	Zone         string
	NoTicks      string // why there are none
	Reigns       []reignChart
	Terms        []termRow
	Durations    *spread
	Runs         []runRow
	Outcome      string
	Outcomes     []choiceOf
	Older, First string // addresses; empty: none
	Config       []setting
	Note         string // on the history
	HistoryPath  string
	Zoned        bool // the job's zone is another than UTC
}

// A choiceOf is one value of a filter.
type choiceOf struct {
	Value, Words, Path string
	Chosen             bool
}

// A setting is one line of the configuration.
type setting struct {
	Name, Value, Link string
	Code              bool
}

// A tick is an instant at which a job is due.
type tick struct {
	UTC, Zoned string
	At         *instant // local, where the script says it
	In         *instant
}

// A waiting request is one that nobody has settled.
type waiting struct {
	ID       int64
	Kind, By string
	Reason   string
	Since    *instant
	Withdraw *order // nil: it cannot be withdrawn, or not by who looks
}

// A reignChart is the timeline of one lease.
type reignChart struct {
	Lease string
	Chart *timeline
}

// A termRow is one term.
type termRow struct {
	Lease  string
	Epoch  int64
	Owner  *holder
	Began  *instant
	Ended  *instant
	Length string
	Why    string
	Now    bool
}

func (s *server) job(w http.ResponseWriter, r *http.Request) error {
	name := param(r, "job")
	snap, err := s.snapshot(r)
	if err != nil {
		return err
	}
	var leases []status.Lease
	var lines []string
	for _, l := range snap.Leases {
		if l.Job == name {
			leases, lines = append(leases, l), append(lines, l.Name)
		}
	}
	p := paramsOf(r)
	q := status.JobOf{Job: name, Outcome: p.Get("outcome"), Before: p.number("before")}
	if err := errors.Join(p.err, status.RunsOf{Outcome: q.Outcome}.Validate()); err != nil {
		return badQuestion(err)
	}
	past, err := s.Status.JobHistory(r.Context(), q, lines, !snap.Stale)
	if err != nil {
		if r.Context().Err() != nil {
			return err
		}
		past.Why = err
	}
	switch {
	case len(leases) > 0 || past.Value.Known:
	case past.Why != nil:
		return refusal{http.StatusServiceUnavailable, fmt.Sprintf("The database does not answer, and no lease is known here of a job %q.", clip(name, 100)), "Ask again: this replica keeps trying."}
	default:
		return refusal{http.StatusNotFound, fmt.Sprintf("There is no job %q.", clip(name, 100)), "It may have another name now, or its replica has not started yet: the list of jobs has all there are."}
	}
	past.Value.AsOf = time.Time{} // which the tag is not to stand for
	return s.page(w, r, "job", clip(name, 100), snap, tagOf(past.Value, past.Why != nil), func(b bearings) (any, error) {
		return s.jobView(name, snap, leases, q, past, b), nil
	})
}

func (s *server) jobView(name string, snap status.Snapshot, leases []status.Lease, q status.JobOf, past status.Reading[status.JobHistory], b bearings) jobPage {
	p := jobPage{Name: clip(name, 200), Title: clip(name, 2000), Outcome: q.Outcome, HistoryPath: "/events?lease=" + url.QueryEscape(name)}
	if past.Why != nil {
		p.Note = oldHistory
	}
	for i := range leases {
		row := row(&leases[i], snap.AsOf)
		row.Orders = b.ordersOf(&leases[i])
		p.Rows = append(p.Rows, row)
	}
	if len(p.Rows) > 0 {
		p.Paused, p.About, p.Orders = p.Rows[0].Paused, p.Rows[0].About, p.Rows[0].Orders
	}
	if len(p.Rows) == 1 {
		p.Row = &p.Rows[0]
	}
	h := past.Value
	for _, o := range h.Open {
		w := waiting{o.ID, strings.ReplaceAll(o.Kind, "_", " "), clip(o.By, 200), clip(o.Reason, 300), ago(o.MadeAt, snap.AsOf), nil}
		if b.can.Operate && o.Kind == string(control.Run) {
			withdraw := b.order("withdraw", "Withdraw", fmt.Sprintf("/requests/%d/withdraw", o.ID))
			w.Withdraw = &withdraw
		}
		p.Waiting = append(p.Waiting, w)
	}
	p.plan(s.jobNamed(name), leases, snap.AsOf)
	p.reign(h.Terms, leases, snap.AsOf)
	p.Durations = durations(name, h.Times)
	for i := range h.Runs {
		p.Runs = append(p.Runs, runRowOf(&h.Runs[i], snap.AsOf))
	}
	p.sift(q, h.Next)
	return p
}

func (s *server) jobNamed(name string) *registry.Job {
	i := slices.IndexFunc(s.Jobs, func(j registry.Job) bool { return j.Name == name })
	if i < 0 {
		return nil
	}
	return &s.Jobs[i]
}

const shownTicks = 5

// plan says when the job is due next, and how it is set up.
func (p *jobPage) plan(job *registry.Job, leases []status.Lease, asOf time.Time) {
	if job == nil {
		p.NoTicks = "No job of this binary has that name, so its schedule is not known here."
		if len(leases) > 0 && leases[0].Schedule != "" {
			p.Config = []setting{{"schedule", leases[0].Schedule, "", true}}
			p.NoTicks += " The replica that led it last went by " + leases[0].Schedule + "."
		}
		return
	}
	p.Zone = zoneOf(job.Schedule.String())
	zone, err := time.LoadLocation(p.Zone)
	p.Zoned = err == nil && p.Zone != "UTC"
	next := asOf
	for range shownTicks {
		if next = job.Schedule.Next(next); next.IsZero() {
			break
		}
		t := tick{UTC: next.UTC().Format("Mon 2006-01-02 15:04:05 UTC"), At: at(next), In: in(next, asOf)}
		if p.Zoned {
			t.Zoned = next.In(zone).Format("Mon 2006-01-02 15:04:05 MST")
		}
		p.Ticks = append(p.Ticks, t)
	}
	switch {
	case job.Disabled:
		p.Ticks, p.NoTicks = nil, "The jobs file of this replica takes the job out of its work."
	case len(p.Ticks) == 0:
		p.NoTicks = "It has none: it is " + job.Schedule.Words() + "."
	}
	p.Config = settings(job)
}

// settings are the job's, in the words of the registry.
func settings(job *registry.Job) []setting {
	timeout, attempts, jitter := "none", "one", "none"
	if job.Timeout > 0 {
		timeout = registry.Span(job.Timeout)
	}
	if job.Retry.Attempts > 1 {
		pause, _ := job.Retry.After(1)
		attempts = strconv.Itoa(job.Retry.Attempts) + ", the second " + registry.Span(pause) + " after the first, then twice as long each time"
	}
	if job.Jitter > 0 {
		jitter = "up to " + registry.Span(job.Jitter)
	}
	all := []setting{
		{"Schedule", job.Schedule.Words(), "", false},
		{"As written", job.Schedule.String(), "", true},
		{"Timeout", timeout, "", false},
		{"Attempts", attempts, "", false},
		{"Jitter", jitter, "", false},
		{"Missed ticks", job.Missed.String(), "", false},
		{"Overlap", job.Overlap.String(), "", false},
		{"If lost", job.IfLost.String(), "", false},
	}
	if job.Shards > 1 {
		all = append(all, setting{"Shards", strconv.Itoa(job.Shards), "", false})
	}
	protects := make([]string, 0, len(job.Protects))
	for _, t := range job.Protects {
		protects = append(protects, t.Name)
	}
	if len(protects) > 0 {
		all = append(all, setting{"Protects", strings.Join(protects, ", "), "", true})
	} else {
		all = append(all, setting{"Protects", "no table: it leaves no mark outside", "", false})
	}
	if args := argsOf(job); args != "" {
		all = append(all, setting{"Arguments", args, "", true})
	}
	all = append(all, setting{"Source", job.Source, "", true})
	if job.Runbook != "" {
		all = append(all, setting{"Runbook", job.Runbook, job.Runbook, false})
	}
	return all
}

// reign tells of the terms.
func (p *jobPage) reign(terms []status.Reign, leases []status.Lease, asOf time.Time) {
	byLease := map[string][]status.Reign{}
	current := map[string]*status.Lease{}
	for i := range leases {
		current[leases[i].Name] = &leases[i]
	}
	for _, t := range terms {
		byLease[t.Lease] = append(byLease[t.Lease], t)
		l := current[t.Lease]
		row := termRow{
			Lease: clip(t.Lease, 200), Epoch: t.Epoch, Owner: holderOf(t.Owner), Began: at(t.AcquiredAt), Ended: at(t.EndedAt),
			Length: duration(endOf(t, l, asOf).Sub(t.AcquiredAt)), Why: clip(t.Reason, 200),
			Now: l != nil && l.State == status.Held && l.Epoch == t.Epoch && t.EndedAt.IsZero(),
		}
		if !row.Now && t.EndedAt.IsZero() {
			row.Why = "its lease ran out"
		}
		p.Terms = append(p.Terms, row)
	}
	for i := range leases {
		if chart := reigns(byLease[leases[i].Name], &leases[i], asOf); chart != nil {
			p.Reigns = append(p.Reigns, reignChart{clip(leases[i].Name, 60), chart})
		}
	}
}

// sift offers the outcomes to filter by, and the pages.
func (p *jobPage) sift(q status.JobOf, next int64) {
	to := func(outcome string, before int64) string {
		v := url.Values{}
		if outcome != "" {
			v.Set("outcome", outcome)
		}
		if before > 0 {
			v.Set("before", strconv.FormatInt(before, 10))
		}
		if len(v) == 0 {
			return jobPath(q.Job) + "#runs"
		}
		return jobPath(q.Job) + "?" + v.Encode() + "#runs"
	}
	p.Outcomes = []choiceOf{{"", "all", to("", 0), q.Outcome == ""}}
	for _, o := range status.Outcomes {
		p.Outcomes = append(p.Outcomes, choiceOf{o, strings.ReplaceAll(o, "_", " "), to(o, 0), q.Outcome == o})
	}
	if next > 0 {
		p.Older = to(q.Outcome, next)
	}
	if q.Before > 0 {
		p.First = to(q.Outcome, 0)
	}
}
