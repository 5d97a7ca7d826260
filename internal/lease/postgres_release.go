package lease

import (
	"context"
	"errors"
	"fmt"
)

// Release, and the announcement that wakes the standbys. An owner may be out of date, the epoch
// cannot: a release that executes late ends no later term. The names travel with the announcement
// while they fit; a payload has 8000 bytes at most, and too much would roll the release back.
const releaseSQL = `
WITH asked AS MATERIALIZED (
    SELECT * FROM unnest($2::text[], $3::bigint[], $4::text[]) WITH ORDINALITY AS a(job_name, epoch, heir, i)
), mine AS MATERIALIZED (
    SELECT l.job_name, l.epoch, a.heir, a.i
      FROM leadership l JOIN asked a ON a.job_name = l.job_name AND a.epoch = l.epoch
     WHERE l.owner = $1 AND l.expires_at > clock_timestamp()
     ORDER BY l.job_name
       FOR NO KEY UPDATE OF l SKIP LOCKED
), clock AS MATERIALIZED (
    SELECT clock_timestamp() AS at FROM (SELECT count(*) FROM mine) AS locked_first
), released AS (
    UPDATE leadership l SET expires_at = clock.at
      FROM mine, clock
     WHERE l.job_name = mine.job_name AND l.owner = $1 AND l.epoch = mine.epoch
    RETURNING mine.i, l.job_name, mine.heir
), heirs AS (
    SELECT heir, concat_ws(' ', nullif(heir, ''), string_agg(job_name, ' ' ORDER BY job_name)) AS said
      FROM released GROUP BY heir
), told AS MATERIALIZED (
    SELECT pg_notify(rota_channel(), CASE WHEN sum(octet_length(said) + 1) < 7900 THEN string_agg(said, ' ' ORDER BY heir) ELSE '' END)
      FROM heirs HAVING $5 AND count(*) > 0
)
SELECT 2 AS verdict, count(*), NULL::bigint[] FROM released WHERE (SELECT count(*) FROM told) >= 0
UNION ALL
SELECT CASE WHEN l.owner = $1 AND l.epoch = a.epoch AND l.expires_at > clock_timestamp() THEN 1 ELSE 0 END,
       count(*), array_agg(a.i)
  FROM (SELECT * FROM asked WHERE i IN (SELECT i FROM asked EXCEPT SELECT i FROM released)) a
  LEFT JOIN leadership l ON l.job_name = a.job_name
 GROUP BY 1`

func (p *postgres) release(ctx context.Context, owner, reason string, held []holding, to []string) ([]verdict, error) {
	if len(held) == 1 && p.releaseOne(ctx, owner, reason, held[0], to[0]) {
		return []verdict{renewed}, nil
	}
	verdicts, err := p.releaseOnce(ctx, owner, reason, held, to, true)
	if err == nil || ctx.Err() != nil {
		return verdicts, err
	}
	// The announcement may be what failed, which is no reason to keep the leases.
	verdicts, again := p.releaseOnce(ctx, owner, reason, held, to, false)
	if again != nil {
		return nil, errors.Join(err, again)
	}
	return verdicts, nil
}

func (p *postgres) releaseOnce(ctx context.Context, owner, reason string, held []holding, to []string, tell bool) ([]verdict, error) {
	verdicts := make([]verdict, len(held))
	if err := run(ctx, p.db, changeTx(ctx, reason, verdictStatement(releaseSQL, owner, held, verdicts, to, tell))); err != nil {
		return nil, fmt.Errorf("release %d leases: %w", len(held), err)
	}
	return verdicts, nil
}
