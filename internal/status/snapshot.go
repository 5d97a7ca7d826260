// Package status tells what the rows say now: one snapshot, read by the page, the API and the
// command line.
//
// All of it comes from the database's rows and the database's clock, never from what this replica
// believes, and it says how old it is. The snapshot is read in one transaction, by a number of
// statements that does not grow with jobs or viewers, and it is shared by all who look.
package status

import "time"

// A Snapshot is everything that the rows said at one moment. Its slices are shared: do not write to
// them.
type Snapshot struct {
	AsOf  time.Time     // the database's clock when it was read
	Age   time.Duration // how long ago that was
	Stale bool          // the database has not answered since; Why says what it did instead
	Why   error

	Leases   []Lease   // by job and shard; of the count that is in force, and what is led yet of another
	Replicas []Replica // members first, then those that are gone, then owners that are no member
	Pauses   []Pause   // those in force, that of all jobs first
	Tag      string    // differs when anything above does, save AsOf, Age and what only time moves

	able map[string][]string // what members of each ability can lead
}

// State is what a lease's row says.
type State string

// The states of a lease.
const (
	Held  State = "held"  // it runs out in the future
	Free  State = "free"  // it has been held, and has run out or been released
	Never State = "never" // nobody has led it yet
)

// A Lease is one lease, with the job that it is for.
type Lease struct {
	Name      string
	Job       string
	Shard, Of int // which of the job's leases, from 1; 0 of 0: it has one
	State     State

	Owner      string // of the current or, when free, the last term
	Epoch      int64
	ExpiresAt  time.Time // zero: no date that a calendar has
	AcquiredAt time.Time
	Left       time.Duration `json:"-"` // at AsOf; zero unless held
	Length     time.Duration // of the whole lease, by its holder's last heartbeat; zero if unknown
	LastEnd    *Term         // the newest term that has ended

	Stranded   bool // it is not held, and no live member can lead the job
	Disabled   bool // the jobs file of this replica takes the job out of its work
	CompiledIn bool // the job is part of this binary
	Registered bool // the lease has a row
	About      string
	Runbook    string
	Schedule   string // as kept beside the job's progress
	Words      string // the schedule for people

	NextTick    time.Time // zero: only when asked, or without end
	DueSince    time.Time // the oldest tick that nobody has taken though it is due; zero: none
	Paused      *Pause    // the pause in force, its own before that of all jobs; nil: none
	Last        *Run      // the newest attempt, skipped and missed ticks left out
	LastSuccess time.Time // when the newest success ended; zero: there is none in the kept history
	Refused     int64     // writes of this job's runs that the fence refused, over the kept history
}

// A Term is the end of one owner's unbroken leadership.
type Term struct {
	Epoch   int64
	Owner   string
	EndedAt time.Time
	Reason  string
}

// Standing is what a replica is to the others.
type Standing string

// The standings of a replica.
const (
	Member   Standing = "member"   // its row runs out in the future
	Draining Standing = "draining" // a member that gives up all it leads
	Gone     Standing = "gone"     // its row has run out, within the last hour
	Outside  Standing = "outside"  // it holds a lease and has no row: another program
)

// A Replica is one process.
type Replica struct {
	ID          string
	Standing    Standing
	Host        string
	PID         int
	Version     string
	StartedAt   time.Time
	SeenAt      time.Time
	ExpiresAt   time.Time
	ClockOffset time.Duration // the database's clock less its own, by its estimate
	Hints       bool          // notifications reach it
	Leases      int           // how many it holds
	Ability     string        // which jobs it can lead; see Snapshot.HasHeir
}
