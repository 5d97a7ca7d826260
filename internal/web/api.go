package web

import (
	"encoding/json"
	"fmt"
	"net/http"
	"time"

	"rota/internal/status"
)

// A moment heads every list of the API: when what follows was true, by the database's clock.
type moment struct {
	AsOf       time.Time `json:"as_of"`
	Stale      bool      `json:"stale"` // the database has not answered since
	AgeSeconds float64   `json:"age_seconds"`
}

// An apiLease is one lease's row.
type apiLease struct {
	Name       string       `json:"name"`
	Job        string       `json:"job"`
	Shard      *int         `json:"shard"` // null: the job has one lease
	Owner      string       `json:"owner"` // when free, of the last term
	Epoch      int64        `json:"epoch"`
	ExpiresAt  *time.Time   `json:"expires_at"`
	AcquiredAt *time.Time   `json:"acquired_at"`
	State      status.State `json:"state"`
}

// An apiJob is a lease with what is known of its job.
type apiJob struct {
	apiLease
	About         string     `json:"about"`
	Runbook       string     `json:"runbook"`
	CompiledIn    bool       `json:"compiled_in"`
	Registered    bool       `json:"registered"`
	Schedule      string     `json:"schedule"`
	ScheduleWords string     `json:"schedule_words"`
	NextTick      *time.Time `json:"next_tick"`
	DueSince      *time.Time `json:"due_since"`
	LastRun       *apiRun    `json:"last_run"`
	LastSuccessAt *time.Time `json:"last_success_at"`
	RefusedWrites int64      `json:"refused_writes"`
	LastEnd       *apiEnd    `json:"last_end"`
}

type apiRun struct {
	Tick      time.Time  `json:"tick"`
	Attempt   int        `json:"attempt"`
	Epoch     int64      `json:"epoch"`
	Owner     string     `json:"owner"`
	StartedAt *time.Time `json:"started_at"`
	EndedAt   *time.Time `json:"ended_at"`
	Outcome   *string    `json:"outcome"` // null while it runs
	Error     string     `json:"error"`
}

type apiEnd struct {
	Epoch   int64      `json:"epoch"`
	Owner   string     `json:"owner"`
	EndedAt *time.Time `json:"ended_at"`
	Reason  string     `json:"reason"`
}

type apiReplica struct {
	ID                 string          `json:"id"`
	Standing           status.Standing `json:"standing"`
	Host               string          `json:"host"`
	PID                int             `json:"pid"`
	Version            string          `json:"version"`
	StartedAt          *time.Time      `json:"started_at"`
	SeenAt             *time.Time      `json:"seen_at"`
	ExpiresAt          *time.Time      `json:"expires_at"`
	ClockOffsetSeconds float64         `json:"clock_offset_seconds"`
	Notified           bool            `json:"notified"`
	Leases             int             `json:"leases"`
}

func (s *server) apiLeases(w http.ResponseWriter, r *http.Request) error {
	return s.list(w, r, func(snap status.Snapshot, m moment) any {
		leases := make([]apiLease, 0, len(snap.Leases))
		for _, l := range snap.Leases {
			leases = append(leases, leaseOf(l))
		}
		return struct {
			moment
			Leases []apiLease `json:"leases"`
		}{m, leases}
	})
}

func (s *server) apiJobs(w http.ResponseWriter, r *http.Request) error {
	return s.list(w, r, func(snap status.Snapshot, m moment) any {
		jobs := make([]apiJob, 0, len(snap.Leases))
		for _, l := range snap.Leases {
			jobs = append(jobs, jobOf(l))
		}
		return struct {
			moment
			Jobs []apiJob `json:"jobs"`
		}{m, jobs}
	})
}

func (s *server) apiReplicas(w http.ResponseWriter, r *http.Request) error {
	return s.list(w, r, func(snap status.Snapshot, m moment) any {
		replicas := make([]apiReplica, 0, len(snap.Replicas))
		for _, rep := range snap.Replicas {
			replicas = append(replicas, apiReplica{
				ID: rep.ID, Standing: rep.Standing, Host: rep.Host, PID: rep.PID, Version: rep.Version,
				StartedAt: some(rep.StartedAt), SeenAt: some(rep.SeenAt), ExpiresAt: some(rep.ExpiresAt),
				ClockOffsetSeconds: rep.ClockOffset.Seconds(), Notified: rep.Hints, Leases: rep.Leases,
			})
		}
		return struct {
			moment
			Replicas []apiReplica `json:"replicas"`
		}{m, replicas}
	})
}

// list answers with what of makes of the snapshot.
func (s *server) list(w http.ResponseWriter, r *http.Request, of func(status.Snapshot, moment) any) error {
	snap, err := s.snapshot(r)
	if err != nil {
		return err
	}
	b, err := json.Marshal(of(snap, moment{snap.AsOf, snap.Stale, snap.Age.Seconds()}))
	if err != nil {
		return fmt.Errorf("encode %s: %w", r.URL.Path, err)
	}
	s.send(w, r, snap, "application/json", append(b, '\n'))
	return nil
}

func leaseOf(l status.Lease) apiLease {
	return apiLease{
		Name: l.Name, Job: l.Job, Owner: l.Owner, Epoch: l.Epoch,
		ExpiresAt: some(l.ExpiresAt), AcquiredAt: some(l.AcquiredAt), State: l.State,
	}
}

func jobOf(l status.Lease) apiJob {
	j := apiJob{
		apiLease: leaseOf(l), About: l.About, Runbook: l.Runbook, CompiledIn: l.CompiledIn, Registered: l.Registered,
		Schedule: l.Schedule, ScheduleWords: l.Words, NextTick: some(l.NextTick), DueSince: some(l.DueSince),
		LastSuccessAt: some(l.LastSuccess), RefusedWrites: l.Refused,
	}
	if r := l.Last; r != nil {
		j.LastRun = &apiRun{
			Tick: r.Tick, Attempt: r.Attempt, Epoch: r.Epoch, Owner: r.Owner,
			StartedAt: some(r.StartedAt), EndedAt: some(r.EndedAt), Error: r.Error,
		}
		if r.Outcome != "" {
			j.LastRun.Outcome = &r.Outcome
		}
	}
	if t := l.LastEnd; t != nil {
		j.LastEnd = &apiEnd{Epoch: t.Epoch, Owner: t.Owner, EndedAt: some(t.EndedAt), Reason: t.Reason}
	}
	return j
}

// some is null for no time.
func some(t time.Time) *time.Time {
	if t.IsZero() {
		return nil
	}
	return &t
}
