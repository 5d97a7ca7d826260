package web

import (
	"crypto/rand"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"slices"
	"strings"

	"github.com/go-chi/chi/v5"

	"rota/internal/registry"
	"rota/internal/status"
)

// A form is the page on which an order is given. The script shows it as a dialog over the page that
// offers it; without script it is a page of its own.
type form struct {
	Title   string
	Says    []string // what will come of it
	Warning string
	Action  string // where it is sent
	Back    string // the page that it leads back to
	Submit  string
	Grave   bool // it ends something at once

	Args   *string // the arguments that are offered; nil: it takes none
	Epoch  int64   // of the term that it is about; zero: it is about none
	Key    string  // that makes it safe to send twice
	Until  bool    // it may end by itself
	Reason string  // how the reason is asked for: required, optional, or empty for not at all
	Typed  string  // what has to be typed
	Shards []shard // of which one or all are chosen; none: there is nothing to choose
	Given  url.Values

	Problem, Next string // why it came to nothing when it was sent
}

// A shard is one that may be chosen.
type shard struct {
	K, Of  int
	Chosen bool
}

// shardChoice is those of the lease's job; the one that the form came back with, or that its address
// names, is chosen.
func shardChoice(r *http.Request, l status.Lease) []shard {
	var all []shard
	for k := 1; k <= l.Of && l.Of > 1; k++ {
		all = append(all, shard{k, l.Of, r.FormValue("shard") == fmt.Sprint(k)})
	}
	return all
}

// A draft is what a form is made of.
type draft func(s *server, r *http.Request, snap status.Snapshot) (form, error)

// forms are at the paths of their orders.
var forms = map[string]draft{
	"/jobs/{job}/run":               runForm,
	"/jobs/{job}/pause":             pauseForm,
	"/jobs/{job}/resume":            resumeForm,
	"/pause":                        pauseAllForm,
	"/resume":                       resumeAllForm,
	"/leases/{lease}/step-down":     stepDownForm,
	"/leases/{lease}/revoke":        revokeForm,
	"/runs/{run}/cancel":            cancelForm,
	"/replicas/{id}/drain":          drainForm,
	"/replicas/{name}/{rest}/drain": drainForm,
	"/requests/{request}/withdraw":  withdrawForm,
}

// confirm answers with the form.
func (s *server) confirm(d draft) func(http.ResponseWriter, *http.Request) error {
	return func(w http.ResponseWriter, r *http.Request) error {
		snap, err := s.snapshot(r)
		if err != nil {
			return err
		}
		f, err := d(s, r, snap)
		if err != nil {
			return err
		}
		f.Given = url.Values{}
		f.Back = r.URL.Query().Get("back")
		if can, _ := rightsOf(r); !can.Operate {
			f.Says = append(f.Says, "You may look, and not do this: the server will refuse it.")
		}
		return s.sendForm(w, r, http.StatusOK, f, snap)
	}
}

// formFailed answers an order that came to nothing with its form, what was filled in, and why.
func (s *server) formFailed(w http.ResponseWriter, r *http.Request, wrong error) {
	var told refusal
	d := forms[chi.RouteContext(r.Context()).RoutePattern()]
	if d == nil || !errors.As(wrong, &told) {
		s.fail(w, r, wrong)
		return
	}
	var snap status.Snapshot
	var err error
	if told.code == http.StatusServiceUnavailable { // nobody is to wait for the database once more
		snap, err = s.Status.Remembered()
	} else {
		snap, err = s.snapshot(r)
	}
	if err != nil {
		s.fail(w, r, wrong)
		return
	}
	f, err := d(s, r, snap)
	if err != nil { // what it was about is not there, which is what it came to nothing for
		s.fail(w, r, wrong)
		return
	}
	f.Given, f.Back = r.PostForm, r.PostForm.Get("back")
	f.Problem, f.Next = told.reason, told.Next
	if key := f.Given.Get("key"); key != "" {
		f.Key = key // it may have been done all the same
	}
	if err := s.sendForm(w, r, told.code, f, snap); err != nil {
		s.fail(w, r, err)
	}
}

