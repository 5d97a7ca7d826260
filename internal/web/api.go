package web

import (
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"strconv"
	"time"

	"github.com/go-chi/chi/v5"

	"rota/internal/status"
)

func (s *server) apiLeases(w http.ResponseWriter, r *http.Request) error {
	return s.list(w, r, status.Snapshot.LeasesJSON)
}

func (s *server) apiJobs(w http.ResponseWriter, r *http.Request) error {
	return s.list(w, r, status.Snapshot.JobsJSON)
}

func (s *server) apiReplicas(w http.ResponseWriter, r *http.Request) error {
	return s.list(w, r, status.Snapshot.ReplicasJSON)
}

// list answers with what of makes of the snapshot.
func (s *server) list(w http.ResponseWriter, r *http.Request, of func(status.Snapshot) any) error {
	snap, err := s.snapshot(r)
	if err != nil {
		return err
	}
	b, err := encode(r, of(snap))
	if err != nil {
		return err
	}
	s.send(w, r, snap, kindJSON, b)
	return nil
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
	p := params{r.URL.Query(), nil}
	q := status.RunsOf{Job: p.Get("job"), Outcome: p.Get("outcome"), Before: p.number("before"), Limit: int(p.number("limit"))}
	if err := errors.Join(p.err, q.Validate()); err != nil {
		return badQuestion(err)
	}
	page, err := s.Status.Runs(r.Context(), q)
	if err != nil {
		return err
	}
	return answer(w, r, page.AsOf, page.JSON())
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
	return answer(w, r, record.AsOf, record.JSON())
}

func (s *server) apiAudit(w http.ResponseWriter, r *http.Request) error {
	p := params{r.URL.Query(), nil}
	q := status.AuditOf{Job: p.Get("job"), Before: p.number("before"), Limit: int(p.number("limit"))}
	if err := errors.Join(p.err, q.Validate()); err != nil {
		return badQuestion(err)
	}
	page, err := s.Status.Audit(r.Context(), q)
	if err != nil {
		return err
	}
	return answer(w, r, page.AsOf, page.JSON())
}

// answer is that of a question of the caller's own, which is asked anew each time.
func answer(w http.ResponseWriter, r *http.Request, asOf time.Time, v any) error {
	b, err := encode(r, v)
	if err != nil {
		return err
	}
	w.Header().Set("Content-Type", kindJSON)
	w.Header().Set("Rota-As-Of", asOf.Format(time.RFC3339Nano))
	_, _ = w.Write(b)
	return nil
}

// params are a question's, with the first thing that is wrong with them.
type params struct {
	url.Values
	err error
}

// number is zero where it is not given.
func (p *params) number(name string) int64 {
	text := p.Get(name)
	if text == "" {
		return 0
	}
	n, err := strconv.ParseInt(text, 10, 64)
	if err != nil || n < 1 {
		p.err = errors.Join(p.err, fmt.Errorf("%s %q: it must be a positive number", name, text))
	}
	return n
}

var noRun = refusal{http.StatusNotFound, "There is no such run in the history.", "It was pruned, or there never was one; /api/v1/runs lists what there is."}

func badQuestion(err error) error {
	return refusal{http.StatusBadRequest, "This cannot be asked for: " + err.Error() + ".", "Nothing was read."}
}
