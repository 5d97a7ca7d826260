//go:build prove

package main

import (
	"slices"
	"time"

	"github.com/jackc/pgx/v5"
)

// A fate is what became of one tick: the outcomes of its attempts, in order.
type fate struct {
	Lease    string
	Tick     time.Time
	Outcomes []string
	Gapless  bool          // its attempts are numbered from 1, without a gap
	Started  *time.Time    // its first attempt, if it was run
	Delay    time.Duration // from the tick to then
}

// fatesSQL lists each tick that there should be; a row that stands for several ticks is each of them.
const fatesSQL = `
WITH due AS (
    SELECT lease, tick FROM unnest($1::text[]) AS l(lease), generate_series($2::timestamptz, $3, $4::interval) AS t(tick)),
had AS (
    SELECT r.lease, t.tick, r.attempt, coalesce(r.outcome, 'open') AS outcome, r.started_at
      FROM runs r, generate_series(coalesce(r.first_tick, r.tick), r.tick, $4::interval) AS t(tick)
     WHERE r.lease = ANY ($1) AND r.request_id IS NULL)
SELECT lease, tick,
       coalesce(array_agg(outcome ORDER BY attempt) FILTER (WHERE outcome IS NOT NULL), '{}'),
       coalesce(min(attempt) = 1 AND max(attempt) = count(attempt), true),
       min(started_at) FILTER (WHERE outcome NOT IN ('missed', 'skipped')),
       coalesce(min(started_at) FILTER (WHERE outcome NOT IN ('missed', 'skipped')) - tick, '0')
  FROM due LEFT JOIN had USING (lease, tick)
 GROUP BY lease, tick ORDER BY tick, lease`

// fates tells of every tick of some leases, from one to another.
func (e eye) fates(leases []string, from, to time.Time, period time.Duration) []fate {
	e.t.Helper()
	rows, err := e.Query(e.t.Context(), fatesSQL, leases, from, to, period)
	if err != nil {
		e.t.Fatal(err)
	}
	all, err := pgx.CollectRows(rows, pgx.RowToStructByPos[fate])
	if err != nil {
		e.t.Fatal(err)
	}
	return all
}

// ran reports whether the tick was run once: with success, after attempts that were lost at most.
func (f fate) ran() bool {
	n := len(f.Outcomes)
	return f.Gapless && n > 0 && f.Outcomes[n-1] == "success" &&
		!slices.ContainsFunc(f.Outcomes[:n-1], func(o string) bool { return o != "lost" })
}

// writtenOff reports whether it is on record as not run, and why.
func (f fate) writtenOff() bool {
	return len(f.Outcomes) == 1 && (f.Outcomes[0] == "missed" || f.Outcomes[0] == "skipped")
}

// quantiles are the median, the 99th of a hundred, and the last.
func quantiles(d []time.Duration) (p50, p99, longest time.Duration) {
	if len(d) == 0 {
		return 0, 0, 0
	}
	d = slices.Sorted(slices.Values(d))
	at := func(q float64) time.Duration { return d[min(len(d)-1, int(q*float64(len(d))))].Round(time.Millisecond) }
	return at(.5), at(.99), at(1)
}
