package web

import (
	"context"
	"fmt"
	"net/http"
	"time"

	"rota/internal/control"
	"rota/internal/status"
)

// An action is an order that the page's forms and the API take, at paths that the API has below its
// own. The roles, and no more than these, may give it.
type action struct {
	name  string // as the audit calls it
	role  Role
	paths []string
	takes []string // the fields of its form, and of its body
	do    func(context.Context, *control.Desk, control.Order, wanted) (done, error)
}

// What is wanted by an order: what it is about, by the path, and what the form or the body says.
type wanted struct {
	control.Tried // what it is about
	given
}

// What came of an order.
type done struct {
	code   int
	notice string // in one line
	body   any
}

// typedAll is what has to be typed before something is done about all jobs.
const typedAll = "all"

// because are the fields of an order that has none of its own.
var because = []string{"reason"}

var actions = []action{
	{"run", Operator, []string{"/jobs/{job}/run"}, []string{"args", "key", "reason", "shard"}, runJob},
	{"pause", Operator, []string{"/jobs/{job}/pause"}, []string{"reason", "until"}, pauseJob},
	{"resume", Operator, []string{"/jobs/{job}/resume"}, because, resumeJob},
	{"pause", Admin, []string{"/pause"}, []string{"typed", "reason", "until"}, pauseAll},
	{"resume", Admin, []string{"/resume"}, because, resumeAll},
	{"cancel", Operator, []string{"/runs/{run}/cancel"}, because, cancelRun},
	{"withdraw", Operator, []string{"/requests/{request}/withdraw"}, because, withdraw},
	{"step_down", Operator, []string{"/leases/{lease}/step-down"}, []string{"reason", "epoch"}, stepDown},
	{"revoke", Admin, []string{"/leases/{lease}/revoke"}, []string{"typed", "reason", "above", "epoch"}, revoke},
	// An owner id is a name, a slash, and the rest: proxies that rewrite paths leave the slash no escape.
	{"drain", Operator, []string{"/replicas/{id}/drain", "/replicas/{name}/{rest}/drain"}, because, drain},
}

func runJob(ctx context.Context, desk *control.Desk, o control.Order, in wanted) (done, error) {
	if in.Shard != 0 {
		a, err := desk.RunShard(ctx, o, in.Job, in.Shard, in.Args, in.Key)
		return asked(a), err
	}
	a, err := desk.RunNow(ctx, o, in.Job, in.Args, in.Key)
	return asked(a), err
}

func cancelRun(ctx context.Context, desk *control.Desk, o control.Order, in wanted) (done, error) {
	a, err := desk.Cancel(ctx, o, in.Run)
	return asked(a), err
}

func stepDown(ctx context.Context, desk *control.Desk, o control.Order, in wanted) (done, error) {
	o.Epoch = in.Epoch
	a, err := desk.StepDown(ctx, o, in.Lease)
	return asked(a), err
}

func drain(ctx context.Context, desk *control.Desk, o control.Order, in wanted) (done, error) {
	a, err := desk.Drain(ctx, o, in.Replica)
	return asked(a), err
}

// asked is what came of a request, which a replica will carry out.
func asked(a control.Asked) done {
	made := "is made"
	if a.Existed {
		made = "was made before"
	}
	return done{http.StatusAccepted, fmt.Sprintf("Request %d %s: %s.", a.ID, made, a.Expect), a}
}

func withdraw(ctx context.Context, desk *control.Desk, o control.Order, in wanted) (done, error) {
	w, err := desk.Withdraw(ctx, o, in.Request)
	return done{http.StatusOK, fmt.Sprintf("Request %d is withdrawn.", w.ID), w}, err
}

func pauseJob(ctx context.Context, desk *control.Desk, o control.Order, in wanted) (done, error) {
	if in.Job == control.AllJobs {
		return done{}, refusal{http.StatusBadRequest, "* is no job's name.", "All jobs are paused at /pause."}
	}
	p, err := desk.Pause(ctx, o, in.Job, in.end())
	return begun(p), err
}

