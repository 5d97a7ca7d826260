// Package jobtest leads one job against a test's database, runs it, and has it superseded.
//
//	leader := jobtest.Lead(t, pgtest.New(t), "bridge_health")
//	err := leader.Do()               // runs once, as the scheduler runs it
//	successor := leader.Successor()  // another owner takes the lease over and raises the epoch
//	err = leader.Do()                // fence.ErrFenced, and no row has changed
//	err = successor.At(tick).Do()    // the run of that tick, whatever the clock says
//	jobtest.LeadOwner(t, db, "symbol_sync", "XETR") // leads the shard that owns the key
//	successor.Drain()                // closes Run.Draining, for a job that is to end early
package jobtest

import (
	"context"
	"log/slog"
	"sync"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5/pgxpool"

	"rota/internal/fence"
	"rota/internal/registry"
	"rota/internal/scheduler"
)

// A Leader is one term of a job's lease. Its term's context ends when a write is refused, and when
// the test does; otherwise it does not notice that it was superseded, just as a process that slept.
type Leader struct {
	t      testing.TB
	db     *pgxpool.Pool
	job    registry.Job
	shard  fence.Shard
	token  fence.Token
	term   context.Context
	writer *fence.Writer
	raised bool

	tick     time.Time // zero: the present second
	attempt  int
	draining *draining
}

// draining is the term's, whatever copies of the leader there are.
type draining struct {
	once   sync.Once
	closed chan struct{}
}

// Lead takes the lease of a registered job as a leader would, from whoever holds it, and raises the
// epoch on the tables that the job protects. Of a job with shards it is that of the first.
func Lead(t testing.TB, db *pgxpool.Pool, name string) *Leader {
	t.Helper()
	return LeadJob(t, db, named(t, name))
}

// LeadOwner is Lead for the shard that a key's work is of.
func LeadOwner(t testing.TB, db *pgxpool.Pool, name, key string) *Leader {
	t.Helper()
	j := named(t, name)
	shards := fence.Shards(j.Shards)
	return leadShard(t, db, j, shards[fence.ShardOf(key, len(shards))-1])
}

// named is the registered job of that name.
func named(t testing.TB, name string) registry.Job {
	t.Helper()
	jobs, err := registry.Jobs()
	if err != nil {
		t.Fatal(err)
	}
	for _, j := range jobs {
		if j.Name == name {
			return j
		}
	}
	t.Fatalf("there is no job %q: is its package imported?", name)
	return registry.Job{}
}

// LeadJob is Lead for a job that is not registered.
func LeadJob(t testing.TB, db *pgxpool.Pool, j registry.Job) *Leader {
	t.Helper()
	return leadShard(t, db, j, fence.Shards(j.Shards)[0])
}

func leadShard(t testing.TB, db *pgxpool.Pool, j registry.Job, s fence.Shard) *Leader {
	t.Helper()
	l := take(t, db, j, s)
	l.Raise()
	return l
}

// expireSQL comes first and commits by itself, as an operator's revoke does it.
const expireSQL = `
UPDATE leadership SET expires_at = clock_timestamp() - interval '1 second'
 WHERE job_name = $1 AND expires_at > clock_timestamp()`

// takeSQL: the leases of one job share one order of epochs.
const takeSQL = `
INSERT INTO leadership AS l (job_name, owner, expires_at, epoch)
SELECT $1, $2, clock_timestamp() + interval '1 hour', 1 + coalesce(max(epoch), 0) FROM leadership WHERE job_name = ANY ($3)
ON CONFLICT (job_name) DO UPDATE
   SET owner = EXCLUDED.owner, expires_at = EXCLUDED.expires_at, epoch = EXCLUDED.epoch
RETURNING epoch`

func take(t testing.TB, db *pgxpool.Pool, j registry.Job, s fence.Shard) *Leader {
	t.Helper()
	ctx := context.Background()
	l := &Leader{
		t: t, db: db, job: j, shard: s, token: fence.Token{Lease: s.Lease(j.Name), Owner: "jobtest/" + uuid.NewString()},
		attempt: 1, draining: &draining{closed: make(chan struct{})},
	}
	if _, err := db.Exec(ctx, expireSQL, l.token.Lease); err != nil {
		t.Fatalf("expire the lease %s: %v", l.token.Lease, err)
	}
	if err := db.QueryRow(ctx, takeSQL, l.token.Lease, l.token.Owner, j.Leases()).Scan(&l.token.Epoch); err != nil {
		t.Fatalf("take the lease %s: %v", l.token.Lease, err)
	}
	term, end := context.WithCancelCause(ctx)
	t.Cleanup(func() { end(nil) })
	l.term, l.writer = term, fence.NewWriter(term, end, db, l.token, s, j.Protects...)
	return l
}

// Token is the fencing token of the leader's term.
func (l *Leader) Token() fence.Token { return l.token }

// Raise raises the epoch on the protected tables. Do does it by itself, before the first run.
func (l *Leader) Raise() {
	l.t.Helper()
	if l.raised {
		return
	}
	highest, err := fence.Raise(context.Background(), l.db, l.token, l.shard, l.job.Protects...)
	if err != nil {
		l.t.Fatalf("raise the epoch: %v", err)
	}
	if highest > l.token.Epoch {
		l.t.Fatalf("a protected row of %s has epoch %d, above the term's %d", l.job.Name, highest, l.token.Epoch)
	}
	l.raised = true
}

// Do runs the job once, as the scheduler runs it, and returns its error; a panic is one too. The
// run is the first attempt at the present second, unless At or Attempt say otherwise.
func (l *Leader) Do() error {
	l.t.Helper()
	l.Raise()
	tick := l.tick
	if tick.IsZero() {
		tick = time.Now()
	}
	return scheduler.Once(l.term, l.job, &registry.Run{
		Job: l.job.Name, Shard: max(1, l.shard.K), Of: max(1, l.shard.Of), Tick: tick.UTC().Truncate(time.Second), Attempt: l.attempt, Args: l.job.Args,
		DB: l.db, Fence: l.writer, Log: slog.New(slog.NewTextHandler(l.t.Output(), nil)), Draining: l.draining.closed,
	})
}

// WithArgs is the same term with other arguments for the job.
func (l *Leader) WithArgs(args any) *Leader {
	with := *l
	with.job.Args = args
	return &with
}

// At is the same term with its clock set: the job's runs are for that tick, which is what a job
// should reckon with rather than with the time of day. As every tick it is in UTC, on a whole second.
func (l *Leader) At(tick time.Time) *Leader {
	at := *l
	at.tick = tick
	return &at
}

// Attempt is the same term with the job's runs being the nth attempt at their tick, counted from 1.
func (l *Leader) Attempt(n int) *Leader {
	again := *l
	again.attempt = n
	return &again
}

// Drain says that the term is to be given up soon, to the run under way and to those to come: their
// Draining is closed. It may be called from any goroutine, and more than once.
func (l *Leader) Drain() { l.draining.once.Do(func() { close(l.draining.closed) }) }

// Takeover is a new term of the lease, of another owner and with a higher epoch, that has not raised
// the epoch on the protected tables yet.
func (l *Leader) Takeover() *Leader {
	l.t.Helper()
	return take(l.t, l.db, l.job, l.shard)
}

// Successor is a new term of the lease, of another owner and with a higher epoch, that is ready to
// work. From here on whatever l writes is refused.
func (l *Leader) Successor() *Leader {
	l.t.Helper()
	next := l.Takeover()
	next.Raise()
	return next
}