func (s *server) sendForm(w http.ResponseWriter, r *http.Request, code int, f form, snap status.Snapshot) error {
	f.Action = r.URL.EscapedPath()
	if f.Back == "" || !strings.HasPrefix(f.Back, "/") || strings.HasPrefix(f.Back, "//") || strings.ContainsAny(f.Back, "\\\n\r\t") {
		f.Back = "/"
	}
	h := s.head(r, f.Title)
	h.Stale, h.AsOf, h.Age = snap.Stale, at(snap.AsOf), duration(snap.Age)
	body, err := render(r, "form", h, nil, f)
	if err != nil {
		return err
	}
	w.Header().Set("Content-Type", "text/html; charset=utf-8")
	w.WriteHeader(code)
	_, _ = w.Write(body)
	return nil
}

// leaseOf finds a lease by the job of the path, or by its own name.
func leaseOf(snap status.Snapshot, takes func(l status.Lease) bool) (status.Lease, bool) {
	i := slices.IndexFunc(snap.Leases, takes)
	if i < 0 {
		return status.Lease{}, false
	}
	return snap.Leases[i], true
}

var (
	errNoJobHere   = refusal{http.StatusNotFound, "There is no job of this name.", "The list of jobs has all there are."}
	errNoLeaseHere = refusal{http.StatusNotFound, "There is no lease of this name.", "The list of jobs has all there are."}
)

func jobOfPath(r *http.Request, snap status.Snapshot) (status.Lease, error) {
	name := param(r, "job")
	l, found := leaseOf(snap, func(l status.Lease) bool { return l.Job == name })
	if !found {
		return l, errNoJobHere
	}
	return l, nil
}

func leaseOfPath(r *http.Request, snap status.Snapshot) (status.Lease, error) {
	name := param(r, "lease")
	l, found := leaseOf(snap, func(l status.Lease) bool { return l.Name == name })
	if !found {
		return l, errNoLeaseHere
	}
	return l, nil
}

func host(owner string) string {
	host, _ := parts(owner)
	return host
}

func runForm(s *server, r *http.Request, snap status.Snapshot) (form, error) {
	l, err := jobOfPath(r, snap)
	if err != nil {
		return form{}, err
	}
	f := form{Title: "Run " + clip(l.Job, 100) + " now", Submit: "Run now", Reason: "optional", Key: rand.Text(), Shards: shardChoice(r, l)}
	switch {
	case unbroken(l):
		f.Warning = "It is continuous: it runs whenever it is led, and not on request. Step down starts it anew."
	case l.Of > 1:
		f.Says = append(f.Says, fmt.Sprintf("Each of its %d shards runs once, or the one that you choose, on the replica that leads it.", l.Of))
	case l.State != status.Held:
		f.Says = append(f.Says, "Nobody leads it now: the run waits until somebody does.")
	case l.Last != nil && l.Last.EndedAt.IsZero():
		f.Says = append(f.Says, fmt.Sprintf("A run is under way on %s: this one starts after it.", host(l.Owner)))
	default:
		f.Says = append(f.Says, fmt.Sprintf("%s leads it under epoch %d, and starts the run at once.", host(l.Owner), l.Epoch))
	}
	if l.Paused != nil && !unbroken(l) {
		f.Says = append(f.Says, "The job is paused, which does not keep a requested run back.")
	}
	if args := argsOf(s.jobNamed(l.Job)); args != "" {
		args = indented([]byte(args))
		f.Args = &args
	}
	return f, nil
}

