package lease

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"
)

// What a connection does for the first time takes it several times as long as the next: the server reads
// and compiles what the statements and the triggers need. So whatever a takeover waits for is
// rehearsed as soon as there is a connection, with a lease of nobody's, and undone.

// rehearsalSQL makes the lease, with the rows that its triggers write.
const rehearsalSQL = `
INSERT INTO leadership (job_name, owner, expires_at, epoch) VALUES ($1, $1, clock_timestamp() + $2::interval, $3)`

// rehearse does the statements of the parts to the lease of that name, in one transaction that is
// rolled back. What they say is of no interest.
func rehearse(ctx context.Context, conn *pgx.Conn, name string, expires time.Duration, parts ...statement) error {
	body := segment{
		{sql: "BEGIN ISOLATION LEVEL READ COMMITTED"},
		{sql: settings, args: []any{"1000", Crashed}},
		{sql: rehearsalSQL, args: []any{name, expires, int64(1)}},
	}
	// By itself, so that it is done whatever becomes of the others.
	return runOn(ctx, conn, append(body, parts...), segment{{sql: "ROLLBACK"}})
}

// longestRehearsal bounds a rehearsal: a connection that has not had one is slow at first, and no worse.
const longestRehearsal = 2 * time.Second

// rehearseTakeover prepares a connection for an acquisition, and for the release that may follow. It
// reports only that the connection has gone.
func rehearseTakeover(ctx context.Context, conn *pgx.Conn) error {
	ctx, cancel := context.WithTimeout(ctx, longestRehearsal)
	defer cancel()
	if err := takeoverRehearsed(ctx, conn); err != nil && conn.IsClosed() {
		return fmt.Errorf("rehearse a takeover: %w", err)
	}
	return nil
}

func takeoverRehearsed(ctx context.Context, conn *pgx.Conn) error {
	nobody := NewOwner("rehearsal")
	claims, grants := []claim{{name: nobody}}, make([]grant, 1)
	parts := []statement{
		acquireWhole(nobody, time.Minute, claims, "SKIP LOCKED", grants),
		verdictStatement(releaseSQL, nobody, []holding{{nobody, 2}}, make([]verdict, 1), []string{""}, false),
		{sql: acquireOneSQL, args: []any{nobody, nobody, int64(0), time.Minute, absurdEpoch}},
		{sql: releaseOneSQL, args: []any{nobody, nobody, int64(3), nobody}},
	}
	parts = append(parts, acquireShards(nobody, time.Minute, claims, "SKIP LOCKED", grants)...)
	return rehearse(ctx, conn, nobody, -time.Minute, parts...)
}

// Rehearse prepares a connection for Bury.
func Rehearse(ctx context.Context, conn *pgx.Conn) error {
	nobody := NewOwner("rehearsal")
	_, left := backendsLeft(ctx, conn, nobody)
	return errors.Join(left, rehearse(ctx, conn, nobody, time.Minute,
		statement{sql: buryReleaseSQL, args: []any{nobody, true}}, statement{sql: leaveSQL, args: []any{nobody}}))
}
