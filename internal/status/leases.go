package status

import (
	"cmp"
	"slices"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgtype"

	"rota/internal/registry"
)

// Window is how many of a lease's newest runs are looked at for its last run, since skipped and
// missed ticks are none.
const Window = 20

// The walk backward over runs stops at the first row that it is looking for; as a rule that is the
// first row of all. The newest success stands in the lease's progress, unless it is among what was
// open when the lease last claimed.
const leasesSQL = `
SELECT l.job_name, l.owner, l.epoch, l.expires_at, l.acquired_at,
       p.last_tick, p.schedule, s.ended_at,
       t.epoch, t.owner, t.ended_at, t.end_reason,
       r.*
  FROM leadership l
  LEFT JOIN progress p ON p.lease = l.job_name
  LEFT JOIN LATERAL (
       SELECT n.* FROM (
              SELECT ` + runColumns + `
                FROM runs WHERE lease = l.job_name
               ORDER BY tick DESC, attempt DESC LIMIT $1) n
        WHERE n.outcome IS NULL OR n.outcome NOT IN ('skipped', 'missed')
        LIMIT 1) r ON true
  LEFT JOIN LATERAL (
       SELECT ended_at
         FROM runs WHERE id = ANY (p.open || p.success) AND outcome = 'success'
        ORDER BY id DESC LIMIT 1) s ON true
  LEFT JOIN LATERAL (
       SELECT epoch, owner, ended_at, end_reason
         FROM terms WHERE job_name = l.job_name AND ended_at IS NOT NULL AND NOT starts_with(owner, '` + nobodys + `')
        ORDER BY epoch DESC LIMIT 1) t ON true
 ORDER BY l.job_name COLLATE "C"`

// nobodys begins the owner of a row whose epoch a revoke has raised: it has the form of a term, and
// nobody leads by it.
const nobodys = "revoked by "

const refusedSQL = `SELECT lease, sum(refused) FROM runs WHERE refused > 0 GROUP BY lease`

// leaseRow is a row of leasesSQL.
type leaseRow struct {
	Lease
	held     time.Time // as expires_at, but ordered rightly even where it is infinite
	lastTick time.Time
	schedule string
}

func scanLease(row pgx.CollectableRow) (leaseRow, error) {
	var (
		l                                           leaseRow
		expires, acquired, lastTick, success, ended pgtype.Timestamptz
		schedule, termOwner, reason                 *string
		termEpoch                                   *int64
		last                                        runRow
	)
	err := row.Scan(append([]any{
		&l.Name, &l.Owner, &l.Epoch, &expires, &acquired, &lastTick, &schedule, &success,
		&termEpoch, &termOwner, &ended, &reason,
	}, last.columns()...)...)
	if err != nil {
		return l, err
	}
	l.Registered = true
	l.Job, l.Shard, l.Of = registry.LeaseOf(l.Name)
	l.ExpiresAt, l.AcquiredAt, l.held = instant(expires), instant(acquired), ordered(expires)
	l.lastTick, l.schedule, l.LastSuccess = instant(lastTick), value(schedule), instant(success)
	l.Last = last.run()
	if termEpoch != nil {
		l.LastEnd = &Term{Epoch: *termEpoch, Owner: value(termOwner), EndedAt: instant(ended), Reason: value(reason)}
	}
	return l, nil
}

type refusedRow struct {
	lease string
	n     int64
}

func scanRefused(row pgx.CollectableRow) (r refusedRow, err error) {
	err = row.Scan(&r.lease, &r.n)
	return r, err
}

// countsSQL is by how many leases each job is led that has, or had, several.
const countsSQL = `SELECT job, n FROM job_shards`

type countRow struct {
	job string
	n   int
}

func scanCount(row pgx.CollectableRow) (c countRow, err error) {
	err = row.Scan(&c.job, &c.n)
	return c, err
}

