package web

import (
	"fmt"
	"net/http"
	"net/url"
	"strings"
	"time"

	"rota/internal/status"
)

// A replicasPage is what the page of replicas shows.
type replicasPage struct {
	Rows     []replicaRow
	Spread   string
	Versions string // which there are among the members, where they differ
	Pools    []Pool
}

// A replicaRow is one process, or an owner that is no member.
type replicaRow struct {
	Key      string
	ID       *holder
	Here     bool // it shows the page
	Standing mark
	Leases   int
	Share    *meter
	Path     string // of the jobs that it leads
	PID      int
	Version  string
	Odd      bool // a version that another member does not have
	Started  *instant
	Seen     *instant
	Left     *instant
	Offset   string
	Hints    string
	Known    bool // it has a row
	Orders   []order
}

// A Pool is a set of connections of this process.
type Pool struct {
	Name  string
	Busy  int // in use
	Open  int
	Most  int
	Waits int64 // how often one had to be waited for, since the start
}

func (s *server) replicas(w http.ResponseWriter, r *http.Request) error {
	snap, err := s.snapshot(r)
	if err != nil {
		return err
	}
	var pools []Pool
	if s.Pools != nil {
		pools = s.Pools()
	}
	return s.page(w, r, "replicas", "Replicas", snap, tagOf(pools), func(b bearings) (any, error) {
		p := replicasPage{Pools: pools}
		p.survey(snap)
		most := 1
		for _, rep := range snap.Replicas {
			most = max(most, rep.Leases)
		}
		for _, rep := range snap.Replicas {
			row := replica(rep, snap.AsOf)
			row.Here = rep.ID == s.Owner && s.Owner != ""
			row.Odd = p.Versions != "" && row.Known
			row.Share = &meter{Max: fmt.Sprint(most), Low: "0", Value: fmt.Sprint(rep.Leases)}
			if b.can.Operate && rep.Standing == status.Member {
				row.Orders = []order{b.order("drain", "Drain", replicaPath(rep.ID)+"/drain")}
			}
			p.Rows = append(p.Rows, row)
		}
		return p, nil
	})
}

// replicaPath leaves an owner's slash one of the path: proxies that rewrite paths leave it no escape.
func replicaPath(id string) string {
	if name, rest, ok := strings.Cut(id, "/"); ok && name != "" && rest != "" && !strings.Contains(rest, "/") {
		return "/replicas/" + segment(name) + "/" + segment(rest)
	}
	return "/replicas/" + segment(id)
}

// survey says how the leases are spread over the members, and which versions run.
func (p *replicasPage) survey(snap status.Snapshot) {
	members, least, most, held := 0, -1, 0, 0
	versions := map[string]bool{}
	var named []string
	for _, r := range snap.Replicas {
		held += r.Leases
		if r.Standing != status.Member {
			continue
		}
		members++
		if least < 0 || r.Leases < least {
			least = r.Leases
		}
		most = max(most, r.Leases)
		if !versions[r.Version] {
			versions[r.Version] = true
			named = append(named, clip(r.Version, 60))
		}
	}
	if members > 0 {
		p.Spread = fmt.Sprintf("%s held; %s of them on each of %s.", plural(held, "leases"), between(least, most), plural(members, "members"))
		if members == 1 {
			p.Spread = fmt.Sprintf("%s held, by one member: nobody could take over.", plural(held, "leases"))
		}
	}
	if len(named) > 1 {
		p.Versions = strings.Join(named, ", ")
	}
}

func between(least, most int) string {
	if least == most {
		return fmt.Sprint(most)
	}
	return fmt.Sprintf("%d to %d", least, most)
}

func replica(r status.Replica, asOf time.Time) replicaRow {
	row := replicaRow{
		Key: r.ID, ID: holderOf(r.ID), Standing: standings[r.Standing], Leases: r.Leases,
		PID: r.PID, Version: clip(r.Version, 60), Known: r.Standing != status.Outside,
		Started: ago(r.StartedAt, asOf), Seen: ago(r.SeenAt, asOf), Path: "/?show=held&q=" + url.QueryEscape(clip(r.ID, 200)),
	}
	if r.Standing == status.Draining && r.Leases == 0 {
		row.Standing.Word, row.Standing.Title = "drained", "it has given up all it led, and takes nothing until it is started again"
	}
	if row.ID == nil {
		row.ID = &holder{Host: "no name"}
	}
	if !row.Known {
		return row
	}
	row.Offset = fmt.Sprintf("%+.1f ms", float64(r.ClockOffset)/float64(time.Millisecond))
	row.Hints = "polls"
	if r.Hints {
		row.Hints = "notified"
	}
	if r.Standing != status.Gone {
		row.Left = left(r.ExpiresAt, asOf)
	}
	return row
}
