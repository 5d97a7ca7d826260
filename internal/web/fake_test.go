package web

import (
	"fmt"
	"time"

	"rota/internal/status"
)

func shardsOf(job string, n int) status.Snapshot {
	snap := status.Snapshot{AsOf: time.Date(2026, 1, 1, 12, 0, 0, 0, time.UTC)}
	for k := range n {
		snap.Leases = append(snap.Leases, status.Lease{Name: fmt.Sprintf("%s.%dof%d", job, k+1, n), Job: job, State: status.Never})
	}
	return snap
}

func jobOf(name string) status.JobOf { return status.JobOf{Job: name} }

func noHistory() (r status.Reading[status.JobHistory]) { return r }

// outcomesIn are outcomes of which each took a second, the oldest first.
func outcomesIn(outcomes ...string) []status.Outcome {
	var all []status.Outcome
	for i, o := range outcomes {
		all = append(all, status.Outcome{ID: int64(i + 1), Tick: time.Unix(int64(i), 0), Outcome: o, Took: time.Second})
	}
	return all
}
