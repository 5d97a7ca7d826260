package scheduler

import (
	"context"
	"fmt"
	"time"
)

// recordSQL: a run that the next term has closed as lost may be amended once, by its own process,
// to fenced, with the count of its refused writes and its log. A row that is gone (pruned) is settled;
// it is asked for in a form that is never answered by reading all rows there are.
const recordSQL = `
WITH ended AS MATERIALIZED (
    SELECT * FROM unnest($1::bigint[], $2::text[], $3::text[], $4::text[], $5::integer[], $6::float8[], $7::text[], $8::boolean[])
        AS e(id, owner, outcome, error, refused, ago, log, again)),
free AS MATERIALIZED (
    SELECT r.id, r.owner, r.ended_at, r.outcome FROM runs r JOIN ended e ON e.id = r.id
     ORDER BY r.id
       FOR UPDATE OF r SKIP LOCKED),
settled AS (
    UPDATE runs r
       SET ended_at = greatest(r.started_at, coalesce(r.ended_at, clock_timestamp() - make_interval(secs => e.ago))),
           outcome = e.outcome, error = nullif(e.error, ''), refused = e.refused, log = nullif(e.log, ''),
           again = CASE WHEN f.ended_at IS NULL THEN e.again ELSE r.again END
      FROM ended e JOIN free f ON f.id = e.id
     WHERE r.id = e.id AND f.owner = e.owner
       AND (f.ended_at IS NULL OR f.outcome = 'lost' AND e.outcome = 'fenced'))
SELECT e.id FROM ended e
 WHERE EXISTS (SELECT FROM free f WHERE f.id = e.id) OR (SELECT r.id FROM runs r WHERE r.id = e.id) IS NULL`

func (p *postgres) record(ctx context.Context, ends []end) (map[int64]bool, error) {
	n := len(ends)
	ids, owners, outcomes, again := make([]int64, n), make([]string, n), make([]string, n), make([]bool, n)
	faults, refused, ago, logs := make([]string, n), make([]int32, n), make([]float64, n), make([]string, n)
	for i, e := range ends {
		ids[i], owners[i], outcomes[i], faults[i] = e.run, e.owner, string(e.outcome), e.fault
		refused[i], ago[i], logs[i], again[i] = int32(e.refused), time.Since(e.at).Seconds(), e.log, e.again
	}
	settled := make(map[int64]bool, n)
	var id int64
	err := p.each(ctx, settingsSQL, recordSQL, []any{ids, owners, outcomes, faults, refused, ago, logs, again}, []any{&id}, func() { settled[id] = true })
	if err != nil {
		return nil, fmt.Errorf("record %d runs: %w", n, err)
	}
	return settled, nil
}
