package status

import (
	"context"
	"fmt"
	"hash/fnv"
	"slices"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgtype"
)

// An Outcome is what became of one attempt, or of ticks that were skipped or missed, in short.
type Outcome struct {
	ID      int64
	Tick    time.Time
	Outcome string // empty while it runs
	Took    time.Duration
}

// A Past is the newest outcomes of some leases.
type Past struct {
	Of  map[string][]Outcome // by lease, the oldest first
	Tag string               // differs when they do
}

const outcomesSQL = `
SELECT l.lease, r.id, r.tick, coalesce(r.outcome, ''), r.started_at, r.ended_at
  FROM unnest($1::text[]) AS l(lease),
       LATERAL (SELECT id, tick, outcome, started_at, ended_at
                  FROM runs WHERE lease = l.lease
                 ORDER BY tick DESC, attempt DESC LIMIT $2) r`

// Outcomes returns the newest Window outcomes of each of the leases, kept as a snapshot is. Where asking is false it returns what is remembered.
func (r *Reader) Outcomes(ctx context.Context, leases []string, asking bool) (Reading[Past], error) {
	k := r.outcomes.of(strings.Join(leases, "\x00"))
	if !asking {
		return k.peek()
	}
	return k.get(ctx, r.fresh, r.patience, func(ctx context.Context) (Past, error) {
		all := make(map[string][]Outcome, len(leases))
		_, err := r.ask(ctx, []question{{outcomesSQL, []any{leases, Window}}}, func(_ time.Time, res pgx.BatchResults) error {
			rows, err := res.Query()
			if err != nil {
				return err
			}
			var lease string
			var tick, started, ended pgtype.Timestamptz
			var o Outcome
			_, err = pgx.ForEachRow(rows, []any{&lease, &o.ID, &tick, &o.Outcome, &started, &ended}, func() error {
				o.Tick, o.Took = instant(tick), took(started, ended)
				all[lease] = append(all[lease], o)
				return nil
			})
			return err
		})
		if err != nil {
			return Past{}, fmt.Errorf("read the last outcomes: %w", err)
		}
		tag := fnv.New64a()
		for _, lease := range leases {
			slices.Reverse(all[lease])
			for _, o := range all[lease] {
				fmt.Fprintf(tag, "%q %d %s %d,", lease, o.ID, o.Outcome, o.Took)
			}
		}
		return Past{all, fmt.Sprintf("%x", tag.Sum64())}, nil
	})
}

func took(started, ended pgtype.Timestamptz) time.Duration {
	if !started.Valid || !ended.Valid {
		return 0
	}
	return ended.Time.Sub(started.Time)
}
