package status

import (
	"encoding/json"
	"slices"
	"sort"
	"time"

	"rota/internal/registry"
)

// The forms in which the API and the commands' --json say the rows, all alike. A list is a Moment
// and what was true at it; null stands for what is not there.

// A Moment says when what follows was true, by the database's clock.
type Moment struct {
	AsOf       time.Time `json:"as_of"`
	Stale      bool      `json:"stale"` // the database has not answered since
	AgeSeconds float64   `json:"age_seconds"`
}

// Moment is when the snapshot was true.
func (s Snapshot) Moment() Moment { return Moment{s.AsOf, s.Stale, s.Age.Seconds()} }

// A LeaseJSON is one lease's row.
type LeaseJSON struct {
	Name       string     `json:"name"`
	Job        string     `json:"job"`
	Shard      *ShardJSON `json:"shard"` // null: the job has one lease
	Owner      string     `json:"owner"` // when free, of the last term
	Epoch      int64      `json:"epoch"`
	ExpiresAt  *time.Time `json:"expires_at"`
	AcquiredAt *time.Time `json:"acquired_at"`
	State      State      `json:"state"`
}

// A ShardJSON is which of a job's leases one is, from 1, of how many.
type ShardJSON struct {
	K  int `json:"k"`
	Of int `json:"of"`
}

// JSON is the lease's form.
func (l Lease) JSON() LeaseJSON {
	var shard *ShardJSON
	if l.Of > 1 {
		shard = &ShardJSON{l.Shard, l.Of}
	}
	return LeaseJSON{
		Name: l.Name, Job: l.Job, Shard: shard, Owner: l.Owner, Epoch: l.Epoch,
		ExpiresAt: some(l.ExpiresAt), AcquiredAt: some(l.AcquiredAt), State: l.State,
	}
}

// A JobJSON is a lease with what is known of its job.
type JobJSON struct {
	LeaseJSON
	About         string     `json:"about"`
	Runbook       string     `json:"runbook"`
	Stranded      bool       `json:"stranded"` // not held, and no live replica can lead it
	Disabled      bool       `json:"disabled"` // by the jobs file of the replica that answers
	CompiledIn    bool       `json:"compiled_in"`
	Registered    bool       `json:"registered"`
	Schedule      string     `json:"schedule"`
	ScheduleWords string     `json:"schedule_words"`
	NextTick      *time.Time `json:"next_tick"`
	DueSince      *time.Time `json:"due_since"`
	Paused        *PauseJSON `json:"paused"`
	LastRun       *RunJSON   `json:"last_run"`
	LastSuccessAt *time.Time `json:"last_success_at"`
	RefusedWrites int64      `json:"refused_writes"`
	LastEnd       *EndJSON   `json:"last_end"`
}

// JobJSON is the form of the lease with what is known of its job.
func (l Lease) JobJSON() JobJSON {
	j := JobJSON{
		LeaseJSON: l.JSON(), About: l.About, Runbook: l.Runbook, Stranded: l.Stranded, Disabled: l.Disabled, CompiledIn: l.CompiledIn, Registered: l.Registered,
		Schedule: l.Schedule, ScheduleWords: l.Words, NextTick: some(l.NextTick), DueSince: some(l.DueSince),
		LastSuccessAt: some(l.LastSuccess), RefusedWrites: l.Refused,
	}
	if p := l.Paused; p != nil {
		j.Paused = &PauseJSON{Job: p.Job, Reason: p.Reason, By: p.By, At: some(p.At), Until: some(p.Until)}
	}
	if r := l.Last; r != nil {
		run := r.JSON()
		j.LastRun = &run
	}
	if t := l.LastEnd; t != nil {
		j.LastEnd = &EndJSON{Epoch: t.Epoch, Owner: t.Owner, EndedAt: some(t.EndedAt), Reason: t.Reason}
	}
	return j
}

// A PauseJSON is a pause in force.
type PauseJSON struct {
	Job    string     `json:"job"` // "*": of all jobs
	Reason string     `json:"reason"`
	By     string     `json:"by"`
	At     *time.Time `json:"at"`
	Until  *time.Time `json:"until"` // null: until it is resumed
}

// An EndJSON is how a term ended.
type EndJSON struct {
	Epoch   int64      `json:"epoch"`
	Owner   string     `json:"owner"`
	EndedAt *time.Time `json:"ended_at"`
	Reason  string     `json:"reason"`
}

// A RunJSON is one attempt, or the record of ticks that were skipped or missed.
type RunJSON struct {
	ID            int64      `json:"id"`
	Job           string     `json:"job"`
	Lease         string     `json:"lease"`
	Tick          time.Time  `json:"tick"`
	FirstTick     *time.Time `json:"first_tick"` // of several missed ticks, of which tick is the last
	Ticks         int64      `json:"ticks"`
	Attempt       int        `json:"attempt"`
	Epoch         int64      `json:"epoch"`
	Owner         string     `json:"owner"`
	StartedAt     *time.Time `json:"started_at"`
	EndedAt       *time.Time `json:"ended_at"`
	Outcome       *string    `json:"outcome"` // null while it runs
	Error         string     `json:"error"`
	RefusedWrites int64      `json:"refused_writes"`
	RequestID     *int64     `json:"request_id"` // null: a scheduled tick
}

