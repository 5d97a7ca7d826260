package control

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"
)

// Paused is what became of an order to pause.
type Paused struct {
	Pause    Pause
	Replaced *Pause // the pause that was in force before; nil: there was none
}

var pauseOfSQL = `
SELECT job, reason, paused_by, ` + orNow("paused_at") + `, ` + orNever("until") + `, until IS NULL OR until > clock_timestamp()
  FROM pauses WHERE job = $1 FOR UPDATE`

const pauseSQL = `
INSERT INTO pauses (job, reason, paused_by, paused_at, until)
SELECT $1, $2, $3, now.at, $4::timestamptz FROM (SELECT clock_timestamp() AS at OFFSET 0) AS now
 WHERE $4::timestamptz IS NULL OR $4::timestamptz > now.at
    ON CONFLICT (job) DO UPDATE
   SET reason = EXCLUDED.reason, paused_by = EXCLUDED.paused_by, paused_at = EXCLUDED.paused_at, until = EXCLUDED.until
RETURNING paused_at`

// Pause keeps a job, or AllJobs, from taking ticks until it is resumed, or until a time by the
// database's clock; the zero time is none. Its leases are led on. A pause that is in force already
// is replaced.
func (d *Desk) Pause(ctx context.Context, o Order, job string, until time.Time) (Paused, error) {
	o, err := o.checked(true)
	if err != nil {
		return Paused{}, err
	}
	var p Paused
	err = d.do(ctx, "pause "+job, steer, func(ctx context.Context, t tx) error {
		if job != AllJobs {
			if err := d.knows(ctx, t, job); err != nil {
				return err
			}
		}
		former, err := t.pauseOf(ctx, job)
		if err != nil {
			return err
		}
		p = Paused{Pause: Pause{Job: job, Reason: o.Reason, By: o.By, Until: until}, Replaced: former}
		err = t.row(ctx, pauseSQL, job, o.Reason, o.By, orNull(until)).Scan(&p.Pause.At)
		if errors.Is(err, pgx.ErrNoRows) {
			return refuse(ErrInvalid, "the pause would end at %s, which is past by the database's clock: give a later time", until.UTC().Format(time.RFC3339))
		}
		if err != nil {
			return fmt.Errorf("store the pause: %w", err)
		}
		return t.write(ctx, o, line{action: actionPause, job: job, detail: pauseDetail(p)})
	})
	return p, err
}

func pauseDetail(p Paused) map[string]any {
	detail := map[string]any{}
	if !p.Pause.Until.IsZero() {
		detail["until"] = p.Pause.Until.UTC()
	}
	if r := p.Replaced; r != nil {
		detail["replaced"] = map[string]any{"by": r.By, "reason": r.Reason, "at": r.At.UTC()}
	}
	return detail
}

func orNull(t time.Time) *time.Time {
	if t.IsZero() {
		return nil
	}
	return &t
}

// pauseOf is the pause of a job that is in force, whose row it locks; nil: there is none.
func (t tx) pauseOf(ctx context.Context, job string) (*Pause, error) {
	var p Pause
	var until *time.Time
	var inForce bool
	err := t.row(ctx, pauseOfSQL, job).Scan(&p.Job, &p.Reason, &p.By, &p.At, &until, &inForce)
	switch {
	case errors.Is(err, pgx.ErrNoRows) || err == nil && !inForce:
		return nil, nil
	case err != nil:
		return nil, fmt.Errorf("look at the pause of %s: %w", job, err)
	}
	if until != nil {
		p.Until = *until
	}
	return &p, nil
}

// Resumed is what became of an order to resume.
type Resumed struct {
	Ended Pause
	Still *Pause // the pause of all jobs, which keeps this one paused all the same; nil: there is none
}

const resumeSQL = `DELETE FROM pauses WHERE job = $1`

// Resume ends the pause of a job, or the one of AllJobs. It does not end the pauses that single jobs
// have of their own.
func (d *Desk) Resume(ctx context.Context, o Order, job string) (Resumed, error) {
	o, err := o.checked(true)
	if err != nil {
		return Resumed{}, err
	}
	if err := checkName("job", job, "jobs list"); err != nil {
		return Resumed{}, err
	}
	var r Resumed
	err = d.do(ctx, "resume "+job, steer, func(ctx context.Context, t tx) error {
		own, err := t.pauseOf(ctx, job)
		if err != nil {
			return err
		}
		var all *Pause
		if job != AllJobs {
			if all, err = t.pauseOf(ctx, AllJobs); err != nil {
				return err
			}
		}
		if own == nil {
			return d.notPaused(ctx, t, job, all)
		}
		r = Resumed{Ended: *own, Still: all}
		if err := t.exec(ctx, resumeSQL, job); err != nil {
			return fmt.Errorf("end the pause: %w", err)
		}
		return t.write(ctx, o, line{action: actionResume, job: job, detail: map[string]any{
			"paused_by": own.By, "paused_reason": own.Reason, "paused_at": own.At.UTC(),
		}})
	})
	return r, err
}

func (d *Desk) notPaused(ctx context.Context, t tx, job string, all *Pause) error {
	if job == AllJobs {
		return refuse(ErrRefused, "there is nothing to resume: there is no pause of all jobs (single jobs are resumed by name)")
	}
	if err := d.knows(ctx, t, job); err != nil {
		return err
	}
	if all != nil {
		return refuse(ErrRefused, "%q has no pause of its own: all jobs are paused by %s (%s); resume all", job, all.By, all.Reason)
	}
	return refuse(ErrRefused, "there is nothing to resume: %q is not paused", job)
}
