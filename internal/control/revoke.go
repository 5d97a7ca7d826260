package control

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/jackc/pgx/v5"
)

// Revoked is what became of an order to revoke.
type Revoked struct {
	Job      string `json:"job"`
	Lease    string `json:"lease"`
	Owner    string `json:"owner"`     // whose term was ended; empty: nobody led it any more
	Epoch    int64  `json:"epoch"`     // the lease's before
	NewEpoch int64  `json:"new_epoch"` // the lease's after; the next term is above it
}

const (
	// absurdEpoch is where epochs have come too near the end of a bigint to be believed: nobody
	// acquires a lease whose epoch is known to be there.
	absurdEpoch = int64(1) << 62
	// highestAbove leaves a lease as many terms again as it may pass over.
	highestAbove = absurdEpoch / 2
	// rounds is how often another term may slip in before the epoch is above the one asked for.
	rounds = 5
	// revokedBy begins the owner of a row whose term was revoked.
	revokedBy = "revoked by "
	// reasonRevoked is the end_reason of such a term.
	reasonRevoked = "revoked"
)

// Revoke ends the term of a lease now, without its leader: the guards of its writes refuse from then
// on. The epoch becomes one above the row's, the last in the history, and above; so it is also what
// puts epochs in order after a restore, with above as the highest that is known from elsewhere.
//
// It takes two commits, for a change of the epoch waits behind the fenced writes under way. The first
// ends the term, as a release does. The second raises the epoch, and wakes the standbys. Where it
// comes to no more than the first, the error says so, and Revoke is to be called again. Both name the
// term by its owner and epoch, so that neither ends a later one, however late it executes.
func (d *Desk) Revoke(ctx context.Context, o Order, lease string, above int64) (Revoked, error) {
	o, err := o.checked(true)
	if err != nil {
		return Revoked{}, err
	}
	if above < 0 || above > highestAbove {
		return Revoked{}, refuse(ErrInvalid, "above %d: it must be an epoch, from 0 to %d", above, highestAbove)
	}
	if err := checkName("lease", lease, "leases list"); err != nil {
		return Revoked{}, err
	}
	first, err := d.termOf(ctx, lease)
	if err == nil {
		err = o.means(lease, first.epoch)
	}
	if err == nil {
		err = first.refusal(lease, above)
	}
	if err != nil {
		return Revoked{}, err
	}
	done := Revoked{Lease: lease, Job: jobOf(lease), Epoch: first.epoch}
	if first.held {
		done.Owner = first.owner
	}
	t := first
	for range rounds {
		done.NewEpoch, err = d.revokeTerm(ctx, o, done, t, above)
		if err != nil || done.NewEpoch > 0 {
			return done, err
		}
		if t, err = d.termOf(ctx, lease); err != nil {
			return done, err
		}
		if t.epoch > max(first.epoch, above) {
			done.NewEpoch = t.epoch
			return done, d.overtaken(ctx, o, done, t.owner)
		}
	}
	return done, refuse(ErrBusy, "the lease %q was taken again and again before its epoch was above %d; revoke it again", lease, above)
}

// revokeTerm makes the two commits for one term, and returns the new epoch; 0: the term was over
// before it could be ended or its epoch raised.
func (d *Desk) revokeTerm(ctx context.Context, o Order, done Revoked, t term, above int64) (int64, error) {
	if t.held {
		ended, err := d.expire(ctx, o, done, t, above)
		if err != nil || !ended {
			return 0, err
		}
	}
	epoch, err := d.lift(ctx, o, done, t, above)
	if err != nil {
		if answered(err) {
			d.wakeStandbys(ctx, done.Lease) // the lease is free, if no more
		}
		return 0, fmt.Errorf("the term of %q under epoch %d is over, but its epoch was not raised; revoke it again: %w", done.Lease, t.epoch, err)
	}
	return epoch, nil
}

// A term is a lease's row as a revoke meets it.
type term struct {
	owner string
	epoch int64
	known int64 // the highest epoch of the row, its history, and the other leases of its job
	held  bool
	out   bool // the job has another count of shards
	half  bool // a revoke ended it and came no further
}

