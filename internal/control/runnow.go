package control

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"

	"github.com/jackc/pgx/v5"

	"rota/internal/registry"
)

const (
	// mostWaiting is how many requests to run one job may wait at a time.
	mostWaiting = 1000
	longestKey  = 200
)

// RunNow asks for a run of a job besides its ticks, with a JSON object laid over its arguments. The
// job's leader runs it, once, after the run that it may be at; a pause does not keep it from doing so.
// Of a job with shards each is asked, in a request of its own.
//
// A request that is made again under the same key is the same one, and must have the same arguments;
// so with a key it is safe to ask again when the answer was lost. Shards each have one of the key.
func (d *Desk) RunNow(ctx context.Context, o Order, job string, args json.RawMessage, key string) (Asked, error) {
	return d.runNow(ctx, o, job, 0, args, key)
}

// RunShard is RunNow for one of a job's shards, from 1, of as many as are in force.
func (d *Desk) RunShard(ctx context.Context, o Order, job string, shard int, args json.RawMessage, key string) (Asked, error) {
	if shard < 1 {
		return Asked{}, refuse(ErrInvalid, "shard %d: they count from 1", shard)
	}
	return d.runNow(ctx, o, job, shard, args, key)
}

func (d *Desk) runNow(ctx context.Context, o Order, job string, shard int, args json.RawMessage, key string) (Asked, error) {
	o, err := o.checked(false)
	if err != nil {
		return Asked{}, err
	}
	kept, err := d.runnable(job, args, key)
	if err != nil {
		return Asked{}, err
	}
	var all []Asked
	err = d.do(ctx, "ask for a run of "+job, steer, func(ctx context.Context, t tx) error {
		all = nil
		if err := d.knows(ctx, t, job); err != nil {
			return err
		}
		leases, err := d.leasesOf(ctx, t, job, shard)
		if err != nil {
			return err
		}
		for _, lease := range leases {
			a := Asked{Job: job, Lease: lease}
			if err := t.insertRun(ctx, o, &a, kept, key); err != nil {
				return err
			}
			if err := t.expectRun(ctx, &a); err != nil {
				return err
			}
			all = append(all, a)
		}
		return nil
	})
	switch {
	case err != nil:
		return Asked{}, err
	case len(all) == 1:
		return all[0], nil
	}
	return together(all), nil
}

// together is the requests for the shards of a job as one.
func together(all []Asked) Asked {
	a := Asked{ID: all[0].ID, Job: all[0].Job, Existed: true, Shards: all}
	a.Expect = fmt.Sprintf("each of the %d shards runs; the first: %s", len(all), all[0].Expect)
	for _, one := range all {
		a.Existed = a.Existed && one.Existed
	}
	return a
}

const shardsOfSQL = `SELECT n FROM job_shards WHERE job = $1`

// count is by how many leases a job is led: by what is in force, or by what this program knows.
func (d *Desk) count(ctx context.Context, t tx, job string) (n int, err error) {
	err = t.row(ctx, shardsOfSQL, job).Scan(&n)
	switch {
	case errors.Is(err, pgx.ErrNoRows):
		return max(1, d.jobs[job].Shards), nil
	case err != nil:
		return 0, fmt.Errorf("look at the shards of %q: %w", job, err)
	}
	return n, nil
}

// leasesOf are the leases of a job, or that of one of its shards.
func (d *Desk) leasesOf(ctx context.Context, t tx, job string, shard int) ([]string, error) {
	n, err := d.count(ctx, t, job)
	if err != nil {
		return nil, err
	}
	leases := registry.Job{Name: job, Shards: n}.Leases()
	switch {
	case shard == 0:
		return leases, nil
	case n == 1:
		return nil, refuse(ErrInvalid, "shard %d: job %q has none", shard, job)
	case shard > n:
		return nil, refuse(ErrInvalid, "shard %d: job %q has %d", shard, job, n)
	}
	return leases[shard-1 : shard], nil
}

// runnable refuses what the leader would refuse, as far as it can be known here.
func (d *Desk) runnable(job string, args json.RawMessage, key string) (*string, error) {
	if err := checkText("the key", key, longestKey); err != nil {
		return nil, err
	}
	kept, err := stored(args)
	if err != nil {
		return nil, err
	}
	j, ok := d.jobs[job]
	if !ok {
		return kept, nil // another version's, whose leader will look at them
	}
	if j.Schedule.Kind() == registry.Unbroken {
		return nil, refuse(ErrInvalid, "job %q is continuous: it runs whenever it is led, and not on request; leases step-down starts it anew", job)
	}
	return kept, checkArgs(j, args)
}

