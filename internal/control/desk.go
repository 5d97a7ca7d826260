package control

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"rota/internal/registry"
)

// A Desk is where operators' orders are taken. Each commits a request, or an effect, together with a
// line of the audit. It is safe for use by several goroutines.
type Desk struct {
	db   *pgxpool.Pool
	jobs map[string]registry.Job
}

// NewDesk returns a desk that knows the jobs, and writes over db.
func NewDesk(db *pgxpool.Pool, jobs []registry.Job) *Desk {
	d := &Desk{db: db, jobs: make(map[string]registry.Job, len(jobs))}
	for _, j := range jobs {
		d.jobs[j.Name] = j
	}
	return d
}

// Where an order was given.
const (
	CLI  = "cli"
	Page = "page"
	API  = "api"
)

// An Order says who wants something, and why.
type Order struct {
	By     string // who gives it
	Via    string // CLI, Page or API
	From   string // the address that it came from; empty: this machine's command line
	Reason string // required but for RunNow
	Epoch  int64  // the term that StepDown or Revoke is meant for; zero: whichever there is
}

// means refuses an order that was meant for another term than this one: a form that is sent twice, or
// once more from the browser's history, must not end the term of the successor.
func (o Order) means(lease string, epoch int64) error {
	if o.Epoch == 0 || o.Epoch == epoch {
		return nil
	}
	return refuse(ErrRefused, "the term of %q under epoch %d is over; its epoch is %d by now", lease, o.Epoch, epoch)
}

const (
	longestBy     = 200
	longestReason = 1000
)

// checked is the order in a form that can be stored.
func (o Order) checked(needsReason bool) (Order, error) {
	if err := checkText("who gives the order", o.By, longestBy); err != nil {
		return o, err
	}
	if err := checkText("the reason", o.Reason, longestReason); err != nil {
		return o, err
	}
	o.By, o.Reason = oneLine(o.By), oneLine(o.Reason)
	switch {
	case !readable(o.By):
		return o, refuse(ErrInvalid, "nobody gives the order: say who")
	case !slices.Contains([]string{CLI, Page, API}, o.Via):
		return o, refuse(ErrInvalid, "an order via %q: it must be %s, %s or %s", o.Via, CLI, Page, API)
	case needsReason && o.Reason == "":
		return o, refuse(ErrInvalid, "no reason is given: say why, for those who meet it later")
	case needsReason && !readable(o.Reason):
		return o, refuse(ErrInvalid, "the reason consists of characters that nobody sees: say why, for those who meet it later")
	}
	return o, nil
}

// Asked is a request that a replica will carry out.
type Asked struct {
	ID      int64  `json:"request"`
	Existed bool   `json:"existed"` // it had been made before; nothing was added
	Job     string `json:"job,omitempty"`
	Lease   string `json:"lease,omitempty"`
	Epoch   int64  `json:"epoch,omitempty"`   // the term that is to end
	Run     int64  `json:"run,omitempty"`     // the run that is to end
	Replica string `json:"replica,omitempty"` // the owner that is to carry it out; empty: nobody for now
	Expect  string `json:"expect"`            // what will come of it, in a sentence

	Shards []Asked `json:"shards,omitempty"` // of a job with shards: the requests, one for each; ID is the first's
}

// orderTimeout bounds a transaction of an order, for somebody waits for its answer.
const orderTimeout = 2 * time.Second

// deskSettings bounds it on the server too, where nobody is to wait for a desk that has stopped in the
// middle, and returns the moment from which on it is too late to commit.
const deskSettings = `SELECT set_config('statement_timeout', '1800ms', true), set_config('lock_timeout', '1500ms', true),
       set_config('idle_in_transaction_session_timeout', '2s', true), set_config('synchronous_commit', 'on', true),
       (clock_timestamp() + interval '2 s')::text`

// tx is a transaction in which statements are sent unnamed, as a pooler in transaction mode wants it.
type tx struct{ pgx.Tx }

func (t tx) exec(ctx context.Context, sql string, args ...any) error {
	_, err := t.Exec(ctx, sql, append([]any{pgx.QueryExecModeExec}, args...)...)
	return err
}

func (t tx) row(ctx context.Context, sql string, args ...any) pgx.Row {
	return t.QueryRow(ctx, sql, append([]any{pgx.QueryExecModeExec}, args...)...)
}

// What is announced with a transaction: the name of a lease that is free, or that there is something
// to look at.
const (
	steer   = "steer"
	nothing = ""
)

// do makes f's transaction, and announces something with its commit. The announcement is a hint:
// where the server refuses it, the transaction is made without.
func (d *Desk) do(ctx context.Context, what, announce string, f func(context.Context, tx) error) error {
	bound, cancel := context.WithTimeout(ctx, orderTimeout)
	defer cancel()
	sent, err := d.try(bound, announce, f)
	if sent && answered(err) && announce != nothing {
		sent, err = d.try(bound, nothing, f)
	}
	return explain(ctx, err, what, sent)
}