const termSQL = `
SELECT l.owner, l.epoch, greatest(l.epoch, (SELECT max(t.epoch) FROM terms t WHERE t.job_name = l.job_name),
                                  (SELECT s.epoch_high FROM job_shards s WHERE s.job = $4)),
       l.owner <> '' AND l.expires_at > clock_timestamp(), l.owner = '' AND l.expires_at > clock_timestamp(),
       NOT starts_with(l.owner, $2) AND EXISTS (SELECT FROM terms t WHERE t.job_name = l.job_name AND t.epoch = l.epoch AND t.end_reason = $3)
  FROM leadership l WHERE l.job_name = $1`

func (d *Desk) termOf(ctx context.Context, lease string) (t term, err error) {
	bound, cancel := context.WithTimeout(ctx, orderTimeout)
	defer cancel()
	err = d.db.QueryRow(bound, termSQL, pgx.QueryExecModeExec, lease, revokedBy, reasonRevoked, jobOf(lease)).
		Scan(&t.owner, &t.epoch, &t.known, &t.held, &t.out, &t.half)
	switch {
	case errors.Is(err, pgx.ErrNoRows) && d.leadsBy(lease):
		return term{}, refuse(ErrRefused, "nobody has led %q yet: there is neither a term to end nor an epoch to raise", lease)
	case errors.Is(err, pgx.ErrNoRows):
		return term{}, d.noLease(lease)
	case err != nil:
		return term{}, explain(ctx, err, "look at the lease "+lease, false)
	}
	return t, nil
}

// leadsBy reports whether a job that is compiled in has the lease.
func (d *Desk) leadsBy(lease string) bool {
	j, ok := d.jobs[jobOf(lease)]
	return ok && slices.Contains(j.Leases(), lease)
}

// noLease refuses a lease that there is not, and names those of its job.
func (d *Desk) noLease(lease string) error {
	j, ok := d.jobs[jobOf(lease)]
	if !ok {
		return refuse(ErrNotFound, "there is no lease %q, nor a job %q: leases list has those that there are", lease, jobOf(lease))
	}
	return refuse(ErrNotFound, "there is no lease %q: job %q has %s", lease, j.Name, strings.Join(j.Leases(), ", "))
}

// refusal says why there is nothing to revoke.
func (t term) refusal(lease string, above int64) error {
	switch {
	case t.known >= absurdEpoch-1:
		return refuse(ErrRefused, "the epoch of %q is %d, too near the end of what a bigint holds: no later term could begin; set the row's epoch, and those in terms, by hand", lease, t.known)
	case t.out:
		return refuse(ErrNotFound, "nobody leads %q: job %q has another count of shards now, and leases of other names, which leases list has", lease, jobOf(lease))
	case t.held, t.half, t.known < above:
		return nil
	case above > 0:
		return refuse(ErrRefused, "nobody leads %q, and its epoch is known to be %d: the next term is above %d already", lease, t.known, above)
	case t.known == 0:
		return refuse(ErrRefused, "nobody has led %q yet: there is no term to end", lease)
	case strings.HasPrefix(t.owner, revokedBy):
		return refuse(ErrRefused, "nobody leads %q: it was %s, and the next term will be above epoch %d", lease, t.owner, t.known)
	}
	return refuse(ErrRefused, "nobody leads %q: there is no term to end (above N raises its epoch after a restore)", lease)
}

// expireSQL ends the term as a release does. It changes no key, so it waits for no fenced write, and
// every guard that is asked from then on refuses.
const expireSQL = `
WITH mine AS MATERIALIZED (
    SELECT job_name FROM leadership
     WHERE job_name = $1 AND owner = $2 AND epoch = $3 AND expires_at > clock_timestamp()
       FOR NO KEY UPDATE),
clock AS MATERIALIZED (
    SELECT clock_timestamp() AS at FROM (SELECT count(*) FROM mine) AS locked_first)
UPDATE leadership l SET expires_at = clock.at
  FROM mine, clock
 WHERE l.job_name = mine.job_name AND l.owner = $2 AND l.epoch = $3 AND l.expires_at > clock.at
RETURNING l.epoch`

