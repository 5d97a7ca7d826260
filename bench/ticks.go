package main

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"syscall"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/prometheus/client_golang/prometheus"

	"rota/internal/fence"
	"rota/internal/lease"
	"rota/internal/registry"
	"rota/internal/scheduler"
)

// ticks compares ten thousand ticks that are due at one instant with one statement for each.
func ticks(ctx context.Context, w *world) (rows []row, err error) {
	n := w.some(10_000)
	together, err := w.together(ctx, n)
	if err != nil {
		return rows, fmt.Errorf("%d ticks at once: %w", n, err)
	}
	oneByOne, err := w.oneByOne(ctx, n)
	if err != nil {
		return rows, fmt.Errorf("%d ticks one by one: %w", n, err)
	}
	ours, theirs := quantile(together, .99), quantile(oneByOne, .99)
	return []row{
		row{
			Work: fmt.Sprintf("ticks due at one instant: %d, p99 start delay", n), Figure: ms(ours),
			Against: "a statement for each " + ms(theirs), Ratio: over(ours, theirs),
		}.barred("at most 1 s, 1/10", ours <= time.Second && 10*ours <= theirs),
		{Work: "  half of them", Figure: ms(quantile(together, .5)), Against: "a statement for each " + ms(quantile(oneByOne, .5))},
	}, nil
}

// records counts how many runs a second come through, from claim to end.
func records(ctx context.Context, w *world) ([]row, error) {
	r, err := w.rate(ctx, w.some(10_000))
	if err != nil {
		return nil, err
	}
	return []row{
		row{
			Work: "whole runs: claimed, made, and their ends recorded", Figure: fmt.Sprintf("%.0f a second", r.aSecond),
		}.barred("at least 20000", r.aSecond >= 20_000),
		{Work: "  CPU time for each", Figure: "server " + us(r.server), Against: "replica " + us(r.replica)},
	}, nil
}

// A crew is a replica that leads jobs and runs them.
type crew struct {
	stop  context.CancelFunc
	done  sync.WaitGroup
	pools []*pgxpool.Pool
}

func (w *world) crew(ctx context.Context, jobs []registry.Job) (c *crew, err error) {
	owner := lease.NewOwner("crew")
	base, err := pgxpool.ParseConfig(w.cluster.URL("postgres"))
	if err != nil {
		return nil, fmt.Errorf("read the address of PostgreSQL: %w", err)
	}
	c = &crew{stop: func() {}}
	defer func() {
		if err != nil {
			c.end()
		}
	}()
	leases, err := lease.NewPool(ctx, base, owner)
	if err != nil {
		return c, err
	}
	c.pools = append(c.pools, leases)
	engine, err := w.pool(ctx, 7)
	if err != nil {
		return c, err
	}
	c.pools = append(c.pools, engine)
	metrics := prometheus.NewRegistry()
	elector, err := lease.New(leases, lease.Config{Owner: owner, Lease: usual.lease, Renew: usual.renew, Metrics: metrics})
	if err != nil {
		return c, err
	}
	work, err := scheduler.New(scheduler.Config{
		Engine: engine, Work: engine, Jobs: jobs, Elector: elector, Owner: owner, Metrics: metrics, Grace: time.Second,
	})
	if err != nil {
		return c, err
	}
	ctx, c.stop = context.WithCancel(ctx)
	c.done.Go(func() { _ = work.Run(ctx) })
	c.done.Go(func() { _ = elector.Run(ctx, named(len(jobs)), work.Lead) })
	return c, nil
}

func (c *crew) end() {
	c.stop()
	c.done.Wait()
	for _, p := range c.pools {
		p.Close()
	}
}

// alike are n jobs that differ in their names.
func alike(n int, job registry.Job) (jobs []registry.Job) {
	for _, l := range named(n) {
		job.Name = l.Job
		jobs = append(jobs, job)
	}
	return jobs
}

// burstPeriod is the time between two instants at which all are due.
const burstPeriod = 5 * time.Second

// together is how long after its tick each of the runs of some ticks began.
func (w *world) together(ctx context.Context, n int) (delays []time.Duration, err error) {
	if err := w.empty(ctx); err != nil {
		return nil, err
	}
	began := make(chan time.Duration, n)
	c, err := w.crew(ctx, alike(n, registry.Job{
		Schedule: registry.Every(burstPeriod),
		Run: func(_ context.Context, run *registry.Run) error {
			began <- time.Since(run.Tick)
			return nil
		},
	}))
	if err != nil {
		return nil, err
	}
	defer c.end()
	if err := w.registered(ctx, n); err != nil {
		return nil, err
	}
	// What may be one tick's or the next's belongs to none: the first two are left out.
	time.Sleep(time.Until(time.Now().Truncate(burstPeriod).Add(2*burstPeriod - time.Second)))
	for len(began) > 0 {
		<-began
	}
	late := time.After(20 * burstPeriod)
	for len(delays) < 10*n {
		select {
		case d := <-began:
			delays = append(delays, d)
		case <-late:
			return nil, fmt.Errorf("of %d runs %d have begun", 10*n, len(delays))
		}
	}
	return delays, nil
}

// empty forgets the work of the measurement before.
func (w *world) empty(ctx context.Context) error {
	_, err := w.db.Exec(ctx, "TRUNCATE leadership, terms, replicas, progress, runs")
	return err
}

