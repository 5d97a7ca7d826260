package web

import (
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"time"

	"rota/internal/status"
)

const perPage = 100 // rows of a page

// A jobsPage is what the page of jobs shows.
type jobsPage struct {
	Counts     []count
	Choice     choice
	What       string // the filter in words; empty: none
	Rows       []jobRow
	AllPaused  *pause
	Rowed      string // what the rows are: jobs, or leases where some job has several
	All        int    // rows without the choice
	Total      int    // with it
	From, To   int
	Prev, Next string // addresses; empty: none
	Clear      string
	Steer      steering
	ChartsNote string
}

// A jobRow is one lease.
type jobRow struct {
	Key, Name, Title, About, Path string
	Marks                         []mark // what is odd about it
	State                         mark
	Paused                        *pause
	Owner                         *holder
	Since                         *instant
	Before                        *ending
	Epoch                         int64
	Left                          *instant
	Meter                         *meter
	Words, Raw, Zone              string
	Next, Overdue                 *instant
	Skips                         bool // the next tick, for it is paused until after
	Last                          *lastRun
	Success                       *instant
	Failing                       bool
	Refused                       int64
	Chart                         *bars
	Orders                        []order
}

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
	Path    string
	When    *instant // when it ended, or how long it has been running
	Took    string
	Tick    string
	Error   string
}

func (s *server) jobs(w http.ResponseWriter, r *http.Request) error {
	p := paramsOf(r)
	c := choice{Show: p.Get("show"), Search: clip(p.Get("q"), 200), page: int(max(1, p.number("page")))}
	if c.Show != "" && !slices.ContainsFunc(sifts, func(s sift) bool { return s.name == c.Show }) {
		p.err = errors.Join(p.err, fmt.Errorf("show %q: it must be one of %s", clip(c.Show, 40), strings.Join(siftNames(), ", ")))
	}
	if p.err != nil {
		return badQuestion(p.err)
	}
	snap, err := s.snapshot(r)
	if err != nil {
		return err
	}
	chosen := choose(snap, c)
	if c.page > 1 && c.page-1 >= (len(chosen)+perPage-1)/perPage {
		return noPage
	}
	first := (c.page - 1) * perPage
	shown := chosen[first:min(len(chosen), first+perPage)]
	past, err := s.outcomesOf(r, snap, shown)
	if err != nil {
		return err
	}
	tag := tagOf(past.Value.Tag, past.Why != nil)
	return s.page(w, r, "jobs", jobsTitle(c), snap, tag, func(b bearings) (any, error) {
		p := jobsView(snap, c, chosen, shown, past.Value.Of, b)
		if past.Why != nil {
			p.ChartsNote = oldHistory
		}
		return p, nil
	})
}

var noPage = refusal{http.StatusNotFound, "The list of jobs has no such page: it may have become shorter.", "Go back to its first page."}

const oldHistory = "The history could not be read just now; this is what was last read of it."

func jobsTitle(c choice) string {
	for _, s := range sifts {
		if s.name == c.Show {
			return "Jobs, " + s.what
		}
	}
	return "Jobs"
}

// choose returns the places in the snapshot of the leases that are chosen.
func choose(snap status.Snapshot, c choice) []int {
	chosen := make([]int, 0, len(snap.Leases))
	for i := range snap.Leases {
		if c.takes(&snap.Leases[i], snap.AsOf) {
			chosen = append(chosen, i)
		}
	}
	return chosen
}

// outcomesOf reads the newest outcomes of the leases that are shown. Without a database it returns
// what is remembered, at once.
func (s *server) outcomesOf(r *http.Request, snap status.Snapshot, shown []int) (status.Reading[status.Past], error) {
	names := make([]string, 0, len(shown))
	for _, i := range shown {
		names = append(names, snap.Leases[i].Name)
	}
	past, err := s.Status.Outcomes(r.Context(), names, !snap.Stale)
	if err != nil {
		if r.Context().Err() != nil {
			return past, err
		}
		past.Why = err // the page stands without
	}
	return past, nil
}

func jobsView(snap status.Snapshot, c choice, chosen, shown []int, past map[string][]status.Outcome, b bearings) jobsPage {
	p := jobsPage{
		Counts: overviewOf(snap, c.Show), Choice: c, Rowed: rowsAre(snap), All: len(snap.Leases), Total: len(chosen),
		From: (c.page-1)*perPage + 1, To: (c.page-1)*perPage + len(shown), Clear: choice{Show: c.Show}.path(""),
		Steer: b.steering(snap),
	}
	for _, s := range sifts {
		if s.name == c.Show {
			p.What = s.what
		}
	}
	if c.page > 1 {
		p.Prev = c.path(strconv.Itoa(c.page - 1))
	}
	if p.To < len(chosen) {
		p.Next = c.path(strconv.Itoa(c.page + 1))
	}
	for _, i := range shown {
		l := &snap.Leases[i]
		r := row(l, snap.AsOf)
		r.Chart = outcomeStrip(past[l.Name])
		r.Orders = b.ordersOf(l)
		p.Rows = append(p.Rows, r)
	}
	if len(snap.Pauses) > 0 && snap.Pauses[0].Job == status.AllJobs {
		p.AllPaused = paused(&snap.Pauses[0], snap.AsOf)
	}
	return p
}

func row(l *status.Lease, asOf time.Time) jobRow {
	r := jobRow{
		Key: l.Name, Name: clip(l.Name, 200), Title: clip(l.Name, 2000), About: clip(l.About, 300), Path: jobPath(l.Job), Marks: oddities(*l),
		State: states[l.State], Epoch: l.Epoch,
		Words: l.Words, Raw: clip(l.Schedule, 200), Zone: zoneOf(l.Schedule),
		Next: in(l.NextTick, asOf), Success: ago(l.LastSuccess, asOf), Failing: isFailing(l), Refused: l.Refused,
	}
	if l.State == status.Held {
		r.Owner = holderOf(l.Owner)
		r.Since, r.Left = lasting(l.AcquiredAt, asOf), left(l.ExpiresAt, asOf)
		if l.Length > 0 && !l.ExpiresAt.IsZero() {
			r.Meter = &meter{seconds(l.Length), seconds(l.Length / 3), seconds(min(l.Left, l.Length))}
		}
	}
	if t := l.LastEnd; t != nil {
		r.Before = &ending{ago(t.EndedAt, asOf), clip(t.Reason, 100), fmt.Sprintf("epoch %d, led by %s", t.Epoch, clip(t.Owner, 2000))}
	}
	if isOverdue(l, asOf) {
		r.Overdue = lasting(l.DueSince, asOf)
	}
	r.Last = last(l.Last, asOf)
	r.Paused = paused(l.Paused, asOf)
	r.Skips = l.Paused != nil && (l.Paused.Until.IsZero() || l.Paused.Until.After(l.NextTick))
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
	l := &lastRun{
		Outcome: outcomeMark(run.Outcome), Path: runPath(run.Job, run.ID),
		When: ago(run.EndedAt, asOf), Tick: full(run.Tick), Error: clip(run.Error, 300),
	}
	if run.EndedAt.IsZero() {
		l.When = lasting(run.StartedAt, asOf)
	} else {
		l.Took = took(run.EndedAt.Sub(run.StartedAt))
	}
	return l
}

func runPath(job string, id int64) string { return fmt.Sprintf("%s/runs/%d", jobPath(job), id) }

func seconds(d time.Duration) string { return strconv.FormatFloat(d.Seconds(), 'f', 1, 64) }
