package web

import (
	"fmt"
	"net/http"
	"runtime"
	"time"

	"rota/internal/status"
)

// An aboutPage is what there is to know of this process and its database.
type aboutPage struct {
	Here, Database []setting
	Clocks         []setting
	Pools          []Pool
	Note           string
	Support        string // all of it in one line, to be copied
}

func (s *server) about(w http.ResponseWriter, r *http.Request) error {
	snap, err := s.snapshot(r)
	if err != nil {
		return err
	}
	got, err := s.Status.Server(r.Context(), !snap.Stale)
	if err != nil {
		if r.Context().Err() != nil {
			return err
		}
		got.Why = err
	}
	var pools []Pool
	if s.Pools != nil {
		pools = s.Pools()
	}
	shown := got.Value
	shown.AsOf, shown.Trip, shown.Offset = time.Time{}, 0, shown.Offset.Round(100*time.Millisecond)
	return s.page(w, r, "about", "About", snap, tagOf(pools, shown, got.Why != nil), func(bearings) (any, error) {
		return s.aboutView(snap, got, pools), nil
	})
}

func (s *server) aboutView(snap status.Snapshot, got status.Reading[status.Server], pools []Pool) aboutPage {
	d := got.Value
	p := aboutPage{Pools: pools}
	p.Here = []setting{
		{"Version", s.Version, "", false},
		{"Go", runtime.Version() + ", " + runtime.GOOS + "/" + runtime.GOARCH, "", false},
		{"Jobs compiled in", fmt.Sprint(len(s.Jobs)), "", false},
	}
	if s.Owner != "" {
		p.Here = append(p.Here, setting{"Owner id", s.Owner, "", true})
	} else {
		p.Here = append(p.Here, setting{"Owner id", "none: this process serves the page and leads nothing", "", false})
	}
	if got.Why != nil {
		p.Note = "The database could not be asked just now; this is what it last said."
	}
	if d.Version != "" {
		p.Database = []setting{
			{"PostgreSQL", d.Version, "", false},
			{"Database", d.Name, "", true},
			{"Schema", d.Search, "", true},
			{"Migrated to", migrated(d), "", false},
			{"Leases", fmt.Sprint(len(snap.Leases)), "", false},
			{"Runs kept", d.RunsWords(), "", false},
		}
		p.Clocks = []setting{
			{"The database's", full(d.AsOf), "", false},
			{"This machine's", full(d.AsOf.Add(-d.Offset)), "", false},
			{"Apart by", fmt.Sprintf("%+.1f ms, give or take %.1f ms", ms(d.Offset), ms(d.Trip/2)), "", false},
		}
	}
	p.Support = fmt.Sprintf("rota %s; %s %s/%s; postgresql %s; schema %d and %d; %s; %s; stale %t; environment %q",
		s.Version, runtime.Version(), runtime.GOOS, runtime.GOARCH, d.Version, d.Migrated, d.JobsMigrated, plural(len(snap.Leases), "leases"), plural(len(snap.Replicas), "replicas"), snap.Stale, s.Environment)
	return p
}

// migrated is how far the tables are brought up to date.
func migrated(d status.Server) string {
	if d.Migrated == 0 {
		return "unknown: the tables that say so cannot be read"
	}
	return fmt.Sprintf("%05d, and the jobs' own tables to %05d", d.Migrated, d.JobsMigrated)
}

func ms(d time.Duration) float64 { return float64(d) / float64(time.Millisecond) }
