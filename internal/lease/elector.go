package lease

import (
	"context"
	"log/slog"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/prometheus/client_golang/prometheus"

	"rota/internal/fence"
)

// Config is how an Elector takes part.
type Config struct {
	Owner   string // one process start: see NewOwner
	Version string
	Lease   time.Duration
	Renew   time.Duration
	Log     *slog.Logger
	Metrics prometheus.Registerer
}

// A Lease is one row to compete for.
type Lease struct{ Name, Job string }

// NewOwner names this process start: the pod's or host's name, a slash, and a fresh UUID.
func NewOwner(host string) string { panic("wip") }

// AppName is the application_name of every connection that the owner opens: "rota " and the owner's UUID.
func AppName(owner string) string { panic("wip") }

// An Elector wins leases and keeps them.
type Elector struct{}

// New returns an elector that talks to the database over a pool of its own, which nothing else may use.
func New(db *pgxpool.Pool, cfg Config) (*Elector, error) { panic("wip") }

// Run competes for the leases until ctx ends, then asks for all, renews until all leads have returned, and releases them.
func (e *Elector) Run(ctx context.Context, leases []Lease, lead func(*Term)) error { panic("wip") }

// GiveUp asks the term of a lease, if this replica leads it, to be given up.
func (e *Elector) GiveUp(lease string, why error) { panic("wip") }

// Seen notes an epoch met elsewhere; the next acquisition is above it.
func (e *Elector) Seen(job string, epoch int64) { panic("wip") }

// Now is the database's time, by the last heartbeat's estimate.
func (e *Elector) Now() time.Time { panic("wip") }

// Beat is when the lease loop last turned, by the local clock; zero before the first.
func (e *Elector) Beat() time.Time { panic("wip") }

// A Term is one owner's unbroken leadership of one lease.
type Term struct {
	Token fence.Token
	Job   string
}

// Context ends, with a cause, with the term.
func (t *Term) Context() context.Context { panic("wip") }

// End ends the term now. It is not renewed from here on.
func (t *Term) End(cause error) { panic("wip") }

// Asked is closed when the term should be given up; it is still renewed meanwhile.
func (t *Term) Asked() <-chan struct{} { panic("wip") }

// Ready says that the term has raised its epoch and begins to work; it closes the measure of the handover.
func (t *Term) Ready() { panic("wip") }
