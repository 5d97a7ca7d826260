package control

import (
	"context"
	"fmt"
	"strings"

	"github.com/jackc/pgx/v5"
)

// settledLineSQL is the audit's second line of each request in settled: who saw what became of it.
const settledLineSQL = `
    INSERT INTO audit (actor, via, action, job, lease, replica, run_id, request_id, detail)
    SELECT $1::text, 'replica', kind, job, lease, replica, run_id, id, jsonb_build_object('result', result) FROM settled`

// settleSQL writes down what became of requests, each with its line of the audit. A request that is
// settled already stays as it is, so that late, or sent again, it changes nothing. Answered are those
// that need not be sent again: rows that somebody holds are skipped.
const settleSQL = `
WITH said AS MATERIALIZED (
    SELECT * FROM unnest($2::bigint[], $3::text[]) AS s(id, result)),
mine AS MATERIALIZED (
    SELECT q.id FROM requests q JOIN said ON said.id = q.id
     WHERE q.done_at IS NULL
     ORDER BY q.id
       FOR UPDATE OF q SKIP LOCKED),
settled AS (
    UPDATE requests q SET done_at = clock_timestamp(), result = said.result
      FROM mine JOIN said ON said.id = mine.id
     WHERE q.id = mine.id
    RETURNING q.*),
lines AS (` + settledLineSQL + `)
SELECT said.id FROM said
 WHERE NOT EXISTS (SELECT FROM requests q WHERE q.id = said.id AND q.done_at IS NULL)
    OR said.id IN (SELECT id FROM settled)`

// mostSettled bounds one statement.
const mostSettled = 1000

// settle writes down what Done was told. What fails, or is locked, is left for the next time.
func (w *Watch) settle(ctx context.Context) error {
	ids, results := w.pending()
	if len(ids) == 0 {
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	rows, err := w.db.Query(ctx, settleSQL, pgx.QueryExecModeExec, w.owner, ids, results)
	if err != nil {
		return fmt.Errorf("settle %d requests: %w", len(ids), err)
	}
	settled, err := pgx.CollectRows(rows, pgx.RowTo[int64])
	if err != nil {
		return fmt.Errorf("settle %d requests: %w", len(ids), err)
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, id := range settled {
		delete(w.said, id)
	}
	return nil
}

func (w *Watch) pending() (ids []int64, results []string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for id, result := range w.said {
		if len(ids) == mostSettled {
			break
		}
		ids, results = append(ids, id), append(results, result)
	}
	return ids, results
}

// longestText bounds what is stored of a text that somebody else wrote.
const longestText = 4000

// plain is a text that the database takes, whatever was in it: one that it refuses would be sent for ever.
func plain(text string) string {
	text = strings.ToValidUTF8(strings.ReplaceAll(text, "\x00", ""), "\uFFFD")
	if len(text) > longestText {
		text = strings.ToValidUTF8(text[:longestText], "") + "..."
	}
	return text
}