func pauseAll(ctx context.Context, desk *control.Desk, o control.Order, in wanted) (done, error) {
	if err := in.typed(typedAll); err != nil {
		return done{}, err
	}
	p, err := desk.Pause(ctx, o, control.AllJobs, in.end())
	return begun(p), err
}

// end is when the pause ends by itself; zero: it does not.
func (g given) end() time.Time {
	if g.Until == nil {
		return time.Time{}
	}
	return *g.Until
}

// begun is what came of an order to pause.
func begun(p control.Paused) done {
	end := "until resumed"
	if !p.Pause.Until.IsZero() {
		end = "until " + p.Pause.Until.UTC().Format("2006-01-02 15:04:05 UTC")
	}
	return done{http.StatusOK, fmt.Sprintf("%s: paused %s.", jobWords(p.Pause.Job), end), struct {
		Pause    *status.PauseJSON `json:"pause"`
		Replaced *status.PauseJSON `json:"replaced"` // null: there was none
	}{pauseJSON(&p.Pause), pauseJSON(p.Replaced)}}
}

func resumeJob(ctx context.Context, desk *control.Desk, o control.Order, in wanted) (done, error) {
	if in.Job == control.AllJobs {
		return done{}, refusal{http.StatusBadRequest, "* is no job's name.", "The pause of all jobs is ended at /resume."}
	}
	r, err := desk.Resume(ctx, o, in.Job)
	return resumed(r), err
}

func resumeAll(ctx context.Context, desk *control.Desk, o control.Order, _ wanted) (done, error) {
	r, err := desk.Resume(ctx, o, control.AllJobs)
	return resumed(r), err
}

// resumed is what came of an order to resume.
func resumed(r control.Resumed) done {
	notice := jobWords(r.Ended.Job) + ": resumed."
	if r.Still != nil {
		notice = fmt.Sprintf("%s: its own pause is over; it stays paused, for all jobs are, by %s.", r.Ended.Job, r.Still.By)
	}
	return done{http.StatusOK, notice, struct {
		Ended *status.PauseJSON `json:"ended"`
		Still *status.PauseJSON `json:"still_paused"` // that of all jobs; null: there is none
	}{pauseJSON(&r.Ended), pauseJSON(r.Still)}}
}

func revoke(ctx context.Context, desk *control.Desk, o control.Order, in wanted) (done, error) {
	if err := in.typed(in.Lease); err != nil {
		return done{}, err
	}
	o.Epoch = in.Epoch
	r, err := desk.Revoke(ctx, o, in.Lease, in.Above)
	notice := fmt.Sprintf("%s: its epoch is %d now.", r.Lease, r.NewEpoch)
	if r.Owner != "" {
		notice = fmt.Sprintf("%s: the term of %s under epoch %d is over; its epoch is %d now.", r.Lease, r.Owner, r.Epoch, r.NewEpoch)
	}
	return done{http.StatusOK, notice, r}, err
}

// typed refuses what has not been typed to the letter.
func (g given) typed(word string) error {
	if g.Typed == word {
		return nil
	}
	return refusal{
		http.StatusBadRequest, fmt.Sprintf("It is not confirmed, and nothing was done: %q was typed where %q has to be.", clip(g.Typed, 100), clip(word, 100)),
		"Type it to the letter.",
	}
}

func pauseJSON(p *control.Pause) *status.PauseJSON {
	if p == nil {
		return nil
	}
	j := status.PauseJSON{Job: p.Job, Reason: p.Reason, By: p.By, At: &p.At}
	if !p.Until.IsZero() {
		j.Until = &p.Until
	}
	return &j
}

// jobWords is a job as a sentence names it.
func jobWords(job string) string {
	if job == control.AllJobs {
		return "All jobs"
	}
	return job
}
