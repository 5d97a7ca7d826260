package scheduler

import (
	"context"
	"encoding/json"
	"time"

	"rota/internal/fence"
)

// A store is the database as the scheduler sees it. It is an interface for the sake of tests in
// which time is simulated, since a goroutine that waits for a socket stops a simulated clock.
//
// A call that returns an error may have executed all the same, or execute later. Every call names
// owner and epoch, so that what executes late changes nothing of a later term.
type store interface {
	// raise brings the protected tables up to the token's epoch, the rows of a shard where there is
	// one, and returns the highest it met.
	raise(ctx context.Context, t fence.Token, s fence.Shard, tables []fence.Table) (highest int64, err error)
	// begin opens terms: closes what earlier terms left open, and makes sure that there is progress.
	// Where the job's shards are counted in a new way, all of them inherit that of the former ones.
	begin(ctx context.Context, asked []opening) (map[fence.Token]opened, error)
	// claim claims one run, and writes off ticks, for each of some leases. What it returns holds, beside
	// an error too.
	claim(ctx context.Context, asked []claim) (map[fence.Token]claimed, error)
	// record writes the ends of runs. It returns the runs whose row says how they ended; the others
	// are to be recorded again.
	record(ctx context.Context, ends []end) (settled map[int64]bool, err error)
}

// A verdict is what became of what was asked for one lease.
type verdict string

const (
	begun   verdict = "begun"   // of a term: its leadership was confirmed
	won     verdict = "won"     // of a claim: the run is ours to do, and what was written off is on record
	taken   verdict = "taken"   // of a claim: it was claimed or written off before
	paused  verdict = "paused"  // of a claim: its job is paused; a tick is on record as skipped
	rebased verdict = "rebased" // of a claim: the progress is no longer ahead of the clock
	locked  verdict = "locked"  // somebody holds a row: ask again soon
	fenced  verdict = "fenced"  // the lease is another's, or has another epoch, or has expired
	early   verdict = "early"   // of a claim: a tick of it is not due by the database's clock
)

// An opening is a term to begin.
type opening struct {
	token    fence.Token
	schedule string
	tries    int // how many attempts a tick gets whose runs are lost; 0: they are left
}

// opened is what became of it.
type opened struct {
	verdict verdict
	last    time.Time // the newest tick that was claimed or written off; of a new schedule: now
	now     time.Time // by the database's clock
	lost    int       // runs that earlier terms left open
	again   []attempt // what is to be run again, the oldest first
}

// An attempt is a try at a tick.
type attempt struct {
	tick    time.Time
	number  int             // from 1
	request int64           // that it is for; 0: none
	args    json.RawMessage // of the request
}

// Kinds of claims.
type kind string

const (
	scheduled kind = "scheduled" // the first attempt at a tick of the schedule
	moment    kind = "moment"    // a start of a Continuous job
	requested kind = "requested" // the first attempt at a request
	again     kind = "again"     // a further attempt
	rebase    kind = "rebase"    // none: the clock was set back, and the progress is to follow
)

// A claim is what is claimed for one lease; there is one at most for each in a statement. It is won
// as a whole or not at all: if one of its ticks is not due yet, nothing of it is claimed.
type claim struct {
	token  fence.Token
	job    string
	kind   kind
	run    attempt   // its tick is zero where nothing is to be run
	passed []passed  // ticks of the schedule that are written off, oldest first
	until  time.Time // the newest tick of the schedule in it
}

// passed is a tick that is not run, or several in a row.
type passed struct {
	first, last time.Time
	ticks       int64
	outcome     outcome // skipped or missed
	why         string
}

// claimed is what became of it.
type claimed struct {
	verdict verdict
	run     int64     // id, if there is one to do
	attempt int       // its number, which may be above what was asked
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
	log     string // the last that it logged; printable, and bounded
	again   bool   // it was cut short: the next term should run its tick again
	at      time.Time
}
