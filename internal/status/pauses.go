package status

import (
	"cmp"
	"slices"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgtype"
)

// AllJobs is the job of a pause of all jobs.
const AllJobs = "*"

// A Pause is why a job takes no ticks for now, though it is led.
type Pause struct {
	Job    string // or AllJobs
	Reason string
	By     string
	At     time.Time
	Until  time.Time // zero: until it is resumed
}

const pausesSQL = `
SELECT job, reason, paused_by, paused_at, until
  FROM pauses
 WHERE until IS NULL OR until > clock_timestamp()
 ORDER BY job COLLATE "C"`

func scanPause(row pgx.CollectableRow) (p Pause, err error) {
	var at, until pgtype.Timestamptz
	err = row.Scan(&p.Job, &p.Reason, &p.By, &at, &until)
	p.At, p.Until = instant(at), instant(until)
	return p, err
}

// pausing is the pause that a job is under, its own first. The pauses are sorted by their jobs; a
// name begins with a letter or a digit, so that AllJobs is the first of them.
func pausing(pauses []Pause, job string) *Pause {
	if at, ok := slices.BinarySearchFunc(pauses, job, func(p Pause, job string) int { return cmp.Compare(p.Job, job) }); ok {
		return &pauses[at]
	}
	if len(pauses) > 0 && pauses[0].Job == AllJobs {
		return &pauses[0]
	}
	return nil
}