const announceSQL = `SELECT pg_notify(rota_channel(), $1)`

// try reports whether f had come to its end when it failed, so that it was the announcement or the
// commit that went wrong.
func (d *Desk) try(ctx context.Context, announce string, f func(context.Context, tx) error) (sent bool, err error) {
	pooled, err := d.db.Acquire(ctx)
	if err != nil {
		return false, err
	}
	defer pooled.Release() // closes the connection if it is still in a transaction
	raw, err := pooled.Conn().BeginTx(ctx, pgx.TxOptions{IsoLevel: pgx.ReadCommitted})
	if err != nil {
		return false, err
	}
	defer rollback(ctx, pooled.Conn())
	t := tx{raw}
	var tooLate string
	if err := t.row(ctx, deskSettings).Scan(nil, nil, nil, nil, &tooLate); err != nil {
		return false, err
	}
	if err := f(ctx, t); err != nil {
		return false, err
	}
	if announce != nothing {
		if err := t.exec(ctx, announceSQL, announce); err != nil {
			return answered(err), err
		}
	}
	return commit(ctx, pooled.Conn().PgConn(), tooLate)
}

const knownJobSQL = `
SELECT EXISTS (SELECT FROM leadership WHERE job_name = $1) OR EXISTS (SELECT FROM job_shards WHERE job = $1)`

// knows refuses a job that is neither compiled in nor led by anybody's replicas.
func (d *Desk) knows(ctx context.Context, t tx, job string) error {
	if err := checkName("job", job, "jobs list"); err != nil {
		return err
	}
	if whole, k, _ := registry.LeaseOf(job); k > 0 {
		return refuse(ErrNotFound, "there is no job %q: that is the lease of a shard; name its job, %q", job, whole)
	}
	if _, ok := d.jobs[job]; ok {
		return nil
	}
	var led bool
	if err := t.row(ctx, knownJobSQL, job).Scan(&led); err != nil {
		return err
	}
	if !led {
		return refuse(ErrNotFound, "there is no job %q; there are: %s", job, strings.Join(d.names(), ", "))
	}
	return nil
}

func (d *Desk) names() []string {
	names := make([]string, 0, len(d.jobs))
	for name := range d.jobs {
		names = append(names, name)
	}
	slices.Sort(names)
	return names
}

// A leader is a lease row as an order finds it.
type leader struct {
	owner  string
	epoch  int64
	held   bool
	member bool // its owner is a replica that heartbeats
	others int  // replicas that are there besides it
	heirs  int  // those of them that can lead the lease
}

const leaderSQL = `
SELECT l.owner, l.epoch, l.owner <> '' AND l.expires_at > clock.at, m.id IS NOT NULL,
       (SELECT count(*) FROM replicas r WHERE r.expires_at > clock.at AND NOT r.draining AND r.id <> l.owner),
       (SELECT count(*) FROM replicas r JOIN abilities a ON a.id = r.ability
         WHERE r.expires_at > clock.at AND NOT r.draining AND r.id <> l.owner AND $2 = ANY (a.jobs))
  FROM (SELECT clock_timestamp() AS at OFFSET 0) AS clock, leadership l
  LEFT JOIN replicas m ON m.id = l.owner AND m.expires_at > clock_timestamp()
 WHERE l.job_name = $1`

// leader returns the lease's row; a lease that has none yet is free.
func (t tx) leader(ctx context.Context, lease string) (l leader, found bool, err error) {
	err = t.row(ctx, leaderSQL, lease, registry.Kin(lease)).Scan(&l.owner, &l.epoch, &l.held, &l.member, &l.others, &l.heirs)
	if errors.Is(err, pgx.ErrNoRows) {
		return leader{}, false, nil
	}
	if err != nil {
		return leader{}, false, fmt.Errorf("look at the lease: %w", err)
	}
	return l, true, nil
}

// jobOf is the job that a lease leads.
func jobOf(lease string) string {
	job, _, _ := registry.LeaseOf(lease)
	return job
}

// counted refuses a lease of a count that is not in force, for nobody leads it.
func (d *Desk) counted(ctx context.Context, t tx, lease string) error {
	job, _, of := registry.LeaseOf(lease)
	n, err := d.count(ctx, t, job)
	if err != nil || n == max(1, of) {
		return err
	}
	if n == 1 {
		return refuse(ErrNotFound, "nobody leads %q: job %q has no shards, and its lease is %[2]q", lease, job)
	}
	leases := registry.Job{Name: job, Shards: n}.Leases()
	return refuse(ErrNotFound, "nobody leads %q: job %q has %d shards, and their leases are %s to %s", lease, job, n, leases[0], leases[n-1])
}
