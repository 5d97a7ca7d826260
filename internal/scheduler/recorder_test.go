package scheduler

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"rota/internal/lease"
	"rota/internal/registry"
)

// What one statement records is bounded in bytes as in number, or the ends of an outage would make one
// that no timeout allows. Each is recorded once all the same, and one that is bigger goes by itself.
func TestStatementIsBoundedInNumberAndInBytes(t *testing.T) {
	t.Parallel()
	weigh := func(n int) int { return n }
	for _, c := range []struct {
		items []int
		want  string
	}{
		{nil, "[]"},
		{[]int{1, 2, 3}, "[3]"},
		{[]int{batchBytes, 1}, "[1 1]"},
		{[]int{batchBytes - 1, 1, 1}, "[2 1]"},
		{[]int{3 * batchBytes, 3 * batchBytes, 1}, "[1 1 1]"},
		{make([]int, 2*batchSize+1), fmt.Sprint([]int{batchSize, batchSize, 1})},
	} {
		q := newQueue(weigh)
		q.add(c.items...)
		taken := []int{}
		for batch := q.take(); len(batch) > 0; batch = q.take() {
			taken = append(taken, len(batch))
		}
		if fmt.Sprint(taken) != c.want || q.len() != 0 {
			t.Errorf("%d items are taken by %v, want %s; %d are left", len(c.items), taken, c.want, q.len())
		}
	}
}

// The ends of many runs, each with a full log, are all on record at shutdown, after an outage too, and
// by statements that are bounded.
func TestShutdownRecordsAllLogsByBoundedStatements(t *testing.T) {
	t.Parallel()
	for name, locked := range map[string]bool{"outage": false, "held rows": true} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				const leases = 100
				var jobs []registry.Job
				for n := range leases {
					jobs = append(jobs, job(fmt.Sprint("job-", n), func(_ context.Context, r *registry.Run) error {
						r.Log.Info(strings.Repeat("x", 2*logSize))
						return nil
					}))
				}
				b := newBench(t, jobs...)
				open := make(chan struct{})
				b.recorder.store = &gate{fakeStore: b.store, open: open, held: locked}
				b.store.set(func() {
					for _, j := range jobs {
						b.store.last[j.Name] = bubble.Add(-5 * time.Second)
					}
				})
				var terms []*fakeTerm
				for _, j := range jobs {
					terms = append(terms, newFakeTerm())
					b.leads(terms[len(terms)-1], j.Name, 1)
				}
				after(time.Second)
				for _, term := range terms {
					term.End(lease.ErrLost)
				}
				b.stop()
				after(2 * time.Second)
				close(open)
				<-b.ended
				for _, r := range b.store.rows {
					if r.outcome != success || len(r.log) < logSize {
						t.Fatalf("a run is %q with %d bytes of log", r.outcome, len(r.log))
					}
				}
				if len(b.store.rows) != leases || b.store.biggest > batchBytes || b.store.biggest < batchBytes/2 {
					t.Errorf("%d runs, the biggest statement records %d bytes", len(b.store.rows), b.store.biggest)
				}
			})
		})
	}
}

// A gate is a store that records nothing before it is open: it fails, or all rows are held.
type gate struct {
	*fakeStore
	open chan struct{}
	held bool
}

func (g *gate) record(ctx context.Context, ends []end) (map[int64]bool, error) {
	if closed(g.open) {
		return g.fakeStore.record(ctx, ends)
	}
	if g.held {
		return nil, nil
	}
	return nil, errors.New("the database is away")
}
