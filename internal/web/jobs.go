package web

import (
	"fmt"
	"net/http"
	"strconv"
	"time"

	"rota/internal/status"
)

const (
	perPage   = 100             // rows of a page
	overdueBy = 5 * time.Second // a tick that is due for less is about to be taken
)

// A jobsPage is what the page of jobs shows.
type jobsPage struct {
	Counts     []count
	Rows       []jobRow
	Total      int
	From, To   int
	Prev, Next int // pages; zero: none
}

// A count is one figure of the overview.
type count struct {
	What string
	N    int64
	Bad  bool // it asks for attention
}

// A jobRow is one lease.
type jobRow struct {
	Key, Name, Title, About, Runbook string
	Marks                            []mark // what is odd about it
	State                            mark
	Paused                           *pause
	Owner, Process, OwnerTitle       string // the host, the start of its UUID, and all of it
	Since                            *instant
	Before                           *ending
	Epoch                            int64
	Left                             *instant
	Meter                            *meter
	Words, Raw                       string
	Next, Overdue                    *instant
	Last                             *lastRun
	Success                          *instant
	Refused                          int64
}

// A mark is a word with an icon, so that nothing is said by colour alone.
type mark struct{ Class, Icon, Word, Title string }

// A pause is why a job takes no ticks, and who wants it so.
type pause struct {
	Mark         mark
	By, Reason   string
	Since, Until *instant
}

// A meter is how much of a lease is left, in seconds.
type meter struct{ Max, Low, Value string }

// An ending is how the term before this one ended.
type ending struct {
	When   *instant
	Reason string
	Title  string
}

// A lastRun is the newest attempt.
type lastRun struct {
	Outcome mark
	When    *instant // when it ended, or how long it has been running
	Took    string
	Tick    string
	Error   string
}

func (s *server) jobs(w http.ResponseWriter, r *http.Request) error {
	snap, err := s.snapshot(r)
	if err != nil {
		return err
	}
	page, err := jobsView(snap, r.URL.Query().Get("page"))
	if err != nil {
		return err
	}
	return s.page(w, r, "jobs", "Jobs", snap, page)
}

// jobsView is the wanted page of the jobs, counted from 1.
func jobsView(snap status.Snapshot, wanted string) (jobsPage, error) {
	total := len(snap.Leases)
	last := max(1, (total+perPage-1)/perPage)
	n := 1
	if wanted != "" {
		var err error
		if n, err = strconv.Atoi(wanted); err != nil || n < 1 || n > last {
			return jobsPage{}, refusal{
				http.StatusNotFound,
				fmt.Sprintf("There is no such page of jobs; the last is page %d.", last), "Go back to the jobs.",
			}
		}
	}
	p := jobsPage{Counts: counts(snap), Total: total, From: (n-1)*perPage + 1, To: min(total, n*perPage), Prev: n - 1}
	if n < last {
		p.Next = n + 1
	}
	for _, l := range snap.Leases[p.From-1 : p.To] {
		p.Rows = append(p.Rows, row(l, snap.AsOf))
	}
	return p, nil
}

// counts is the overview of all jobs, whichever page is shown.
func counts(snap status.Snapshot) []count {
	var held, free, never, paused, running, failing, overdue, refused, members int64
	for _, l := range snap.Leases {
		switch l.State {
		case status.Held:
			held++
		case status.Free:
			free++
		case status.Never:
			never++
		}
		switch {
		case l.Last == nil:
		case l.Last.EndedAt.IsZero():
			running++
		case outcomes[l.Last.Outcome].Class == "bad":
			failing++
		}
		if isOverdue(l, snap.AsOf) {
			overdue++
		}
		if l.Paused != nil {
			paused++
		}
		refused += l.Refused
	}
	for _, r := range snap.Replicas {
		if r.Standing == status.Member || r.Standing == status.Draining {
			members++
		}
	}
	return []count{
		{"jobs", int64(len(snap.Leases)), false},
		{"held", held, false},
		{"free", free, free > 0},
		{"never held", never, never > 0},
		{"paused", paused, paused > 0},
		{"running", running, false},
		{"failing", failing, failing > 0},
		{"overdue", overdue, overdue > 0},
		{"late writes refused", refused, false},
		{"replicas", members, members == 0},
	}
}