func pauseForm(_ *server, r *http.Request, snap status.Snapshot) (form, error) {
	l, err := jobOfPath(r, snap)
	if err != nil {
		return form{}, err
	}
	f := form{Title: "Pause " + clip(l.Job, 100), Submit: "Pause", Reason: "required", Until: true}
	switch running := underWay(snap, l.Job); {
	case unbroken(l) && running:
		f.Says = []string{"It stays led. It is continuous: the run under way is cancelled, and one begins when it is resumed."}
	case unbroken(l):
		f.Says = []string{"It stays led. It is continuous: no run begins until it is resumed."}
	case running:
		f.Says = []string{"It stays led. Its ticks are recorded as skipped and not caught up. The run under way goes on: cancel it on its own page if it should not."}
	default:
		f.Says = []string{"It stays led. Its ticks are recorded as skipped and not caught up."}
	}
	switch p := l.Paused; {
	case p == nil:
	case p.Job == status.AllJobs:
		f.Says = append(f.Says, fmt.Sprintf("It is paused already, with all jobs, by %s: %s. This is a pause of its own besides.", clip(p.By, 100), clip(p.Reason, 300)))
	default:
		f.Says = append(f.Says, fmt.Sprintf("It is paused already, by %s: %s. This replaces that pause.", clip(p.By, 100), clip(p.Reason, 300)))
	}
	return f, nil
}

// unbroken reports whether the lease's job is a continuous one.
func unbroken(l status.Lease) bool { return l.Schedule == registry.Continuous.String() }

// underWay reports whether a run of the job is.
func underWay(snap status.Snapshot, job string) bool {
	return slices.ContainsFunc(snap.Leases, func(l status.Lease) bool {
		return l.Job == job && l.Last != nil && l.Last.EndedAt.IsZero()
	})
}

func resumeForm(_ *server, r *http.Request, snap status.Snapshot) (form, error) {
	l, err := jobOfPath(r, snap)
	if err != nil {
		return form{}, err
	}
	f := form{Title: "Resume " + clip(l.Job, 100), Submit: "Resume", Reason: "required"}
	if p := l.Paused; p != nil {
		f.Says = []string{fmt.Sprintf("Paused by %s since %s: %s", clip(p.By, 100), at(p.At).Text, clip(p.Reason, 300))}
	}
	switch {
	case l.Paused == nil:
		f.Says = []string{"It is not paused, so there is nothing to resume."}
	case l.Paused.Job == status.AllJobs:
		f.Says = append(f.Says, "That is the pause of all jobs, which is ended for all of them. This would end a pause of the job's own.")
	case unbroken(l):
		f.Says = append(f.Says, "It is continuous: its run begins again at once.")
	default:
		f.Says = append(f.Says, "It takes its next tick again; those that were skipped meanwhile are not caught up.")
	}
	return f, nil
}

func pauseAllForm(_ *server, _ *http.Request, snap status.Snapshot) (form, error) {
	return form{
		Title: "Pause all jobs", Submit: "Pause all jobs", Reason: "required", Until: true, Typed: "all", Grave: true,
		Says: []string{fmt.Sprintf("%s stay led and take no ticks: each is recorded as skipped, and not caught up. Runs under way go on, save continuous ones.", plural(len(snap.Leases), "leases"))},
	}, nil
}

func resumeAllForm(_ *server, _ *http.Request, snap status.Snapshot) (form, error) {
	f := form{Title: "Resume all jobs", Submit: "Resume all jobs", Reason: "required"}
	if len(snap.Pauses) == 0 || snap.Pauses[0].Job != status.AllJobs {
		f.Says = []string{"All jobs at once are not paused, so there is nothing to resume here. Jobs that are paused on their own are resumed one by one."}
		return f, nil
	}
	p := snap.Pauses[0]
	f.Says = []string{
		fmt.Sprintf("Paused by %s since %s: %s", clip(p.By, 100), at(p.At).Text, clip(p.Reason, 300)),
		"Jobs that are paused on their own stay so.",
	}
	return f, nil
}

