package scheduler

import (
	"context"
	"time"

	"rota/internal/fence"
)

// A store is the database as the scheduler sees it. It is an interface for the sake of tests in
// which time is simulated, since a goroutine that waits for a socket stops a simulated clock.
//
// A call that returns an error may have executed all the same, or execute later. Every call names
// owner and epoch, so that what executes late changes nothing of a later term.
type store interface {
	// raise brings the protected tables up to the token's epoch, and returns the highest it met.
	raise(ctx context.Context, t fence.Token, tables []fence.Table) (highest int64, err error)
	// begin opens terms: closes what earlier terms left open, and makes sure that there is progress.
	begin(ctx context.Context, asked []opening) (map[fence.Token]opened, error)
	// claim claims one tick for each of some leases.
	claim(ctx context.Context, asked []claim) (map[fence.Token]claimed, error)
	// record writes the ends of runs. It returns the runs whose row says how they ended; the others
	// are to be recorded again.
	record(ctx context.Context, ends []end) (settled map[int64]bool, err error)
}

// A verdict is what became of what was asked for one lease.
type verdict string

const (
	begun  verdict = "begun"  // of a term: its leadership was confirmed
	won    verdict = "won"    // of a tick: the run is ours to do
	taken  verdict = "taken"  // of a tick: it was claimed or written off before
	locked verdict = "locked" // somebody holds a row: ask again soon
	fenced verdict = "fenced" // the lease is another's, or has another epoch, or has expired
	early  verdict = "early"  // of a tick: it is not due by the database's clock
)

// An opening is a term to begin.
type opening struct {
	token    fence.Token
	schedule string
}

// opened is what became of it.
type opened struct {
	verdict verdict
	last    time.Time // the newest tick that was claimed or written off; of a new schedule: now
	lost    int       // runs that earlier terms left open
}

// A claim is one lease's tick to be claimed. There is one at most for each lease in a statement, so
// that a tick that comes too early holds back none that is due.
type claim struct {
	token  fence.Token
	job    string
	tick   time.Time
	moment bool // the tick is no scheduled one, but the moment of a start
	skip   bool // it is claimed to be written off: its job is still at an earlier one
}

// claimed is what became of it.
type claimed struct {
	verdict verdict
	run     int64     // id, if it was won
	last    time.Time // the newest tick that was claimed or written off, before this
	now     time.Time // by the database's clock
}

// An end is how a run ended.
type end struct {
	run     int64
	owner   string
	outcome outcome
	fault   string // what it said; printable, and bounded
	refused int    // how many of its writes were refused
	at      time.Time
}
