package lease

import (
	"context"
	"time"
)

// A store is the database as the elector sees it. There are two: Postgres, and one in memory for
// tests in which time is simulated, since a goroutine that waits for a socket stops a simulated
// clock. One conformance test holds them equal.
//
// A call that returns an error may have executed, may execute later, or never: the elector looks
// before it believes anything about the leases that it named.
type store interface {
	// register makes sure that a row exists for each lease, one for each job that has several, with
	// that count if it is new, and one for the ability.
	register(ctx context.Context, names []string, a ability) error
	// abilities returns those of them that are registered.
	abilities(ctx context.Context, ids []string) ([]ability, error)
	// beat renews what the member holds, then renews its membership and looks at the others. The
	// two parts do not undo each other: verdicts may be there although err is not nil.
	beat(ctx context.Context, m member, held []holding) (verdicts []verdict, l look, err error)
	// look is the last part of beat alone.
	look(ctx context.Context, owner string) (look, error)
	// renew is the first part of beat alone, for leases that were locked.
	renew(ctx context.Context, owner string, lease time.Duration, held []holding) ([]verdict, error)
	// acquire takes those of the leases that have expired, each under an epoch above every known
	// one; of a job that has, or had, several, only if their count is in force, and no lease of
	// another count is led. With wait it waits for a locked row, as long as ctx allows; else it says busy.
	acquire(ctx context.Context, owner string, lease time.Duration, claims []claim, wait bool) ([]grant, error)
	// resize puts counts in force, and returns the jobs that it found nobody at work on: those have
	// the count that they should have now.
	resize(ctx context.Context, asked []resize) (settled []string, err error)
	// release ends the terms, and wakes the standbys. For each term it announces which of them should
	// take the lease; empty: whoever should by his own reckoning.
	release(ctx context.Context, owner, reason string, held []holding, to []string) ([]verdict, error)
	// mine is every unexpired lease of the owner.
	mine(ctx context.Context, owner string) ([]holding, error)
	// leave ends the membership.
	leave(ctx context.Context, owner string) error
	// listen calls hint for each release that is announced, until ctx ends. It connects, and
	// connects again, by itself. hint gets the names, or none where they were too many; reaches
	// says each time whether announcements arrive at all. Before the names that are for one member
	// stands that member, as forMember makes it.
	listen(ctx context.Context, owner string, hint func(names []string), reaches func(bool, error))
}

// A member is what a replica says of itself.
type member struct {
	owner    string
	host     string
	pid      int
	version  string
	started  time.Time
	lease    time.Duration // how long a renewal lasts
	lasts    time.Duration // how long this membership lasts: until the terms renewed with it end by themselves
	offset   time.Duration // the database's clock less the local one
	hints    bool
	draining bool
	ability  string // its id
}

// A holding is a term by its lease and epoch.
type holding struct {
	name  string
	epoch int64
}

// A verdict is what became of a holding.
type verdict int

const (
	lost    verdict = iota // the row is another's, has another epoch, or has expired
	locked                 // it is still ours, but somebody holds the row
	renewed                // for a release: released
)

// A claim is a lease to take, and the highest epoch that is known of it from elsewhere.
type claim struct {
	name    string
	seen    int64
	counted bool // its job has a count that decides
}

// A resize is a count to be put in force, whatever is; or only where a count is that no member has.
type resize struct {
	job    string
	count  int
	orphan int // the count that no member has; 0: whatever is in force
}

// A grant is what became of a claim.
type grant struct {
	outcome outcome
	epoch   int64
	first   bool          // no term came before
	idle    time.Duration // from the end of the last term to this one
}

type outcome int

const (
	held   outcome = iota // somebody holds it
	busy                  // it has expired, but somebody holds the row
	absurd                // its epochs have come near the end of what a bigint holds
	won
)

// A look is what the rows say of everybody.
type look struct {
	all int       // how many leases there are
	now time.Time // the database's clock

	received, answered time.Time // by it, when it began with the call, and when it had the answer

	peers  []peer // the other members, unexpired and not draining
	owners []load
	free   []string       // leases that have expired, or are out of force
	counts map[string]int // in force, of the jobs that have, or had, several leases
}

// A peer is another member, and what it can lead.
type peer struct{ owner, ability string }

// A load is what one owner leads.
type load struct {
	owner    string
	leases   int
	earliest time.Time      // the first expiry among them
	shards   map[string]int // of the leases, those of jobs that have several, by their kin
}

// split says that of the leases so many are shards of one kin.
func (o *load) split(kin string, n int) {
	if o.shards == nil {
		o.shards = map[string]int{}
	}
	o.shards[kin] += n
}

// nobody is the owner of leases that are out of force, whose expiry is far off so that no program
// takes them for free.
const nobody = ""
