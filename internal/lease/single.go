package lease

import (
	"context"
	"time"

	"github.com/jackc/pgx/v5"
)

// A handover waits for one release and one acquisition, each of a single lease in most cases. The
// statements for many do the same, but take the server longer to plan than to execute. Those of this
// file say only that all went well, as it nearly always does. Whatever else may be the case, they
// answer with nothing, and the statement for many finds out.

// singleSettings are those of settings that matter to a single lease. The triggers of leadership may
// keep the plans of their statements, which have been made for an index whatever the tables had in
// them at that time.
const singleSettings = `SELECT set_config('statement_timeout', $1, true), set_config('lock_timeout', $1, true),
       set_config('synchronous_commit', 'on', true), set_config('enable_seqscan', 'off', true), set_config('rota.reason', $2, true)`

// acquireOneSQL is acquireSQL for a lease that has expired and that nobody holds.
const acquireOneSQL = `
WITH expired AS MATERIALIZED (
    SELECT ctid AS place, epoch AS last, expires_at AS ended,
           greatest(epoch, $3, (SELECT t.epoch FROM terms t WHERE t.job_name = $2 ORDER BY t.epoch DESC LIMIT 1)) AS known
      FROM leadership
     WHERE job_name = $2 AND expires_at <= clock_timestamp()
       FOR UPDATE SKIP LOCKED
)
UPDATE leadership l SET owner = $1, epoch = e.known + 1, expires_at = clock_timestamp() + $4::interval
  FROM expired e
 WHERE l.ctid = e.place AND e.known < $5
RETURNING l.epoch, e.last = 0, clock_timestamp() - e.ended`

// acquireOne reports false where the lease was not won, for whatever reason.
func (p *postgres) acquireOne(ctx context.Context, owner string, lease time.Duration, c claim) (g grant, ok bool, err error) {
	err = run(ctx, p.db, boundedTx(ctx, singleSettings, "", statement{
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
const releaseOneSQL = `
UPDATE leadership SET expires_at = clock_timestamp()
 WHERE ctid = (SELECT ctid FROM leadership
                WHERE job_name = $2 AND owner = $1 AND epoch = $3 AND expires_at > clock_timestamp()
                  FOR NO KEY UPDATE SKIP LOCKED)
RETURNING pg_notify(rota_channel(), $4)::text`

// releaseOne reports false where the term was not ended, for whatever reason.
func (p *postgres) releaseOne(ctx context.Context, owner, reason string, h holding, to string) (ok bool) {
	said := h.name
	if to != "" {
		said = to + " " + h.name
	}
	err := run(ctx, p.db, boundedTx(ctx, singleSettings, reason, statement{
		sql: releaseOneSQL, args: []any{owner, h.name, h.epoch, said},
		read: func(rows pgx.Rows) error {
			for rows.Next() {
				ok = true
			}
			return rows.Err()
		},
	}))
	return ok && err == nil
}