// JSON is the run's form.
func (r Run) JSON() RunJSON {
	return RunJSON{
		ID: r.ID, Job: r.Job, Lease: r.Lease, Tick: r.Tick, FirstTick: some(r.FirstTick), Ticks: r.Ticks,
		Attempt: r.Attempt, Epoch: r.Epoch, Owner: r.Owner, StartedAt: some(r.StartedAt), EndedAt: some(r.EndedAt),
		Outcome: given(r.Outcome), Error: r.Error, RefusedWrites: r.Refused, RequestID: given(r.Request),
	}
}

func runsJSON(runs []Run) []RunJSON {
	all := make([]RunJSON, 0, len(runs))
	for _, r := range runs {
		all = append(all, r.JSON())
	}
	return all
}

// JSON is the page's form.
func (p RunsPage) JSON() any {
	return struct {
		Moment
		Runs []RunJSON `json:"runs"`
		Next *int64    `json:"next_before"` // null: there are no more
	}{Moment{AsOf: p.AsOf}, runsJSON(p.Runs), given(p.Next)}
}

// JSON is the record's form.
func (r RunRecord) JSON() any {
	var asked *RequestJSON
	if r.Request != nil {
		q := r.Request.JSON()
		asked = &q
	}
	return struct {
		Moment
		Run      RunJSON      `json:"run"`
		Log      string       `json:"log"`
		Attempts []RunJSON    `json:"attempts"`
		Request  *RequestJSON `json:"request"`
	}{Moment{AsOf: r.AsOf}, r.Run.JSON(), r.Log, runsJSON(r.Attempts), asked}
}

// A RequestJSON is what an operator asked for.
type RequestJSON struct {
	ID      int64           `json:"id"`
	Kind    string          `json:"kind"`
	Job     *string         `json:"job"`
	Lease   *string         `json:"lease"`
	Epoch   *int64          `json:"epoch"`
	RunID   *int64          `json:"run_id"`
	Replica *string         `json:"replica"`
	Args    json.RawMessage `json:"args"`
	Reason  string          `json:"reason"`
	By      string          `json:"by"`
	MadeAt  *time.Time      `json:"made_at"`
	DoneAt  *time.Time      `json:"done_at"` // null: nobody has settled it
	Result  *string         `json:"result"`
}

// JSON is the request's form.
func (q Request) JSON() RequestJSON {
	return RequestJSON{
		ID: q.ID, Kind: q.Kind, Job: given(q.Job), Lease: given(q.Lease), Epoch: given(q.Epoch), RunID: given(q.Run),
		Replica: given(q.Replica), Args: q.Args, Reason: q.Reason, By: q.By,
		MadeAt: some(q.MadeAt), DoneAt: some(q.DoneAt), Result: given(q.Result),
	}
}

// JSON is the page's form.
func (p RequestsPage) JSON() any {
	requests := make([]RequestJSON, 0, len(p.Open))
	for _, q := range p.Open {
		requests = append(requests, q.JSON())
	}
	return struct {
		Moment
		Requests []RequestJSON `json:"requests"`
		Next     *int64        `json:"next_after"` // null: there are no more
	}{Moment{AsOf: p.AsOf}, requests, given(p.Next)}
}

// A LineJSON is one line of the audit.
type LineJSON struct {
	ID        int64           `json:"id"`
	At        *time.Time      `json:"at"`
	Actor     string          `json:"actor"`
	Via       string          `json:"via"`
	Action    string          `json:"action"`
	Job       *string         `json:"job"`
	Lease     *string         `json:"lease"`
	Replica   *string         `json:"replica"`
	RunID     *int64          `json:"run_id"`
	RequestID *int64          `json:"request_id"`
	Reason    string          `json:"reason"`
	Detail    json.RawMessage `json:"detail"`
}

// JSON is the page's form.
func (p AuditPage) JSON() any {
	lines := make([]LineJSON, 0, len(p.Lines))
	for _, l := range p.Lines {
		lines = append(lines, l.JSON())
	}
	return struct {
		Moment
		Lines []LineJSON `json:"audit"`
		Next  *int64     `json:"next_before"` // null: there are no more
	}{Moment{AsOf: p.AsOf}, lines, given(p.Next)}
}

// JSON is the line's form.
func (l Line) JSON() LineJSON {
	return LineJSON{
		ID: l.ID, At: some(l.At), Actor: l.Actor, Via: l.Via, Action: l.Action, Job: given(l.Job), Lease: given(l.Lease),
		Replica: given(l.Replica), RunID: given(l.Run), RequestID: given(l.Request), Reason: l.Reason, Detail: l.Detail,
	}
}