func stepDownForm(_ *server, r *http.Request, snap status.Snapshot) (form, error) {
	l, err := leaseOfPath(r, snap)
	if err != nil {
		return form{}, err
	}
	f := form{Title: "Step down from " + clip(l.Name, 100), Submit: "Step down", Reason: "required", Epoch: l.Epoch}
	if l.State == status.Held {
		f.Says = []string{fmt.Sprintf("%s gives up its term under epoch %d once its run has returned; %s.", host(l.Owner), l.Epoch, heir(snap, l))}
	} else {
		f.Says = []string{"Nobody leads it now, so there is no term to give up."}
	}
	return f, nil
}

func revokeForm(_ *server, r *http.Request, snap status.Snapshot) (form, error) {
	l, err := leaseOfPath(r, snap)
	if err != nil {
		return form{}, err
	}
	f := form{Title: "Revoke " + clip(l.Name, 100), Submit: "Revoke", Reason: "required", Typed: l.Name, Grave: true, Epoch: l.Epoch}
	f.Says = []string{
		fmt.Sprintf("The term under epoch %d ends now, without its leader: every later write of it through the fence is refused; %s, under a higher epoch.", l.Epoch, heir(snap, l)),
		"What its run does outside the fence goes on until the run notices. Step down waits for the run instead.",
	}
	for _, rep := range snap.Replicas {
		if l.State == status.Held && rep.ID == l.Owner && rep.Standing == status.Member {
			f.Warning = fmt.Sprintf("%s is alive: its last heartbeat was %s before this page was made. Step down is the gentler way.", host(l.Owner), duration(snap.AsOf.Sub(rep.SeenAt)))
		}
	}
	return f, nil
}

func drainForm(_ *server, r *http.Request, snap status.Snapshot) (form, error) {
	id := param(r, "id")
	if name := param(r, "name"); name != "" {
		id = name + "/" + param(r, "rest")
	}
	i := slices.IndexFunc(snap.Replicas, func(rep status.Replica) bool { return rep.ID == id })
	if i < 0 {
		return form{}, refusal{http.StatusNotFound, "There is no such replica.", "The list of replicas has all there are."}
	}
	var moves, orphans []string
	for _, l := range snap.Leases {
		if l.State != status.Held || l.Owner != id {
			continue
		}
		moves = append(moves, clip(l.Name, 60))
		if !snap.HasHeir(l) {
			orphans = append(orphans, clip(l.Name, 60))
		}
	}
	f := form{Title: "Drain " + host(id), Submit: "Drain", Reason: "required"}
	f.Says = []string{"It takes no new terms, gives up each one it has once its run has returned, and is not ready from then on. A restart ends that."}
	move := "move"
	switch {
	case len(orphans) == 0:
	case !hasOthers(snap, id):
		move = "are given up"
		f.Warning = "No other replica is there to take over: nobody leads these until one is."
	case len(orphans) > 12:
		f.Warning = fmt.Sprintf("No other replica that is there can lead %d of them: nobody leads those until one can.", len(orphans))
	default:
		f.Warning = "No other replica that is there can lead " + strings.Join(orphans, ", ") + ": nobody leads that until one can."
	}
	switch {
	case len(moves) == 0:
		f.Says = append(f.Says, "It leads nothing now.")
	case len(moves) > 12:
		f.Says = append(f.Says, fmt.Sprintf("%s %s, %s among them.", plural(len(moves), "leases"), move, strings.Join(moves[:12], ", ")))
	default:
		f.Says = append(f.Says, "These "+move+": "+strings.Join(moves, ", ")+".")
	}
	return f, nil
}

// hasOthers says whether another replica than the named one may take what that one gives up.
func hasOthers(snap status.Snapshot, id string) bool {
	return slices.ContainsFunc(snap.Replicas, func(rep status.Replica) bool { return rep.Standing == status.Member && rep.ID != id })
}

// heir is what becomes of a term that ends.
func heir(snap status.Snapshot, l status.Lease) string {
	switch {
	case !hasOthers(snap, l.Owner):
		return "no other replica is there, so it may take it again"
	case !snap.HasHeir(l):
		return "no other replica that is there can lead it, so it may take it again"
	}
	return "another replica takes over"
}
