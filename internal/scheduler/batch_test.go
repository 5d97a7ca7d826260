package scheduler

import (
	"fmt"
	"log/slog"
	"testing"
	"time"

	"rota/internal/fence"
	"rota/internal/pgtest"
	"rota/internal/registry"
)

// Thousands of leases, each with many missed ticks, are claimed by statements that are bounded, and
// each lease by one of them.
func TestThousandsOfBacklogsAreClaimedByBoundedStatements(t *testing.T) {
	t.Parallel()
	const leaseCount, missedEach = 2000, 100
	now := bubble.Add(time.Hour)
	k := newTicker(nil, func() time.Time { return now }, newRecorder(nil, nil), func(int64, string) {}, slog.New(slog.DiscardHandler))
	found := opened{last: now.Add(-(missedEach + 1) * 5 * time.Second), now: now}
	for n := range leaseCount {
		token := fence.Token{Lease: fmt.Sprint("job-", n), Owner: "me", Epoch: 1}
		k.plan(newEntry(token, &registry.Job{Name: "job", Schedule: registry.Every(5 * time.Second)}, nil, nil), found)
	}
	seen := map[string]bool{}
	var first []claim
	for {
		_, asked, _ := k.take()
		if len(asked) == 0 {
			break
		}
		rows := 0
		for _, c := range asked {
			if seen[c.token.Lease] {
				t.Errorf("%s is claimed twice", c.token.Lease)
			}
			seen[c.token.Lease] = true
			rows += 1 + len(c.passed)
			if len(c.passed) != missedEach {
				t.Fatalf("%d ticks are written off", len(c.passed))
			}
		}
		if rows > claimSize+missedEach {
			t.Errorf("a statement makes %d rows", rows)
		}
		if first == nil {
			first = asked
		}
	}
	if len(seen) != leaseCount {
		t.Errorf("%d leases are claimed", len(seen))
	}

	db := pgtest.New(t) // one such statement against the database
	s := &postgres{db, "me"}
	for _, c := range first {
		begins(t, s, leads(t, db, c.token.Lease, "me", 1))
	}
	mustExec(t, db, `UPDATE progress SET last_tick = $1`, found.last)
	for token, c := range claims(t, s, first...) {
		if c.verdict != won || c.run == 0 {
			t.Errorf("%s: %+v", token.Lease, c)
		}
	}
	want := fmt.Sprint(len(first), " ", len(first)*missedEach)
	if got := lines(t, db, `SELECT concat_ws(' ', count(*) FILTER (WHERE outcome IS NULL), count(*) FILTER (WHERE outcome = 'missed')) FROM runs`); got[0] != want {
		t.Errorf("open and missed are %s, want %s", got[0], want)
	}
}
