package main

import (
	"context"
	"crypto/rand"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"
)

// pooler compares the process that the server says it is with the one that was named when the
// connection was made: a pooler names one of its own. One in transaction mode also lends the process
// that this connection had to another's transaction.
func (p *patient) pooler(ctx context.Context) finding {
	ours, err := backendPID(ctx, p.conn)
	if err != nil {
		return p.unknown("pooler", err)
	}
	if ours == p.conn.PgConn().PID() {
		return finding{Check: "pooler", State: well, Found: "none is in between"}
	}
	lent, err := p.lends(ctx, ours)
	switch {
	case err != nil:
		return p.unknown("pooler", err)
	case lent:
		return finding{
			Check: "pooler", State: doubt, Found: "one in transaction mode: the server's process changes between transactions",
			Fix: "all works by polling; for handovers within milliseconds let replicas connect directly, or in session mode",
		}
	}
	return finding{Check: "pooler", State: well, Found: "one is in between; whether it pools sessions or transactions, notifications show"}
}

// lends reports whether the server's process that this connection had just now is in another's
// transaction, or another than before answers this connection while that lasts.
func (p *patient) lends(ctx context.Context, ours uint32) (lent bool, err error) {
	other, err := pgx.ConnectConfig(ctx, p.conn.Config())
	if err != nil {
		return false, fmt.Errorf("connect once more: %w", err)
	}
	defer closeConn(other)
	err = pgx.BeginFunc(ctx, other, func(tx pgx.Tx) error {
		theirs, err := backendPID(ctx, tx)
		if err != nil {
			return err
		}
		now, err := backendPID(ctx, p.conn)
		lent = theirs == ours || now != ours
		return err
	})
	return lent, err
}

func (p *patient) notify(ctx context.Context) finding {
	channel := pgx.Identifier{"rota:doctor:" + rand.Text()}.Sanitize()
	if _, err := p.conn.Exec(ctx, "LISTEN "+channel); err != nil {
		return p.unknown("notifications", err)
	}
	defer func() { _, _ = p.conn.Exec(ctx, "UNLISTEN "+channel) }()
	pool, err := poolConfig(p.cfg.DatabaseURL)
	if err != nil {
		return p.unknown("notifications", err)
	}
	other, err := pgx.ConnectConfig(ctx, pool.ConnConfig)
	if err != nil {
		return p.unknown("notifications", err)
	}
	defer closeConn(other)
	begun := time.Now()
	if _, err := other.Exec(ctx, "NOTIFY "+channel); err != nil {
		return p.unknown("notifications", err)
	}
	within, cancel := context.WithTimeout(ctx, 2*time.Second)
	defer cancel()
	if _, err := p.conn.WaitForNotification(within); err != nil {
		return finding{
			Check: "notifications", State: doubt, Found: "they do not arrive: a pooler in transaction mode is in between",
			Fix: "all works by polling, but a handover may take as long as a renewal interval: connect directly, or in session mode",
		}
	}
	return finding{Check: "notifications", State: well, Found: "arrive, after " + span(time.Since(begun))}
}