const reasonSQL = `SELECT set_config('rota.reason', $1, true)`

// expire is the first commit; false: the term was over before.
func (d *Desk) expire(ctx context.Context, o Order, done Revoked, t term, above int64) (ended bool, err error) {
	err = d.do(ctx, "revoke "+done.Lease, nothing, func(ctx context.Context, x tx) error {
		if err := x.exec(ctx, reasonSQL, reasonRevoked); err != nil {
			return err
		}
		var epoch int64
		err := x.row(ctx, expireSQL, done.Lease, t.owner, t.epoch).Scan(&epoch)
		if ended = err == nil; !ended {
			return ignoreNoRows(err)
		}
		detail := map[string]any{"owner": t.owner, "epoch": t.epoch}
		if above > 0 {
			detail["above"] = above
		}
		return x.write(ctx, o, line{action: actionRevoke, job: done.Job, lease: done.Lease, replica: t.owner, detail: detail})
	})
	return ended, err
}

// liftSQL changes the key of a term that is over, and so waits for the fenced writes that it has
// under way.
const liftSQL = `
UPDATE leadership l
   SET owner = $4, epoch = greatest(l.epoch, (SELECT max(t.epoch) FROM terms t WHERE t.job_name = $1), $5::bigint, $6::bigint) + 1
 WHERE l.job_name = $1 AND l.owner = $2 AND l.epoch = $3 AND l.expires_at <= clock_timestamp()
RETURNING l.epoch`

// The leases of a job share one order of epochs, which an acquisition locks before any of them too.
const (
	lockShardsSQL  = `SELECT epoch_high FROM job_shards WHERE job = $1 FOR UPDATE`
	raiseShardsSQL = `UPDATE job_shards SET epoch_high = greatest(epoch_high, $2) WHERE job = $1`
)

// lift is the second commit; 0: another term has begun.
func (d *Desk) lift(ctx context.Context, o Order, done Revoked, t term, above int64) (epoch int64, err error) {
	err = d.do(ctx, "raise the epoch of "+done.Lease, done.Lease, func(ctx context.Context, x tx) error {
		if err := x.exec(ctx, reasonSQL, reasonRevoked); err != nil {
			return err
		}
		var high int64
		if err := ignoreNoRows(x.row(ctx, lockShardsSQL, done.Job).Scan(&high)); err != nil {
			return err
		}
		err := x.row(ctx, liftSQL, done.Lease, t.owner, t.epoch, revokedBy+o.By, above, high).Scan(&epoch)
		if err != nil {
			epoch = 0
			return ignoreNoRows(err)
		}
		if err := x.exec(ctx, raiseShardsSQL, done.Job, epoch); err != nil {
			return err
		}
		return x.write(ctx, o, line{
			action: actionRevoke, job: done.Job, lease: done.Lease, replica: done.Owner,
			detail: map[string]any{"owner": t.owner, "epoch": t.epoch, "new_epoch": epoch},
		})
	})
	return epoch, err
}

// overtaken writes down that the next term began, above the epoch that was asked for, before this
// one's could be raised.
func (d *Desk) overtaken(ctx context.Context, o Order, done Revoked, owner string) error {
	return d.do(ctx, "write down who leads "+done.Lease, nothing, func(ctx context.Context, x tx) error {
		return x.write(ctx, o, line{
			action: actionRevoke, job: done.Job, lease: done.Lease, replica: done.Owner,
			detail: map[string]any{"epoch": done.Epoch, "new_epoch": done.NewEpoch, "taken_by": owner},
		})
	})
}

// wakeStandbys announces that a lease is free. It is a hint: without it they find it by polling.
func (d *Desk) wakeStandbys(ctx context.Context, lease string) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), lastCall)
	defer cancel()
	_, _ = d.db.Exec(ctx, announceSQL, pgx.QueryExecModeExec, lease)
}

func ignoreNoRows(err error) error {
	if errors.Is(err, pgx.ErrNoRows) {
		return nil
	}
	return err
}
