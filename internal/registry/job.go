package registry

import (
	"context"
	"log/slog"
	"time"

	"github.com/jackc/pgx/v5"

	"rota/internal/fence"
)

// A Job is a named unit of work. Only one replica at a time leads it, or each of its shards; on that
// one it never overlaps itself.
type Job struct {
	// Name is the key of the job's lease and of its history: [a-z0-9][a-z0-9_-]{0,62}. A renamed
	// job is a new one.
	Name string
	// About is one sentence on what it is for.
	About string
	// Runbook is the URL of what to do when it fails; empty: there is none.
	Runbook string
	// Schedule says when it is due. There is no default.
	Schedule Schedule
	// Run does the work once. It should return soon after ctx ends: its lease is released only when
	// it has returned, and one that does not return within the replica's grace is left behind. What
	// its context's end, its error, or its panic mean for the run's outcome is the scheduler's to
	// say; see internal/scheduler.
	Run func(ctx context.Context, run *Run) error
	// Protects are the tables that it writes through the fence. Empty: it leaves no mark outside.
	Protects []fence.Table
	// Args is a struct with the job's limits, handed to each run; nil: it has none.
	Args any
	// Shards splits the job into so many parts by the keys of its work: each is led, ticks and runs by
	// itself, on whatever replica, and does the keys that its runs own (see Run.Owns). 0 and 1: it is
	// whole. To change the number deploy it: while the replicas are replaced the latest to start decides,
	// and a run that spans the change may be done again, but no key is left out.
	Shards int
	// Timeout ends a run's context; 0: only the end of the term does.
	Timeout time.Duration
	// Retry says how often a run that failed, panicked or took too long is tried again, under the
	// same term; the zero value: never.
	Retry Retry
	// Jitter delays each start by a part of it that is always the same for this job, so that many
	// jobs of one schedule do not start at once. The ticks themselves stay where they are.
	Jitter time.Duration
	// Missed says what becomes of ticks that fell due while nobody led.
	Missed Missed
	// Overlap says what becomes of a tick that falls due during a run.
	Overlap Overlap
	// IfLost says what becomes of a tick whose run was lost with its replica.
	IfLost IfLost

	// Disabled says that a jobs file has switched it off: a replica with that file does not compete
	// for its lease. Others do, so give every replica the same file.
	Disabled bool
	// Source is where it was registered, as file:line with the path inside the module, and the jobs
	// file that has changed it. Register sets it.
	Source string
}

// A Reader reads the database. What a job writes goes through its fence.
type Reader interface {
	Query(ctx context.Context, sql string, args ...any) (pgx.Rows, error)
	QueryRow(ctx context.Context, sql string, args ...any) pgx.Row
}

// A Run is one attempt at a tick, as the job's function sees it.
type Run struct {
	// Job is the job's name.
	Job string
	// Shard is which of the job's shards this is, from 1, and Of how many there are; 1 of 1: it is whole.
	Shard, Of int
	// Tick is the instant that the run is for, in UTC on the database's clock: not when it began.
	// For a Continuous job it is the moment of its start.
	Tick time.Time
	// Attempt counts the tries at this tick from 1.
	Attempt int
	// Args is a value of the type of Job.Args.
	Args any
	// DB reads the database; its connections are shared by the jobs of this replica, and wait no
	// longer than half a second for a lock.
	DB Reader
	// Fence is what the job writes with: once its term has passed, every write is refused. It is
	// bound to the term, not to the run, so that a cancelled run may still write its last state.
	Fence *fence.Writer
	// Log carries the job and the run with each line.
	Log *slog.Logger
	// Draining is closed when the term is to be given up soon: a run that can stop early should. Its
	// context goes on meanwhile.
	Draining <-chan struct{}
}

// Owns reports whether the work on a key, such as an account or a venue, is this shard's; a job that
// is whole owns every key. It is what rota_shard(key, of) = shard says in SQL, and must be asked of the
// same text as is in the Shard column of the job's tables.
func (r *Run) Owns(key string) bool { return fence.Shard{K: r.Shard, Of: r.Of}.Owns(key) }

// Leases are the names of the job's leases: its own, or one for each shard.
func (j Job) Leases() []string {
	var names []string
	for _, s := range fence.Shards(j.Shards) {
		names = append(names, s.Lease(j.Name))
	}
	return names
}

// LeaseOf says whose a lease is: the job's, and which of its shards; 0 of 0: all of it.
func LeaseOf(name string) (job string, shard, of int) {
	job, s := fence.SplitLease(name)
	return job, s.K, s.Of
}

// Kin is what a lease has in common with the others of its job and their count: by it replicas say what
// they can lead.
func Kin(name string) string {
	job, s := fence.SplitLease(name)
	return s.Kin(job)
}
