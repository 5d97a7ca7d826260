package web

import (
	"fmt"
	"net/http"
	"time"

	"rota/internal/status"
)

// A replicaRow is one process, or an owner that is no member.
type replicaRow struct {
	Key, Host, Title string
	Process          string // the start of its UUID
	Standing         mark
	Leases           int
	PID              int
	Version          string
	Started, Seen    *instant
	Left             *instant
	Offset           string
	Hints            string
	Known            bool // it has a row
}

var standings = map[status.Standing]mark{
	status.Member:   {"good", "●", "member", "its heartbeat is current"},
	status.Draining: {"warn", "◐", "draining", "it is giving up all it leads"},
	status.Gone:     {"idle", "○", "gone", "its heartbeat stopped; shown for an hour"},
	status.Outside:  {"warn", "?", "not a member", "it holds a lease and sends no heartbeat: another program, or a replica that has just lost its row"},
}

func (s *server) replicas(w http.ResponseWriter, r *http.Request) error {
	snap, err := s.snapshot(r)
	if err != nil {
		return err
	}
	rows := make([]replicaRow, 0, len(snap.Replicas))
	for _, rep := range snap.Replicas {
		rows = append(rows, replica(rep, snap.AsOf))
	}
	return s.page(w, r, "replicas", "Replicas", snap, rows)
}

func replica(r status.Replica, asOf time.Time) replicaRow {
	host, process := parts(r.ID)
	row := replicaRow{
		Key: r.ID, Host: host, Process: process, Title: clip(r.ID, 2000), Standing: standings[r.Standing], Leases: r.Leases,
		PID: r.PID, Version: clip(r.Version, 60), Known: r.Standing != status.Outside,
		Started: ago(r.StartedAt, asOf), Seen: ago(r.SeenAt, asOf),
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
