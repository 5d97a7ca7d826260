package control

import (
	"context"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"
)

// A look at what is asked for, by the database's clock: the requests that nobody has settled, and
// the pauses in force.
//
// It first settles what no replica can carry out any more, or has carried out already: a cancel
// whose run has ended, a step down whose term is over, a run of a shard that is no more, a drain of a
// replica that leads nothing and takes nothing more. What makes a request so never changes back, so it does not matter which
// replica sees it, or how late. A replica whose membership has only just run out may be back in a
// moment, and is not gone yet. Rows that somebody holds are skipped: a look waits for nothing.
var lookSQL = `
WITH clock AS MATERIALIZED (SELECT clock_timestamp() AS at),
judged AS MATERIALIZED (
    SELECT q.*, CASE q.kind
           WHEN 'cancel' THEN
               CASE WHEN r.id IS NULL THEN 'the run is not on record any more'
                    WHEN r.ended_at IS NOT NULL THEN 'the run has ended: ' || r.outcome END
           WHEN 'step_down' THEN
               CASE WHEN l.job_name IS NULL OR l.epoch <> q.epoch OR l.expires_at <= clock.at
                    THEN 'the term has ended: ' || coalesce((SELECT t.end_reason FROM terms t
                          WHERE t.job_name = q.lease AND t.epoch = q.epoch), 'expired') END
           WHEN 'run' THEN
               CASE WHEN l.owner = '' AND l.expires_at > clock.at AND EXISTS (
                         SELECT FROM job_shards s
                          WHERE s.job = q.job AND s.n <> coalesce(substring(q.lease FROM '\.\d+of(\d{1,4})$')::integer, 1))
                    THEN 'the job has another count of shards now: ask again' END
           WHEN 'drain' THEN
               CASE WHEN m.id IS NULL OR m.expires_at <= clock.at - interval '30 seconds' THEN 'the replica has gone'
                    WHEN m.draining AND NOT EXISTS (SELECT FROM leadership h WHERE h.owner = q.replica AND h.expires_at > clock.at)
                    THEN 'it leads nothing and takes nothing more' END
           END AS fate
      FROM clock, requests q
      LEFT JOIN runs r ON q.kind = 'cancel' AND r.id = q.run_id
      LEFT JOIN leadership l ON q.kind IN ('step_down', 'run') AND l.job_name = q.lease
      LEFT JOIN replicas m ON q.kind = 'drain' AND m.id = q.replica
     WHERE q.done_at IS NULL),
fated AS MATERIALIZED (SELECT id, fate FROM judged WHERE fate IS NOT NULL),
over AS MATERIALIZED (
    SELECT q.id FROM requests q
     WHERE q.id = ANY (ARRAY(SELECT id FROM fated)) AND q.done_at IS NULL
     ORDER BY q.id
       FOR UPDATE OF q SKIP LOCKED),
settled AS (
    UPDATE requests q SET done_at = clock_timestamp(), result = fated.fate
      FROM over JOIN fated ON fated.id = over.id WHERE q.id = over.id
    RETURNING q.*),
lines AS (` + settledLineSQL + `)
SELECT clock.at, coalesce(s.id, 0), s.kind, s.job, s.lease, s.epoch, s.run_id, s.replica, s.args, s.reason, s.by, s.made, s.until
  FROM clock
  LEFT JOIN (
       SELECT id, kind, coalesce(job, '') AS job, coalesce(lease, '') AS lease, coalesce(epoch, 0) AS epoch,
              coalesce(run_id, 0) AS run_id, coalesce(replica, '') AS replica, args, reason, asked_by AS by, ` + orNow("made_at") + ` AS made,
              NULL::timestamptz AS until
         FROM judged WHERE fate IS NULL
        UNION ALL
       SELECT 0, 'pause', p.job, '', 0, 0, '', NULL, p.reason, p.paused_by, ` + orNow("p.paused_at") + `,
              ` + orNever("p.until") + `
         FROM pauses p, clock WHERE p.until IS NULL OR p.until > clock.at) s ON true
 ORDER BY s.id`

func (w *Watch) look(ctx context.Context) (State, error) {
	ctx, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	rows, err := w.db.Query(ctx, lookSQL, pgx.QueryExecModeExec, w.owner)
	if err != nil {
		return State{}, fmt.Errorf("look at the requests: %w", err)
	}
	var (
		s     State
		r     Request
		kind  *string // nil: there is nothing
		job   *string
		lease *string
		epoch *int64
		run   *int64
		who   *string
		args  []byte
		why   *string
		by    *string
		made  *time.Time
		until *time.Time
	)
	_, err = pgx.ForEachRow(rows, []any{&s.AsOf, &r.ID, &kind, &job, &lease, &epoch, &run, &who, &args, &why, &by, &made, &until}, func() error {
		switch {
		case kind == nil:
		case *kind == "pause":
			p := Pause{Job: *job, Reason: *why, By: *by, At: *made}
			if until != nil {
				p.Until = *until
			}
			s.Pauses = append(s.Pauses, p)
		default:
			s.Requests = append(s.Requests, Request{
				ID: r.ID, Kind: Kind(*kind), Job: *job, Lease: *lease, Epoch: *epoch, Run: *run, Replica: *who,
				Args: args, Reason: *why, By: *by, Made: *made,
			})
		}
		return nil
	})
	if err != nil {
		return State{}, fmt.Errorf("look at the requests: %w", err)
	}
	return s, nil
}