// inForce leaves out the leases of a count that is not in force, unless one is led yet.
func inForce(asOf time.Time, rows []leaseRow, counts []countRow) []leaseRow {
	n := make(map[string]int, len(counts))
	for _, c := range counts {
		n[c.job] = c.n
	}
	return slices.DeleteFunc(rows, func(r leaseRow) bool {
		want := n[r.Job]
		led := r.Owner != "" && r.held.After(asOf)
		return want > 0 && want != max(1, r.Of) && !led
	})
}

// describe puts the leases' rows and the jobs compiled into this binary together, by name.
func describe(asOf time.Time, rows []leaseRow, refused []refusedRow, pauses []Pause, jobs []registry.Job) []Lease {
	late := make(map[string]int64, len(refused))
	for _, r := range refused {
		late[r.lease] = r.n
	}
	known := make(map[string]*registry.Job, len(jobs))
	for i := range jobs {
		known[jobs[i].Name] = &jobs[i]
	}
	leases := make([]Lease, 0, max(len(rows), len(jobs)))
	met := make(map[string]bool, len(rows))
	for _, row := range rows {
		l := row.Lease
		l.Refused = late[l.Name]
		judge(&l, asOf, row.held)
		l.plan(known[l.Job], asOf, row)
		leases = append(leases, l)
		met[l.Job] = true
	}
	for name, job := range known {
		if met[name] {
			continue
		}
		for _, lease := range job.Leases() {
			l := Lease{Name: lease, State: Never}
			l.Job, l.Shard, l.Of = registry.LeaseOf(lease)
			l.plan(job, asOf, leaseRow{})
			leases = append(leases, l)
		}
	}
	for i := range leases {
		leases[i].Paused = pausing(pauses, leases[i].Job)
	}
	slices.SortFunc(leases, byShard)
	return leases
}

// byShard orders leases by their jobs, and those of one job by their shards.
func byShard(a, b Lease) int {
	return cmp.Or(cmp.Compare(a.Job, b.Job), cmp.Compare(a.Of, b.Of), cmp.Compare(a.Shard, b.Shard), cmp.Compare(a.Name, b.Name))
}

// judge says what the row means at asOf.
func judge(l *Lease, asOf, expires time.Time) {
	switch {
	case l.Owner == "" && l.Epoch > 0: // it was out of force, and nobody has taken it since
		l.State, l.ExpiresAt, l.AcquiredAt = Free, time.Time{}, time.Time{}
	case l.Owner == "":
		l.State, l.ExpiresAt, l.AcquiredAt = Never, time.Time{}, time.Time{}
	case expires.After(asOf):
		l.State, l.Left = Held, expires.Sub(asOf)
	case l.Epoch == 0:
		l.State, l.ExpiresAt, l.AcquiredAt = Never, time.Time{}, time.Time{}
	default:
		l.State = Free
		if (l.LastEnd == nil || l.LastEnd.Epoch < l.Epoch) && !strings.HasPrefix(l.Owner, nobodys) { // history notes an expiry at the next takeover
			l.LastEnd = &Term{Epoch: l.Epoch, Owner: l.Owner, EndedAt: l.ExpiresAt, Reason: "expired"}
		}
	}
}

// plan adds what the binary knows of the job: when it is due, on the database's clock.
func (l *Lease) plan(job *registry.Job, asOf time.Time, row leaseRow) {
	l.Schedule = row.schedule
	if job == nil {
		return
	}
	l.CompiledIn, l.About, l.Runbook, l.Disabled = true, job.About, job.Runbook, job.Disabled
	l.Schedule, l.Words = job.Schedule.String(), job.Schedule.Words()
	if l.Disabled {
		return
	}
	l.NextTick = job.Schedule.Next(asOf)
	running := l.Last != nil && l.Last.EndedAt.IsZero()
	if running || row.lastTick.IsZero() || row.schedule != l.Schedule {
		return
	}
	if due := job.Schedule.Next(row.lastTick); !due.IsZero() && !due.After(asOf) {
		l.DueSince = due
	}
}
