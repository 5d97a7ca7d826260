package lease

import (
	"context"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"
)

// Crashed is the end_reason of terms whose process died without having released them.
const Crashed = "crashed"

// WitnessName is the application_name of the connection of the process that watches over an
// owner's. It is not AppName, for what has that name is ended.
func WitnessName(owner string) string { return "rota witness " + AppName(owner)[len("rota "):] }

// Bury ends what a process that has died left in the database: its connections first, for one of
// them may be in the middle of winning a lease, then its leases, which are released with the reason
// Crashed, and its membership. It returns the leases. The caller knows that the process of that
// owner has died; if it had not, its terms would end by themselves and its writes be refused.
//
// Behind a pooler its connections cannot be told apart, and a statement under way may win a lease
// after this: Bury looks twice, and what comes later still runs out by itself.
func Bury(ctx context.Context, conn *pgx.Conn, owner string) (released []string, err error) {
	if err := endBackends(ctx, conn, owner); err != nil {
		return nil, err
	}
	if released, err = releaseAll(ctx, conn, owner); err != nil {
		return nil, err
	}
	if len(released) > 0 {
		select { // the successors come first
		case <-time.After(secondLook):
		case <-ctx.Done():
		}
	}
	names, err := releaseAll(ctx, conn, owner)
	return append(released, names...), err
}

// secondLook is how long after the first the second look is, if the first found anything.
const secondLook = 100 * time.Millisecond

const endBackendsSQL = `
SELECT count(pg_terminate_backend(pid)) FROM pg_stat_activity
 WHERE application_name = $1 AND datname = current_database() AND usename = current_user AND pid <> pg_backend_pid()`

// backendsLeft tells those that are left to end, and returns how many it has told.
func backendsLeft(ctx context.Context, conn *pgx.Conn, owner string) (left int, err error) {
	if err := conn.QueryRow(ctx, endBackendsSQL, AppName(owner)).Scan(&left); err != nil {
		return 0, fmt.Errorf("end the connections of %s: %w", owner, err)
	}
	return left, nil
}

// buriedPoll is how often the backends are asked after; they need a few milliseconds to end.
const buriedPoll = time.Millisecond

// endBackends returns once none is left. One that is told to end does so between two rows, so that
// what it was about to do is undone.
func endBackends(ctx context.Context, conn *pgx.Conn, owner string) error {
	for {
		left, err := backendsLeft(ctx, conn, owner)
		if left == 0 || err != nil {
			return err
		}
		select {
		case <-time.After(buriedPoll):
		case <-ctx.Done():
			return fmt.Errorf("end the connections of %s: %d are left: %w", owner, left, context.Cause(ctx))
		}
	}
}

// buryReleaseSQL: a row that somebody holds is waited for, up to the lock_timeout.
const buryReleaseSQL = `
WITH mine AS MATERIALIZED (
    SELECT job_name FROM leadership WHERE owner = $1 AND expires_at > clock_timestamp()
     ORDER BY job_name FOR NO KEY UPDATE
), clock AS MATERIALIZED (
    SELECT clock_timestamp() AS at FROM (SELECT count(*) FROM mine) AS locked_first
), released AS (
    UPDATE leadership l SET expires_at = clock.at FROM mine, clock
     WHERE l.job_name = mine.job_name AND l.owner = $1
    RETURNING l.job_name
), told AS MATERIALIZED (
    SELECT pg_notify(rota_channel(), CASE WHEN sum(octet_length(job_name) + 1) < 4000 THEN string_agg(job_name, ' ') ELSE '' END)
      FROM released HAVING $2 AND count(*) > 0
)
SELECT job_name FROM released WHERE (SELECT count(*) FROM told) >= 0 ORDER BY job_name`

func releaseAll(ctx context.Context, conn *pgx.Conn, owner string) (names []string, err error) {
	names, err = releaseAllOnce(ctx, conn, owner, true)
	if err == nil || ctx.Err() != nil {
		return names, err
	}
	if err := runOn(ctx, conn, segment{{sql: "ROLLBACK"}}); err != nil {
		return nil, fmt.Errorf("release the leases of %s: %w", owner, err)
	}
	// The announcement may be what failed, which is no reason to keep the leases.
	return releaseAllOnce(ctx, conn, owner, false)
}

// burySettings bound the wait for a row, so that there is time for another attempt.
const burySettings = `SELECT set_config('rota.reason', $1, true), set_config('lock_timeout', '2s', true),
       set_config('synchronous_commit', 'on', true), set_config('jit', 'off', true)`

func releaseAllOnce(ctx context.Context, conn *pgx.Conn, owner string, tell bool) (names []string, err error) {
	err = runOn(ctx, conn, segment{
		{sql: "BEGIN ISOLATION LEVEL READ COMMITTED"},
		{sql: burySettings, args: []any{Crashed}},
		{sql: buryReleaseSQL, args: []any{owner, tell}, read: func(rows pgx.Rows) (err error) {
			names, err = pgx.CollectRows(rows, pgx.RowTo[string])
			return err
		}},
		{sql: leaveSQL, args: []any{owner}},
		{sql: "COMMIT"},
	})
	if err != nil {
		return nil, fmt.Errorf("release the leases of %s: %w", owner, err)
	}
	return names, nil
}
