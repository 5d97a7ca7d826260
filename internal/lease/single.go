package lease

import (
	"context"
	"time"

	"github.com/jackc/pgx/v5"
)

// A handover waits for one release and one acquisition, each of a single lease in most cases. The
// statements for many do the same, but take the server longer to plan than to execute. Those of this
// file are functions of the schema, which keep their plans, and say only that all went well, as it
// nearly always does. Whatever else may be the case, they answer with nothing, and the statement for
// many finds out.

// acquireOneSQL is acquireSQL for a lease that has expired and that nobody holds.
const acquireOneSQL = `SELECT epoch, first, idle FROM rota_acquire($1, $2, $3, $4, $5)`

// acquireOne reports false where the lease was not won, for whatever reason.
func (p *postgres) acquireOne(ctx context.Context, owner string, lease time.Duration, c claim) (g grant, ok bool, err error) {
	err = run(ctx, p.db, changeTx(ctx, "", statement{
		sql: acquireOneSQL, args: []any{owner, c.name, c.seen, lease, absurdEpoch},
		read: func(rows pgx.Rows) error {
			_, err := pgx.ForEachRow(rows, []any{&g.epoch, &g.first, &g.idle}, func() error {
				g.outcome, ok = won, true
				return nil
			})
			return err
		},
	}))
	return g, ok && err == nil, err
}

// releaseOneSQL is releaseSQL for a term that lasts and a row that nobody holds.
const releaseOneSQL = `SELECT rota_release($1, $2, $3, $4)`

// releaseOne reports false where the term was not ended, for whatever reason.
func (p *postgres) releaseOne(ctx context.Context, owner, reason string, h holding, to string) (ok bool) {
	said := h.name
	if to != "" {
		said = to + " " + h.name
	}
	err := run(ctx, p.db, changeTx(ctx, reason, statement{
		sql: releaseOneSQL, args: []any{owner, h.name, h.epoch, said},
		read: func(rows pgx.Rows) error {
			_, err := pgx.ForEachRow(rows, []any{&ok}, func() error { return nil })
			return err
		},
	}))
	return ok && err == nil
}