// registered returns once all schedules are known.
func (w *world) registered(ctx context.Context, n int) error {
	return w.until(ctx, n, "SELECT count(*) FROM progress")
}

// until returns once a count has come up to n.
func (w *world) until(ctx context.Context, n int, sql string, args ...any) error {
	for began := time.Now(); ; time.Sleep(time.Second) {
		var found int
		if err := w.db.QueryRow(ctx, sql, args...).Scan(&found); err != nil {
			return err
		}
		switch {
		case found >= n:
			return nil
		case time.Since(began) > 3*time.Minute:
			return fmt.Errorf("%d of %d: %s", found, n, sql)
		}
	}
}

// claimOneSQL claims one tick: under its lease, once, and with its progress.
const claimOneSQL = `
WITH held AS MATERIALIZED (
    SELECT FROM lease_epochs e
     WHERE job_name = $1 AND epoch = $3 AND EXISTS (
           SELECT FROM leadership l WHERE l.job_name = $1 AND l.owner = $2 AND l.epoch = $3 AND l.expires_at > clock_timestamp())
       FOR KEY SHARE),
moved AS (
    UPDATE progress SET last_tick = $4, updated_at = clock_timestamp()
     WHERE lease = $1 AND last_tick < $4 AND EXISTS (SELECT FROM held) RETURNING lease)
INSERT INTO runs (lease, job, tick, epoch, owner) SELECT lease, lease, $4, $3, $2 FROM moved ON CONFLICT DO NOTHING`

// oneByOne is when each of n ticks was claimed, by a statement of its own on one connection.
func (w *world) oneByOne(ctx context.Context, n int) (delays []time.Duration, err error) {
	t := fence.Token{Owner: "bench", Epoch: 1 << 20}
	_, err = w.db.Exec(ctx, "UPDATE leadership SET owner = $1, epoch = $2, expires_at = clock_timestamp() + interval '1 day'", t.Owner, t.Epoch)
	if err != nil {
		return nil, err
	}
	if _, err := w.db.Exec(ctx, "UPDATE progress SET last_tick = clock_timestamp() - interval '1 day'"); err != nil {
		return nil, err
	}
	conn, err := pgx.Connect(ctx, w.cluster.URL("postgres"))
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, conn.Close(ctx)) }()
	tick := time.Now().Truncate(time.Microsecond)
	for _, l := range named(n) {
		done, err := conn.Exec(ctx, claimOneSQL, l.Name, t.Owner, t.Epoch, tick)
		if err == nil && done.RowsAffected() != 1 {
			err = errors.New("it was not won")
		}
		if err != nil {
			return nil, fmt.Errorf("claim a tick of %s: %w", l.Name, err)
		}
		delays = append(delays, time.Since(tick))
	}
	return delays, nil
}

// missedTicks is how many ticks each job makes up for where runs per second are counted.
const missedTicks = 20

// A rate is how many runs a second come through, and what each of them costs.
type rate struct {
	aSecond         float64
	server, replica time.Duration // CPU time
}

// rate is that of n jobs that make up for ticks one after another.
func (w *world) rate(ctx context.Context, n int) (r rate, err error) {
	if err := w.empty(ctx); err != nil {
		return r, err
	}
	const period = 24 * time.Hour // no tick falls due meanwhile, or one at most
	jobs := alike(n, registry.Job{
		Schedule: registry.Every(period), Missed: registry.RunAll, Run: func(context.Context, *registry.Run) error { return nil },
	})
	c, err := w.crew(ctx, jobs)
	if err != nil {
		return r, err
	}
	err = w.registered(ctx, n)
	c.end()
	if err != nil {
		return r, err
	}
	first := time.Now().Truncate(period).Add(-missedTicks * period)
	if _, err := w.db.Exec(ctx, "UPDATE progress SET last_tick = $1", first); err != nil {
		return r, err
	}
	before, err := w.spent()
	if err != nil {
		return r, err
	}
	if c, err = w.crew(ctx, jobs); err != nil {
		return r, err
	}
	defer c.end()
	// To count the runs themselves would be a load of its own.
	const madeUpSQL = `SELECT count(*) FROM progress p WHERE last_tick >= $1
		AND NOT EXISTS (SELECT FROM runs WHERE id = ANY (p.open) AND ended_at IS NULL)`
	if err := w.until(ctx, n, madeUpSQL, first.Add(missedTicks*period)); err != nil {
		return r, err
	}
	after, err := w.spent()
	if err != nil {
		return r, err
	}
	r.server, r.replica = (after.server-before.server)/time.Duration(n*missedTicks), (after.replica-before.replica)/time.Duration(n*missedTicks)
	err = w.db.QueryRow(ctx, "SELECT count(*) / extract(epoch FROM max(ended_at) - min(started_at))::float8 FROM runs").Scan(&r.aSecond)
	return r, err
}

// spent is the CPU time of the server and of this process so far.
func (w *world) spent() (r rate, err error) {
	var own syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &own); err != nil {
		return r, err
	}
	r.replica = time.Duration(own.Utime.Nano() + own.Stime.Nano())
	r.server, err = w.cpu()
	return r, err
}