// An EventJSON is the beginning or the end of a term, or a line of the audit.
type EventJSON struct {
	At     *time.Time `json:"at"`
	Kind   string     `json:"kind"`
	Lease  string     `json:"lease"`
	Epoch  *int64     `json:"epoch"`
	Owner  *string    `json:"owner"`
	Reason string     `json:"reason"`
	Line   *LineJSON  `json:"line"` // null: it is of a term
}

// JSON is the page's form, with when it was true.
func (p EventsPage) JSON(m Moment) any {
	events := make([]EventJSON, 0, len(p.Events))
	for _, e := range p.Events {
		j := EventJSON{At: some(e.At), Kind: e.Kind, Lease: e.Lease, Epoch: given(e.Epoch), Owner: given(e.Owner), Reason: e.Reason}
		if e.Line != nil {
			line := e.Line.JSON()
			j.Line = &line
		}
		events = append(events, j)
	}
	return struct {
		Moment
		Events []EventJSON `json:"events"`
		Next   *string     `json:"next_before"` // null: there are no more
	}{m, events, given(p.Next)}
}

// A ReplicaJSON is one process.
type ReplicaJSON struct {
	ID                 string     `json:"id"`
	Standing           Standing   `json:"standing"`
	Host               string     `json:"host"`
	PID                int        `json:"pid"`
	Version            string     `json:"version"`
	StartedAt          *time.Time `json:"started_at"`
	SeenAt             *time.Time `json:"seen_at"`
	ExpiresAt          *time.Time `json:"expires_at"`
	ClockOffsetSeconds float64    `json:"clock_offset_seconds"`
	Notified           bool       `json:"notified"`
	Leases             int        `json:"leases"`
}

// JSON is the replica's form.
func (r Replica) JSON() ReplicaJSON {
	return ReplicaJSON{
		ID: r.ID, Standing: r.Standing, Host: r.Host, PID: r.PID, Version: r.Version,
		StartedAt: some(r.StartedAt), SeenAt: some(r.SeenAt), ExpiresAt: some(r.ExpiresAt),
		ClockOffsetSeconds: r.ClockOffset.Seconds(), Notified: r.Hints, Leases: r.Leases,
	}
}

// After is the snapshot with no more than limit of the leases that come after the one of that name, and the
// name of the last where more follow. A limit of zero is none.
func (s Snapshot) After(name string, limit int) (part Snapshot, next string) {
	at := 0
	if name != "" {
		last := Lease{Name: name}
		last.Job, last.Shard, last.Of = registry.LeaseOf(name)
		at = sort.Search(len(s.Leases), func(i int) bool { return byShard(s.Leases[i], last) > 0 })
	}
	s.Leases = s.Leases[at:]
	if limit > 0 && len(s.Leases) > limit {
		s.Leases = s.Leases[:limit:limit]
		next = s.Leases[limit-1].Name
	}
	return s, next
}

// LeasesJSON is the list of leases; after it, the list of those behind next: empty, there is none.
func (s Snapshot) LeasesJSON(next string) any {
	leases := make([]LeaseJSON, 0, len(s.Leases))
	for _, l := range s.Leases {
		leases = append(leases, l.JSON())
	}
	return struct {
		Moment
		Leases []LeaseJSON `json:"leases"`
		Next   *string     `json:"next_after"` // null: there are no more
	}{s.Moment(), leases, given(next)}
}

// JobsJSON is the list of leases with what is known of their jobs, with next as in LeasesJSON.
func (s Snapshot) JobsJSON(next string) any {
	jobs := make([]JobJSON, 0, len(s.Leases))
	for _, l := range s.Leases {
		jobs = append(jobs, l.JobJSON())
	}
	return struct {
		Moment
		Jobs []JobJSON `json:"jobs"`
		Next *string   `json:"next_after"` // null: there are no more
	}{s.Moment(), jobs, given(next)}
}

// ReplicasJSON is the list of replicas, or of no more than limit of those that come after the one of that
// id. A limit of zero is none. It is false where there is no such replica.
func (s Snapshot) ReplicasJSON(after string, limit int) (any, bool) {
	rest := s.Replicas
	if after != "" {
		at := slices.IndexFunc(rest, func(r Replica) bool { return r.ID == after })
		if at < 0 {
			return nil, false
		}
		rest = rest[at+1:]
	}
	next := ""
	if limit > 0 && len(rest) > limit {
		rest = rest[:limit]
		next = rest[limit-1].ID
	}
	replicas := make([]ReplicaJSON, 0, len(rest))
	for _, r := range rest {
		replicas = append(replicas, r.JSON())
	}
	return struct {
		Moment
		Replicas []ReplicaJSON `json:"replicas"`
		Next     *string       `json:"next_after"` // null: there are no more
	}{s.Moment(), replicas, given(next)}, true
}

// some is null for no time.
func some(t time.Time) *time.Time {
	if t.IsZero() {
		return nil
	}
	return &t
}

// given is null for what is empty.
func given[T comparable](v T) *T {
	var none T
	if v == none {
		return nil
	}
	return &v
}
