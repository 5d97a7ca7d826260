package web

import (
	"fmt"
	"net/url"
	"strings"
	"time"

	"rota/internal/status"
)

const overdueBy = 5 * time.Second // a tick that is due for less is about to be taken

// A count is one figure of the overview, and a link to what it counts.
type count struct {
	What, Path string
	N          int64
	Bad        bool // it asks for attention
	Shown      bool // the list is of these
}

// Words are What, of one where it is one.
func (c count) Words() string {
	switch c.What {
	case "jobs", "leases", "replicas":
		return thing(fmt.Sprint(c.N), c.What)
	}
	return c.What
}

// A sift is a way to filter the list of jobs.
type sift struct {
	name, what string
	bad        bool // any at all ask for attention
	takes      func(l *status.Lease, asOf time.Time) bool
}

var sifts = []sift{
	{"held", "held", false, func(l *status.Lease, _ time.Time) bool { return l.State == status.Held }},
	{"free", "free", true, func(l *status.Lease, _ time.Time) bool { return l.State == status.Free }},
	{"never", "never held", true, func(l *status.Lease, _ time.Time) bool { return l.State == status.Never }},
	{"paused", "paused", true, func(l *status.Lease, _ time.Time) bool { return l.Paused != nil }},
	{"running", "running", false, func(l *status.Lease, _ time.Time) bool { return l.Last != nil && l.Last.EndedAt.IsZero() }},
	{"failing", "failing", true, func(l *status.Lease, _ time.Time) bool { return isFailing(l) }},
	{"overdue", "overdue", true, isOverdue},
	{"refused", "with refused writes", false, func(l *status.Lease, _ time.Time) bool { return l.Refused > 0 }},
}

func siftNames() []string {
	names := make([]string, 0, len(sifts))
	for _, s := range sifts {
		names = append(names, s.name)
	}
	return names
}

func isFailing(l *status.Lease) bool {
	return l.Last != nil && !l.Last.EndedAt.IsZero() && outcomes[l.Last.Outcome].Class == "bad"
}

func isOverdue(l *status.Lease, asOf time.Time) bool {
	return !l.DueSince.IsZero() && asOf.Sub(l.DueSince) > overdueBy
}

// overviewOf counts in one pass. shown is the filter in force; empty: none.
func overviewOf(snap status.Snapshot, shown string) []count {
	n := make([]int64, len(sifts))
	for i := range snap.Leases {
		for j := range sifts {
			if sifts[j].takes(&snap.Leases[i], snap.AsOf) {
				n[j]++
			}
		}
	}
	jobs := jobsIn(snap)
	all := []count{{What: "jobs", Path: "/", N: int64(jobs), Shown: shown == ""}}
	if jobs < len(snap.Leases) {
		all = append(all, count{What: "leases", Path: "/", N: int64(len(snap.Leases)), Shown: shown == ""})
	}
	for j, s := range sifts {
		all = append(all, count{s.what, "/?show=" + s.name, n[j], s.bad && n[j] > 0, shown == s.name})
	}
	var members int64
	for _, r := range snap.Replicas {
		if r.Standing == status.Member || r.Standing == status.Draining {
			members++
		}
	}
	return append(all, count{"replicas", "/replicas", members, members == 0, false})
}

// jobsIn counts the jobs, whose leases stand together.
func jobsIn(snap status.Snapshot) (n int) {
	for i := range snap.Leases {
		if i == 0 || snap.Leases[i].Job != snap.Leases[i-1].Job {
			n++
		}
	}
	return n
}

// rowsAre what the list of jobs has a row for each of.
func rowsAre(snap status.Snapshot) string {
	if jobsIn(snap) < len(snap.Leases) {
		return "leases"
	}
	return "jobs"
}

// A choice is what the address asks of the list of jobs.
type choice struct {
	Show, Search string
	page         int
}

// takes reports whether a lease is of the chosen ones. The search is for a part of the name, of what
// it is about, or of its holder's name, in any case.
func (c choice) takes(l *status.Lease, asOf time.Time) bool {
	if c.Show != "" {
		for _, s := range sifts {
			if s.name == c.Show && !s.takes(l, asOf) {
				return false
			}
		}
	}
	if c.Search == "" {
		return true
	}
	want := strings.ToLower(c.Search)
	return strings.Contains(strings.ToLower(l.Name), want) || strings.Contains(strings.ToLower(l.About), want) ||
		l.State == status.Held && strings.Contains(strings.ToLower(l.Owner), want)
}

// path is the address of the chosen list, at a page of it.
func (c choice) path(page string) string {
	q := url.Values{}
	for name, value := range map[string]string{"show": c.Show, "q": c.Search, "page": page} {
		if value != "" {
			q.Set(name, value)
		}
	}
	if len(q) == 0 {
		return "/"
	}
	return "/?" + q.Encode()
}
