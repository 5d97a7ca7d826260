package web

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"hash/fnv"
	"net/http"
	"slices"
	"strconv"
	"time"

	"github.com/go-chi/chi/v5"

	"rota/internal/status"
)

// apiPath begins the paths of the API.
const apiPath = "/api/v1"

// apiRoutes are the lists and records of the API; its orders are the actions.
func (s *server) apiRoutes(r chi.Router) {
	r.Get(apiPath+"/leases", s.handle(s.apiLeases))
	r.Get(apiPath+"/jobs", s.handle(s.apiJobs))
	r.Get(apiPath+"/jobs/{job}", s.handle(s.apiJob))
	r.Get(apiPath+"/replicas", s.handle(s.apiReplicas))
	r.Get(apiPath+"/runs", s.handle(s.apiRuns))
	r.Get(apiPath+"/runs/{id}", s.handle(s.apiRun))
	r.Get(apiPath+"/requests", s.handle(s.apiRequests))
	r.Get(apiPath+"/events", s.handle(s.apiEvents))
	r.Get(apiPath+"/audit", s.handle(s.apiAudit))
	r.Get(apiPath+"/openapi.json", s.handle(openAPI))
}

func (s *server) apiLeases(w http.ResponseWriter, r *http.Request) error {
	return s.part(w, r, status.Snapshot.LeasesJSON)
}

func (s *server) apiJobs(w http.ResponseWriter, r *http.Request) error {
	return s.part(w, r, status.Snapshot.JobsJSON)
}

// part answers with the leases that the question asks for; without one, with all.
func (s *server) part(w http.ResponseWriter, r *http.Request, of func(status.Snapshot, string) any) error {
	after, limit, err := partOf(r)
	if err != nil {
		return err
	}
	return s.list(w, r, func(snap status.Snapshot) (any, error) {
		part, next := snap.After(after, limit)
		return of(part, next), nil
	})
}

// partOf is after what a part of a snapshot's list begins, and how long it is at most; zero: to the end.
func partOf(r *http.Request) (after string, limit int, _ error) {
	p := paramsOf(r)
	after, limit = p.Get("after"), int(p.number("limit"))
	if limit > status.Most {
		p.err = errors.Join(p.err, fmt.Errorf("limit %d: it must be 1 to %d", limit, status.Most))
	}
	if p.err != nil {
		return "", 0, badQuestion(p.err)
	}
	return after, limit, nil
}

// apiJob answers with all leases of a job.
func (s *server) apiJob(w http.ResponseWriter, r *http.Request) error {
	job := param(r, "job")
	return s.list(w, r, func(snap status.Snapshot) (any, error) {
		snap.Leases = slices.DeleteFunc(slices.Clone(snap.Leases), func(l status.Lease) bool { return l.Job != job })
		if len(snap.Leases) == 0 {
			return nil, refusal{http.StatusNotFound, fmt.Sprintf("There is no job %q.", clip(job, 100)), apiPath + "/jobs lists what there is."}
		}
		return snap.JobsJSON(""), nil
	})
}

func (s *server) apiReplicas(w http.ResponseWriter, r *http.Request) error {
	after, limit, err := partOf(r)
	if err != nil {
		return err
	}
	return s.list(w, r, func(snap status.Snapshot) (any, error) {
		v, found := snap.ReplicasJSON(after, limit)
		if !found {
			return nil, badQuestion(fmt.Errorf("after %q: there is no such replica any more; ask again from the first", clip(after, 100)))
		}
		return v, nil
	})
}

// list answers with what of makes of the snapshot.
func (s *server) list(w http.ResponseWriter, r *http.Request, of func(status.Snapshot) (any, error)) error {
	snap, err := s.snapshot(r)
	if err != nil {
		return err
	}
	return s.send(w, r, snap, kindJSON, func() ([]byte, error) {
		v, err := of(snap)
		if err != nil {
			return nil, err
		}
		return encode(r, v)
	})
}

const kindJSON = "application/json"

func encode(r *http.Request, v any) ([]byte, error) {
	b, err := json.Marshal(v)
	if err != nil {
		return nil, fmt.Errorf("encode %s: %w", r.URL.Path, err)
	}
	return append(b, '\n'), nil
}

