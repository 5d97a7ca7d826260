package web

import (
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"strconv"
	"strings"
	"time"

	"rota/internal/registry"
	"rota/internal/status"
)

// A runRow is one run in a list.
type runRow struct {
	Key     string
	Path    string
	Outcome mark
	Quiet   bool // no attempt: ticks that were skipped or missed
	Tick    *instant
	From    *instant // the first of several ticks
	Ticks   int64
	Started *instant
	Took    string
	Since   *instant // how long it has been running
	Attempt int
	Epoch   int64
	Owner   *holder
	Error   string
	Refused int64
	Asked   bool
	Lease   string
	Shard   string // which of the job's shards; empty: the job is whole
	This    bool   // the one that the page is about
}

func runRowOf(run *status.Run, asOf time.Time) runRow {
	r := runRow{
		Key: strconv.FormatInt(run.ID, 10), Path: runPath(run.Job, run.ID), Outcome: outcomeMark(run.Outcome),
		Quiet: run.Outcome == "skipped" || run.Outcome == "missed",
		Tick:  at(run.Tick), From: at(run.FirstTick), Ticks: run.Ticks, Started: at(run.StartedAt),
		Attempt: run.Attempt, Epoch: run.Epoch, Owner: holderOf(run.Owner), Error: clip(run.Error, 300), Refused: run.Refused,
		Asked: run.Request != 0, Lease: clip(run.Lease, 200),
	}
	if _, k, of := registry.LeaseOf(run.Lease); of > 0 {
		r.Shard = fmt.Sprintf("shard %d of %d", k, of)
	}
	switch {
	case r.Quiet:
		r.Started = nil
	case run.EndedAt.IsZero():
		r.Since = lasting(run.StartedAt, asOf)
	default:
		r.Took = took(run.EndedAt.Sub(run.StartedAt))
	}
	return r
}

// A runPage is what the page of one run shows.
type runPage struct {
	ID           int64
	Job, JobPath string
	Row          runRow
	Ended        *instant
	Delay        string // from the tick to the start
	Owner        *holder
	Request      *waiting
	Trigger      string
	Fault, Stack string
	Log          string
	Args         string
	ArgsOf       string
	Attempts     []runRow
	Again        bool
	Orders       []order
	Note         string
}

func (s *server) run(w http.ResponseWriter, r *http.Request) error {
	id, _ := strconv.ParseInt(param(r, "id"), 10, 64) // it was understood
	snap, err := s.snapshot(r)
	if err != nil {
		return err
	}
	got, err := s.Status.Record(r.Context(), id, !snap.Stale)
	switch {
	case errors.Is(err, status.ErrNoRun):
		return noRunHere
	case err != nil && snap.Stale:
		return refusal{http.StatusServiceUnavailable, "The database does not answer, and this run was not looked at while it did.", "Ask again: this replica keeps trying."}
	case err != nil:
		return err
	case got.Value.Run.Job != param(r, "job"):
		return noRunHere
	}
	record := *got.Value
	record.AsOf = time.Time{}
	title := "Run " + strconv.FormatInt(id, 10) + " of " + clip(record.Run.Job, 100)
	return s.page(w, r, "run", title, snap, tagOf(record, got.Why != nil), func(b bearings) (any, error) {
		p := s.runView(record, snap, b)
		if got.Why != nil {
			p.Note = oldHistory
		}
		return p, nil
	})
}

var noRunHere = refusal{http.StatusNotFound, "There is no such run of this job in the history.", "It was pruned, or there never was one; the job's page lists what there is."}

func (s *server) runView(rec status.RunRecord, snap status.Snapshot, b bearings) runPage {
	run := rec.Run
	p := runPage{
		ID: run.ID, Job: clip(run.Job, 200), JobPath: jobPath(run.Job), Row: runRowOf(&run, snap.AsOf), Ended: at(run.EndedAt),
		Owner: holderOf(run.Owner), Again: rec.Again, Log: rec.Log, Trigger: "its schedule",
	}
	if d := run.StartedAt.Sub(run.Tick); !p.Row.Quiet && d >= 0 {
		p.Delay = took(d)
	}
	p.Fault, p.Stack = run.Error, ""
	if first, rest, more := strings.Cut(run.Error, "\n"); more {
		p.Fault, p.Stack = first, strings.TrimLeft(rest, "\n")
	}
	if q := rec.Request; q != nil {
		p.Trigger = "a request"
		p.Request = &waiting{q.ID, q.Kind, clip(q.By, 200), clip(q.Reason, 300), at(q.MadeAt), nil}
		if len(q.Args) > 0 {
			p.Args, p.ArgsOf = indented(q.Args), "given with the request; the rest is the job's own"
		}
	} else if run.Request != 0 {
		p.Trigger = "a request that is no longer kept"
	}
	if args := argsOf(s.jobNamed(run.Job)); p.Args == "" && args != "" {
		p.Args, p.ArgsOf = indented(json.RawMessage(args)), "the job's own, as this binary has them"
	}
	for i := range rec.Attempts {
		row := runRowOf(&rec.Attempts[i], snap.AsOf)
		row.This = rec.Attempts[i].ID == run.ID
		p.Attempts = append(p.Attempts, row)
	}
	if run.EndedAt.IsZero() && b.can.Operate {
		p.Orders = []order{b.order("cancel", "Cancel this run", "/runs/"+strconv.FormatInt(run.ID, 10)+"/cancel")}
	}
	return p
}
