package main

import (
	"context"
	"fmt"
	"math/rand/v2"
	"strings"
	"sync"
	"time"

	"github.com/jackc/pgx/v5"

	"rota/internal/lease"
)

// The article's statement, which its loop runs for each job.
const articleUpsert = `INSERT INTO leadership (job_name, owner, expires_at, epoch)
VALUES ($1, $2, now() + interval '15 seconds', 1)
ON CONFLICT (job_name) DO UPDATE
   SET owner      = $2,
       expires_at = now() + interval '15 seconds',
       epoch      = leadership.epoch
                  + CASE WHEN leadership.owner = $2
                          AND leadership.expires_at >= now() THEN 0 ELSE 1 END
 WHERE leadership.owner = $2
    OR leadership.expires_at < now()
RETURNING epoch`

// patientUpsert is the same with a lease so long that none runs out: where a round over all jobs
// takes longer than the lease, the article's loop loses them, and takeovers would be measured in
// place of renewals.
var patientUpsert = strings.ReplaceAll(articleUpsert, "15 seconds", "1 hour")

// articleRound is one round of the article's loop over n jobs in three copies, a connection each, of
// which the first leads all of them.
func (w *world) articleRound(ctx context.Context, n int) (result round, err error) {
	if _, err := w.db.Exec(ctx, "TRUNCATE leadership, terms, replicas"); err != nil {
		return result, err
	}
	conns := make([]*pgx.Conn, 3)
	for i := range conns {
		if conns[i], err = pgx.Connect(ctx, w.cluster.URL("postgres")); err != nil {
			return result, err
		}
		defer func() { _ = conns[i].Close(context.Background()) }()
	}
	leases := named(n)
	if _, err := copyOf(ctx, conns[0], 0, leases); err != nil {
		return result, err
	}
	before, err := w.counted(ctx)
	if err != nil {
		return result, err
	}
	rounds := max(2, w.some(20_000)/n)
	if n == 1 {
		rounds = w.some(3000)
	}
	var took time.Duration
	for range rounds {
		holder, err := copies(ctx, conns, leases)
		if err != nil {
			return result, err
		}
		took += holder
	}
	after, err := w.counted(ctx)
	if err != nil {
		return result, err
	}
	return round{
		cpu: (after.cpu - before.cpu) / time.Duration(rounds), took: took / time.Duration(rounds),
		statements: float64(after.statements-before.statements) / float64(rounds),
		hot:        100 * float64(after.hot-before.hot) / float64(max(1, after.updates-before.updates)),
	}, nil
}

// copies has every copy go over all leases once, at the same time, and is how long the holder took.
func copies(ctx context.Context, conns []*pgx.Conn, leases []lease.Lease) (holder time.Duration, err error) {
	took, errs := make([]time.Duration, len(conns)), make([]error, len(conns))
	var all sync.WaitGroup
	for i, conn := range conns {
		all.Go(func() { took[i], errs[i] = copyOf(ctx, conn, i, leases) })
	}
	all.Wait()
	for _, err := range errs {
		if err != nil {
			return 0, err
		}
	}
	return took[0], nil
}

func copyOf(ctx context.Context, conn *pgx.Conn, number int, leases []lease.Lease) (time.Duration, error) {
	began := time.Now()
	for _, l := range leases {
		if _, err := conn.Exec(ctx, patientUpsert, l.Name, fmt.Sprint("copy", number)); err != nil {
			return 0, err
		}
	}
	return time.Since(began), nil
}

const (
	// articlePace is how often the article's loop runs its statement.
	articlePace = 5 * time.Second

	articleReleaseSQL = `UPDATE leadership SET expires_at = now() - interval '1 second' WHERE job_name = $1 AND owner = $2`

	articleWriteSQL = `
INSERT INTO article_status AS s (bridge_id, health, checked_at, epoch) VALUES ('LP-1', 'UP', now(), $1)
    ON CONFLICT (bridge_id) DO UPDATE SET health = EXCLUDED.health, checked_at = EXCLUDED.checked_at, epoch = EXCLUDED.epoch
 WHERE s.epoch <= EXCLUDED.epoch`
)

// articleHandovers is how long the article's loop takes from the leader's return, at any moment, to
// the first write of the copy that stands by. That copy looks at a phase of its own, so that one
// look after the release is all that there is to wait for.
func (w *world) articleHandovers(ctx context.Context, n int) (took []time.Duration, err error) {
	if _, err := w.db.Exec(ctx, "CREATE TABLE article_status (bridge_id text PRIMARY KEY, health text NOT NULL, checked_at timestamptz NOT NULL, epoch bigint NOT NULL)"); err != nil {
		return nil, err
	}
	copies := make(chan time.Duration, n)
	var all sync.WaitGroup
	errs := make(chan error, n)
	for i := range n { // all at once, each with a lease of its own: they only wait
		all.Go(func() {
			d, err := w.articleHandover(ctx, fmt.Sprint("article", i))
			copies <- d
			errs <- err
		})
	}
	all.Wait()
	for range n {
		took = append(took, <-copies)
		if err := <-errs; err != nil {
			return nil, err
		}
	}
	return took, nil
}

func (w *world) articleHandover(ctx context.Context, job string) (time.Duration, error) {
	if _, err := w.db.Exec(ctx, articleUpsert, job, "leader"); err != nil {
		return 0, err
	}
	look := time.NewTimer(rand.N(articlePace)) // the leader returns now
	defer look.Stop()
	returned := time.Now()
	if _, err := w.db.Exec(ctx, articleReleaseSQL, job, "leader"); err != nil {
		return 0, err
	}
	select {
	case <-look.C:
	case <-ctx.Done():
		return 0, ctx.Err()
	}
	var epoch int64
	if err := w.db.QueryRow(ctx, articleUpsert, job, "standby").Scan(&epoch); err != nil {
		return 0, err
	}
	_, err := w.db.Exec(ctx, articleWriteSQL, epoch)
	return time.Since(returned), err
}
