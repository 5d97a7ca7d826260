package web

import (
	"errors"
	"fmt"
	"net/http"
	"strconv"
	"strings"

	"rota/internal/control"
	"rota/internal/status"
)

func cancelForm(s *server, r *http.Request, snap status.Snapshot) (form, error) {
	id := param(r, "run")
	f := form{Title: "Cancel run " + id, Submit: "Cancel the run", Reason: "required"}
	for _, l := range snap.Leases {
		if l.Last != nil && fmt.Sprint(l.Last.ID) == id && l.Last.EndedAt.IsZero() {
			f.Title += " of " + clip(l.Job, 100)
			f.Says = []string{fmt.Sprintf("%s ends the run's context. How soon the run returns is its own matter.", host(l.Last.Owner))}
			return f, nil
		}
	}
	n, _ := strconv.ParseInt(id, 10, 64) // it was understood
	got, err := s.Status.Record(r.Context(), n, !snap.Stale)
	switch {
	case errors.Is(err, status.ErrNoRun):
		return form{}, refusal{http.StatusNotFound, "There is no run " + id + " in the history.", "It was pruned, or there never was one; each job's page lists its runs."}
	case err != nil:
		f.Warning = unlooked
		return f, nil
	}
	run := got.Value.Run
	f.Title += " of " + clip(run.Job, 100)
	if run.EndedAt.IsZero() {
		f.Says = []string{fmt.Sprintf("%s ends the run's context, if it leads yet. How soon the run returns is its own matter.", host(run.Owner))}
	} else {
		f.Warning = fmt.Sprintf("There is nothing to cancel: the run has ended, %s.", outcomeMark(run.Outcome).Word)
	}
	return f, nil
}

// unlooked is said where it cannot be known what an order would be about.
const unlooked = "The database does not answer: it cannot be said now whether there is anything to be done."

func withdrawForm(s *server, r *http.Request, snap status.Snapshot) (form, error) {
	id := param(r, "request")
	f := form{Title: "Withdraw request " + id, Submit: "Withdraw", Reason: "required", Says: []string{"A request that has begun is no longer withdrawn."}}
	if snap.Stale {
		f.Warning = unlooked
		return f, nil
	}
	n, _ := strconv.ParseInt(id, 10, 64) // it was understood
	q, err := s.Status.Request(r.Context(), n)
	switch {
	case errors.Is(err, status.ErrNoRequest):
		return form{}, refusal{http.StatusNotFound, "There is no request " + id + ".", "It was pruned, or there never was one; each job's page lists the requests that wait."}
	case err != nil:
		f.Warning = unlooked
		return f, nil
	case q.Kind != string(control.Run):
		f.Warning = fmt.Sprintf("Only requests to run a job are withdrawn, and this is one to %s.", strings.ReplaceAll(q.Kind, "_", " "))
		return f, nil
	case !q.DoneAt.IsZero():
		f.Warning = fmt.Sprintf("There is nothing to withdraw: the request is settled, %s.", clip(q.Result, 200))
		return f, nil
	}
	f.Says = append([]string{fmt.Sprintf("%s asked for a run of %s %s ago.", clip(q.By, 100), clip(q.Job, 100), duration(snap.AsOf.Sub(q.MadeAt)))}, f.Says...)
	return f, nil
}