const (
	waitingSQL   = `SELECT count(*) FROM requests WHERE kind = 'run' AND lease = $1 AND done_at IS NULL`
	insertRunSQL = `
INSERT INTO requests (kind, job, lease, args, key, reason, asked_by)
VALUES ('run', $1, $2, $3::jsonb, nullif($4, ''), $5, $6)
    ON CONFLICT (lease, key) WHERE key IS NOT NULL DO NOTHING
RETURNING id`
	sameKeySQL = `
SELECT id, args IS NOT DISTINCT FROM $3::jsonb, coalesce(result, '')
  FROM requests WHERE lease = $1 AND key = $2`
)

// insertRun makes the request, or finds the one that has its key. One that is being made at the same
// moment is waited for.
func (t tx) insertRun(ctx context.Context, o Order, a *Asked, args *string, key string) error {
	var waiting int
	if err := t.row(ctx, waitingSQL, a.Lease).Scan(&waiting); err != nil {
		return fmt.Errorf("count the requests: %w", err)
	}
	err := t.row(ctx, insertRunSQL, a.Job, a.Lease, args, key, o.Reason, o.By).Scan(&a.ID)
	switch {
	case errors.Is(err, pgx.ErrNoRows):
		return t.sameRun(ctx, a, args, key)
	case isDataError(err):
		return because(ErrInvalid, err, "the arguments cannot be stored: a text in them has half a character, a number is out of range, or they are nested too deep")
	case err != nil:
		return fmt.Errorf("make the request: %w", err)
	case waiting >= mostWaiting:
		return refuse(ErrRefused, "%d requests to run %q wait already: see why nobody takes them before asking for more", waiting, a.Job)
	}
	detail := map[string]any{}
	if args != nil {
		detail["args"] = json.RawMessage(*args)
	}
	if key != "" {
		detail["key"] = key
	}
	return t.write(ctx, o, line{action: string(Run), job: a.Job, lease: a.Lease, request: a.ID, detail: detail})
}

func (t tx) sameRun(ctx context.Context, a *Asked, args *string, key string) error {
	var same bool
	var result string
	if err := t.row(ctx, sameKeySQL, a.Lease, key, args).Scan(&a.ID, &same, &result); err != nil {
		return fmt.Errorf("find the request of key %q: %w", key, err)
	}
	if !same {
		return refuse(ErrRefused, "request %d to run %q has the key %q already, with other arguments: use another key", a.ID, a.Job, key)
	}
	a.Existed = true
	if result != "" {
		a.Expect = "it was settled: " + result
	}
	return nil
}

// isDataError says that a value is none that the database can hold, such as a zero byte in jsonb.
func isDataError(err error) bool {
	return isState(err, "22P05", "22P02", "22003", "22021", "22030", "54000", "54001")
}

const expectRunSQL = `
SELECT coalesce((SELECT l.owner FROM leadership l WHERE l.job_name = $1 AND l.expires_at > clock_timestamp()), ''),
       EXISTS (SELECT FROM progress p JOIN runs r ON r.id = ANY (p.open) WHERE p.lease = $1 AND r.ended_at IS NULL)
    OR EXISTS (SELECT FROM requests q WHERE q.kind = 'run' AND q.lease = $1 AND q.done_at IS NULL AND q.id < $2),
       EXISTS (SELECT FROM pauses p WHERE p.job IN ($3, '*') AND (p.until IS NULL OR p.until > clock_timestamp()))`

// expectRun says what will come of the request.
func (t tx) expectRun(ctx context.Context, a *Asked) error {
	if a.Expect != "" {
		return nil
	}
	var busy, paused bool
	if err := t.row(ctx, expectRunSQL, a.Lease, a.ID, a.Job).Scan(&a.Replica, &busy, &paused); err != nil {
		return fmt.Errorf("look at the job: %w", err)
	}
	switch {
	case a.Replica == "":
		a.Expect = "nobody leads the job: it waits until somebody does"
	case busy:
		a.Expect = "it waits for the run under way on " + a.Replica
	default:
		a.Expect = "it starts at once on " + a.Replica
	}
	if paused {
		a.Expect += "; the job is paused, which does not keep a requested run back"
	}
	return nil
}
