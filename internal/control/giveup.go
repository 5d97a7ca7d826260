package control

import (
	"context"
	"fmt"
	"strings"

	"github.com/jackc/pgx/v5"
)

const (
	openStepDownSQL = `
SELECT id FROM requests WHERE kind = 'step_down' AND lease = $1 AND epoch = $2 AND done_at IS NULL ORDER BY id LIMIT 1`
	insertStepDownSQL = `
INSERT INTO requests (kind, job, lease, epoch, reason, asked_by) VALUES ('step_down', $1, $2, $3, $4, $5) RETURNING id`
)

// StepDown asks the leader of a lease to give it up, once the run that it may be at has ended. It
// names the term that leads now: a later one is not asked.
func (d *Desk) StepDown(ctx context.Context, o Order, lease string) (Asked, error) {
	o, err := o.checked(true)
	if err != nil {
		return Asked{}, err
	}
	if err := checkName("lease", lease, "leases list"); err != nil {
		return Asked{}, err
	}
	a := Asked{Lease: lease, Job: jobOf(lease)}
	err = d.do(ctx, "ask the leader of "+lease+" to step down", steer, func(ctx context.Context, t tx) error {
		l, err := d.ledBy(ctx, t, lease)
		if err == nil {
			err = o.means(lease, l.epoch)
		}
		if err != nil {
			return err
		}
		a.Epoch, a.Replica, a.Expect = l.epoch, l.owner, l.expectStepDown()
		return t.once(ctx, &a, openStepDownSQL, []any{lease, l.epoch}, func() error {
			if err := t.row(ctx, insertStepDownSQL, a.Job, lease, l.epoch, o.Reason, o.By).Scan(&a.ID); err != nil {
				return fmt.Errorf("make the request: %w", err)
			}
			return t.write(ctx, o, line{
				action: string(StepDown), job: a.Job, lease: lease, replica: l.owner, request: a.ID,
				detail: map[string]any{"epoch": l.epoch},
			})
		})
	})
	return a, err
}

// ledBy refuses a lease that nobody leads.
func (d *Desk) ledBy(ctx context.Context, t tx, lease string) (leader, error) {
	l, found, err := t.leader(ctx, lease)
	switch {
	case err != nil:
		return leader{}, err
	case found && l.held:
		return l, nil
	case !found && !d.leadsBy(lease):
		return leader{}, d.noLease(lease)
	}
	if err := d.counted(ctx, t, lease); found && err != nil {
		return leader{}, err
	}
	return leader{}, refuse(ErrRefused, "nobody leads %q: there is no term to end", lease)
}

func (l leader) expectStepDown() string {
	switch {
	case !l.member:
		return fmt.Sprintf("%s is no replica that heartbeats, and may not hear of it: leases revoke ends its term without it", l.owner)
	case l.others == 0:
		return fmt.Sprintf("%s gives it up after its run; no other replica is there, so it is likely to take it again", l.owner)
	case l.heirs == 0:
		return fmt.Sprintf("%s gives it up after its run; no other replica that is there can lead it, so it is likely to take it again", l.owner)
	}
	return fmt.Sprintf("%s gives it up after its run, and another takes over", l.owner)
}

const (
	membersSQL = `
SELECT m.id, m.draining,
       (SELECT count(*) FROM replicas r WHERE r.expires_at > clock_timestamp() AND NOT r.draining AND r.id <> m.id),
       (SELECT count(*) FROM leadership l
         WHERE l.owner = m.id AND l.expires_at > clock_timestamp() AND NOT EXISTS (
               SELECT FROM replicas r JOIN abilities a ON a.id = r.ability
                WHERE r.expires_at > clock_timestamp() AND NOT r.draining AND r.id <> m.id
                  AND regexp_replace(l.job_name, '\.\d+of(\d{1,4})$', '.of\1') = ANY (a.jobs)))
  FROM replicas m
 WHERE m.expires_at > clock_timestamp() AND (starts_with(m.id, $1) OR m.host = $1)
 ORDER BY m.id`
	openDrainSQL   = `SELECT id FROM requests WHERE kind = 'drain' AND replica = $1 AND done_at IS NULL ORDER BY id LIMIT 1`
	insertDrainSQL = `
INSERT INTO requests (kind, replica, reason, asked_by) VALUES ('drain', $1, $2, $3) RETURNING id`
)

type candidate struct {
	ID       string
	Draining bool
	Others   int
	Orphans  int // leases that it has and no other can lead
}

// Drain asks a replica to give up all that it leads, and to take nothing more as long as it runs. It
// is named by its id, the beginning of it, or its host, if there is but one such replica.
func (d *Desk) Drain(ctx context.Context, o Order, replica string) (Asked, error) {
	o, err := o.checked(true)
	if err != nil {
		return Asked{}, err
	}
	if replica == "" {
		return Asked{}, refuse(ErrInvalid, "no replica is named: replicas list has those that there are")
	}
	if err := checkName("replica", replica, "replicas list"); err != nil {
		return Asked{}, err
	}
	var a Asked
	err = d.do(ctx, "ask "+replica+" to drain", steer, func(ctx context.Context, t tx) error {
		c, err := t.member(ctx, replica)
		if err != nil {
			return err
		}
		a = Asked{Replica: c.ID, Expect: "it gives up all that it leads, each after its run, and stays a standby that takes nothing"}
		switch {
		case c.Others == 0:
			a.Expect += "; no other replica is there: nobody will lead anything until one is"
		case c.Orphans > 0:
			a.Expect += fmt.Sprintf("; %d of its leases no other replica that is there can lead: nobody will until one can", c.Orphans)
		}
		return t.once(ctx, &a, openDrainSQL, []any{c.ID}, func() error {
			if c.Draining {
				return refuse(ErrRefused, "replica %s is draining already", c.ID)
			}
			if err := t.row(ctx, insertDrainSQL, c.ID, o.Reason, o.By).Scan(&a.ID); err != nil {
				return fmt.Errorf("make the request: %w", err)
			}
			return t.write(ctx, o, line{action: string(Drain), replica: c.ID, request: a.ID})
		})
	})
	return a, err
}

// member finds the one replica that is meant.
func (t tx) member(ctx context.Context, name string) (candidate, error) {
	rows, err := t.Query(ctx, membersSQL, pgx.QueryExecModeExec, name)
	if err != nil {
		return candidate{}, fmt.Errorf("look at the replicas: %w", err)
	}
	found, err := pgx.CollectRows(rows, pgx.RowToStructByPos[candidate])
	if err != nil {
		return candidate{}, fmt.Errorf("look at the replicas: %w", err)
	}
	ids := make([]string, 0, len(found))
	for _, c := range found {
		if c.ID == name {
			return c, nil
		}
		ids = append(ids, c.ID)
	}
	switch len(found) {
	case 0:
		return candidate{}, refuse(ErrNotFound, "there is no replica %q that heartbeats: replicas list has those that there are", name)
	case 1:
		return found[0], nil
	}
	return candidate{}, refuse(ErrInvalid, "%q may be any of %d replicas: give more of the id: %s", name, len(found), strings.Join(ids, ", "))
}