func isOverdue(l status.Lease, asOf time.Time) bool {
	return !l.DueSince.IsZero() && asOf.Sub(l.DueSince) > overdueBy
}

var states = map[status.State]mark{
	status.Held:  {"good", "●", "held", "its lease runs out in the future"},
	status.Free:  {"warn", "○", "free", "nobody leads it: its lease has run out or was released"},
	status.Never: {"idle", "◌", "never held", "nobody has led it yet"},
}

var outcomes = map[string]mark{
	"":          {"busy", "▸", "running", "it has not ended"},
	"success":   {"good", "✓", "success", ""},
	"failed":    {"bad", "✗", "failed", "it returned an error"},
	"panicked":  {"bad", "✗", "panicked", "it panicked; the replica went on"},
	"timed_out": {"bad", "✗", "timed out", "it took longer than the job's timeout"},
	"cancelled": {"idle", "–", "cancelled", ""},
	"fenced":    {"warn", "⊘", "fenced", "its term was over: a late write was refused"},
	"lost":      {"warn", "⊘", "lost", "its term ended before it did"},
}

func row(l status.Lease, asOf time.Time) jobRow {
	r := jobRow{
		Key: l.Name, Name: clip(l.Name, 200), Title: clip(l.Name, 2000), About: l.About, Runbook: l.Runbook,
		State: states[l.State], Epoch: l.Epoch,
		Words: l.Words, Raw: l.Schedule,
		Next: in(l.NextTick, asOf), Success: ago(l.LastSuccess, asOf), Refused: l.Refused,
	}
	if !l.CompiledIn {
		r.Marks = append(r.Marks, mark{"warn", "?", "unknown here", "a lease in the database that no job of this binary has: an older or a newer version's, or another program's"})
	}
	if !l.Registered {
		r.Marks = append(r.Marks, mark{"warn", "?", "not registered yet", "a job of this binary without a lease in the database: no replica with it has started here"})
	}
	if l.Disabled {
		r.Marks = append(r.Marks, mark{"idle", "–", "disabled here", "the jobs file of the replica that shows this page takes it out of its work"})
	}
	if l.Stranded {
		r.Marks = append(r.Marks, mark{"bad", "!", "no replica can lead it", "no live replica has this job, or each one is told not to lead it"})
	}
	if l.State == status.Held {
		r.Owner, r.Process = parts(l.Owner)
		r.OwnerTitle = clip(l.Owner, 2000)
		r.Since, r.Left = lasting(l.AcquiredAt, asOf), left(l.ExpiresAt, asOf)
		if l.Length > 0 && !l.ExpiresAt.IsZero() {
			r.Meter = &meter{seconds(l.Length), seconds(l.Length / 3), seconds(min(l.Left, l.Length))}
		}
	}
	if t := l.LastEnd; t != nil {
		r.Before = &ending{ago(t.EndedAt, asOf), t.Reason, fmt.Sprintf("epoch %d, led by %s", t.Epoch, clip(t.Owner, 2000))}
	}
	if isOverdue(l, asOf) {
		r.Overdue = lasting(l.DueSince, asOf)
	}
	r.Last = last(l.Last, asOf)
	r.Paused = paused(l.Paused, asOf)
	return r
}

func paused(p *status.Pause, asOf time.Time) *pause {
	if p == nil {
		return nil
	}
	m := mark{"warn", "‖", "paused", "it is led, and its ticks are recorded as skipped"}
	if p.Job == status.AllJobs {
		m.Word, m.Title = "paused with all jobs", "all jobs are paused; "+m.Title
	}
	return &pause{m, clip(p.By, 200), clip(p.Reason, 300), ago(p.At, asOf), in(p.Until, asOf)}
}

func last(run *status.Run, asOf time.Time) *lastRun {
	if run == nil {
		return nil
	}
	l := &lastRun{Outcome: outcomes[run.Outcome], When: ago(run.EndedAt, asOf), Tick: full(run.Tick), Error: clip(run.Error, 300)}
	if l.Outcome.Word == "" {
		l.Outcome = mark{"idle", "?", run.Outcome, ""}
	}
	if run.EndedAt.IsZero() {
		l.When = lasting(run.StartedAt, asOf)
	} else {
		l.Took = took(run.EndedAt.Sub(run.StartedAt))
	}
	return l
}

func seconds(d time.Duration) string { return strconv.FormatFloat(d.Seconds(), 'f', 1, 64) }