func (s *server) apiRuns(w http.ResponseWriter, r *http.Request) error {
	p := paramsOf(r)
	q := status.RunsOf{Job: p.Get("job"), Outcome: p.Get("outcome"), Before: p.number("before"), Limit: int(p.number("limit"))}
	if err := errors.Join(p.err, q.Validate()); err != nil {
		return badQuestion(err)
	}
	page, err := s.Status.Runs(r.Context(), q)
	if err != nil {
		return err
	}
	return answer(w, r, page.AsOf, func(asOf time.Time) any { page.AsOf = asOf; return page.JSON() })
}

func (s *server) apiRun(w http.ResponseWriter, r *http.Request) error {
	id, err := strconv.ParseInt(chi.URLParam(r, "id"), 10, 64)
	if err != nil {
		return noRun
	}
	record, err := s.Status.Run(r.Context(), id)
	switch {
	case errors.Is(err, status.ErrNoRun):
		return noRun
	case err != nil:
		return err
	}
	return answer(w, r, record.AsOf, func(asOf time.Time) any { record.AsOf = asOf; return record.JSON() })
}

func (s *server) apiRequests(w http.ResponseWriter, r *http.Request) error {
	p := paramsOf(r)
	q := status.RequestsOf{After: p.number("after"), Limit: int(p.number("limit"))}
	if err := errors.Join(p.err, q.Validate()); err != nil {
		return badQuestion(err)
	}
	page, err := s.Status.Requests(r.Context(), q)
	if err != nil {
		return err
	}
	return answer(w, r, page.AsOf, func(asOf time.Time) any { page.AsOf = asOf; return page.JSON() })
}

func (s *server) apiAudit(w http.ResponseWriter, r *http.Request) error {
	p := paramsOf(r)
	q := status.AuditOf{Job: p.Get("job"), Actor: p.Get("actor"), Before: p.number("before"), Limit: int(p.number("limit"))}
	if err := errors.Join(p.err, q.Validate()); err != nil {
		return badQuestion(err)
	}
	page, err := s.Status.Audit(r.Context(), q)
	if err != nil {
		return err
	}
	return answer(w, r, page.AsOf, func(asOf time.Time) any { page.AsOf = asOf; return page.JSON() })
}

// apiEvents answers as the page of events does: from memory, where the database does not answer.
func (s *server) apiEvents(w http.ResponseWriter, r *http.Request) error {
	p := paramsOf(r)
	q := status.EventsOf{Kind: p.Get("kind"), Lease: p.Get("lease"), Actor: p.Get("actor"), Before: p.Get("before"), Limit: int(p.number("limit"))}
	if err := errors.Join(p.err, q.Validate()); err != nil {
		return badQuestion(err)
	}
	got, err := s.Status.Events(r.Context(), q, true)
	if err != nil {
		return err
	}
	return answer(w, r, got.Value.AsOf, func(asOf time.Time) any {
		m := status.Moment{AsOf: asOf, Stale: got.Why != nil}
		if !asOf.IsZero() {
			m.AgeSeconds = got.Age.Seconds()
		}
		return got.Value.JSON(m)
	})
}

// answer is that of a question of the caller's own, which is asked anew each time. The tag stands for
// what was found, and not for when; a 304 too says when.
func answer(w http.ResponseWriter, r *http.Request, asOf time.Time, at func(time.Time) any) error {
	timeless, err := encode(r, at(time.Time{}))
	if err != nil {
		return err
	}
	b, err := encode(r, at(asOf))
	if err != nil {
		return err
	}
	f := fnv.New128a()
	f.Write(timeless)
	w.Header().Set("Content-Type", kindJSON)
	w.Header().Set("Rota-As-Of", asOf.Format(time.RFC3339Nano))
	w.Header().Set("ETag", fmt.Sprintf(`W/"%x"`, f.Sum(nil)))
	http.ServeContent(w, r, "", time.Time{}, bytes.NewReader(b))
	return nil
}

var noRun = refusal{http.StatusNotFound, "There is no such run in the history.", "It was pruned, or there never was one; " + apiPath + "/runs lists what there is."}
