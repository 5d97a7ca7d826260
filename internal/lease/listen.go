package lease

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
)

// probe is the announcement by which a listener finds out whether announcements reach it.
const probe = "probe "

// listen keeps a connection of its own, outside the pool, that waits for announcements.
func (p *postgres) listen(ctx context.Context, owner string, hint func([]string), reaches func(bool, error)) {
	for ctx.Err() == nil {
		err := p.listenOnce(ctx, owner, hint, reaches)
		if ctx.Err() != nil {
			return
		}
		reaches(false, err)
		// What was announced meanwhile is found by polling.
		select {
		case <-time.After(p.timeout):
		case <-ctx.Done():
		}
	}
}

// listenOnce listens on one connection until it fails. A connection on which nothing arrives for a
// minute is probed anew, since a half-open one would stay silent for ever.
func (p *postgres) listenOnce(ctx context.Context, owner string, hint func([]string), reaches func(bool, error)) error {
	conn, err := p.subscribe(ctx)
	if err != nil {
		return err
	}
	defer func() {
		end, cancel := context.WithTimeout(context.WithoutCancel(ctx), time.Second)
		defer cancel()
		_ = conn.Close(end)
	}()
	for {
		if err := p.probe(ctx, conn, owner, hint); err != nil {
			return err
		}
		reaches(true, nil)
		for {
			n, err := waitFor(ctx, conn, time.Minute)
			if err != nil {
				return err
			}
			if n == nil {
				break
			}
			if !strings.HasPrefix(n.Payload, probe) {
				hint(strings.Fields(n.Payload))
			}
		}
	}
}

func (p *postgres) subscribe(ctx context.Context) (*pgx.Conn, error) {
	ctx, cancel := context.WithTimeout(ctx, p.timeout)
	defer cancel()
	conn, err := pgx.ConnectConfig(ctx, p.db.Config().ConnConfig.Copy())
	if err != nil {
		return nil, fmt.Errorf("connect to listen: %w", err)
	}
	var channel string
	if err := conn.QueryRow(ctx, "SELECT rota_channel()", pgx.QueryExecModeExec).Scan(&channel); err != nil {
		return nil, errors.Join(fmt.Errorf("find the channel: %w", err), conn.Close(ctx))
	}
	if _, err := conn.Exec(ctx, "LISTEN "+pgx.Identifier{channel}.Sanitize()); err != nil {
		return nil, errors.Join(fmt.Errorf("listen: %w", err), conn.Close(ctx))
	}
	return conn, nil
}

// probe announces something to ourselves from another connection, as a release would be. Behind a
// transaction pooler LISTEN succeeds and nothing ever arrives.
func (p *postgres) probe(ctx context.Context, conn *pgx.Conn, owner string, hint func([]string)) error {
	say, cancel := context.WithTimeout(ctx, p.timeout)
	defer cancel()
	if err := run(say, p.db, segment{{sql: "SELECT pg_notify(rota_channel(), $1)", args: []any{probe + owner}}}); err != nil {
		return fmt.Errorf("announce a probe: %w", err)
	}
	for {
		n, err := waitFor(ctx, conn, p.timeout)
		switch {
		case err != nil:
			return err
		case n == nil:
			return errors.New("a probe did not arrive: notifications do not pass, as behind a pooler in transaction mode")
		case n.Payload == probe+owner:
			return nil
		case !strings.HasPrefix(n.Payload, probe):
			hint(strings.Fields(n.Payload))
		}
	}
}

// waitFor waits for an announcement; nil means that none came in time.
func waitFor(ctx context.Context, conn *pgx.Conn, at time.Duration) (*pgconn.Notification, error) {
	wait, cancel := context.WithTimeout(ctx, at)
	defer cancel()
	n, err := conn.WaitForNotification(wait)
	if err != nil && wait.Err() != nil && ctx.Err() == nil && !conn.IsClosed() {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("wait for announcements: %w", err)
	}
	return n, nil
}
