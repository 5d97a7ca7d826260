package lease

import (
	"errors"
	"fmt"
	"log/slog"
	"time"

	"github.com/prometheus/client_golang/prometheus"
)

// Config is how an Elector takes part.
type Config struct {
	// Owner names this process start; see NewOwner.
	Owner string
	// Version is the program's, shown beside the replica.
	Version string
	// Lease is how long a lease runs from each renewal: how long a job stays without a leader when
	// its host dies. Usually 15 s.
	Lease time.Duration
	// Renew is the time between heartbeats, at most a third of Lease, so that two may fail before a
	// lease is lost. Usually 5 s.
	Renew time.Duration
	// Steer is called when it is announced that an operator asks for something. It must not block.
	// nil: nobody wants to know.
	Steer func()
	// Log gets one line for each change, none for each heartbeat.
	Log *slog.Logger
	// Metrics is where the elector registers what it counts.
	Metrics prometheus.Registerer
}

// Shortest is the shortest Renew: below it a heartbeat's round trip is no longer small beside it.
const Shortest = 100 * time.Millisecond

// Validate says all that is wrong with the settings, each with the way out.
func (c Config) Validate() error {
	var errs []error
	if c.Owner == "" {
		errs = append(errs, errors.New("owner is empty: use lease.NewOwner"))
	}
	if c.Renew < Shortest {
		errs = append(errs, fmt.Errorf("renewal interval %v: it must be at least %v (5s is usual)", c.Renew, Shortest))
	}
	if c.Lease < 3*c.Renew || c.Lease <= 0 {
		errs = append(errs, fmt.Errorf(
			"lease %v with a renewal every %v: a lease must be at least three renewal intervals (15s and 5s are usual), or a single failed renewal hands leadership over",
			c.Lease, c.Renew))
	}
	return errors.Join(errs...)
}

// margin is how long before the lease's expiry a term ends by itself: what the clocks of two hosts
// may drift apart in the course of one lease, and what it takes to notice.
func (c Config) margin() time.Duration { return c.Lease / 15 }

// callTimeout bounds one call, so that two retries fit into a lease.
func (c Config) callTimeout() time.Duration { return c.Renew * 4 / 5 }

// pause is the time before a failed heartbeat is tried again.
func (c Config) pause() time.Duration { return c.Renew / 5 }

// settle is the time between a replica's joining and its first claim, in which the others join
// that were started with it.
func (c Config) settle() time.Duration { return c.Renew / 2 }
