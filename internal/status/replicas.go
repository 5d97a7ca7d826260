package status

import (
	"cmp"
	"slices"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgtype"
)

const replicasSQL = `
SELECT id, host, pid, version, started_at, seen_at, expires_at, clock_offset, hints, draining, ability
  FROM replicas
 WHERE expires_at > clock_timestamp() - interval '1 hour'
 ORDER BY expires_at DESC
 LIMIT 1000`

func scanReplica(row pgx.CollectableRow) (Replica, error) {
	var (
		r                      Replica
		started, seen, expires pgtype.Timestamptz
		offset                 pgtype.Interval
		draining               bool
	)
	err := row.Scan(&r.ID, &r.Host, &r.PID, &r.Version, &started, &seen, &expires, &offset, &r.Hints, &draining, &r.Ability)
	r.StartedAt, r.SeenAt, r.ExpiresAt = instant(started), instant(seen), instant(expires)
	r.ClockOffset = time.Duration(offset.Microseconds)*time.Microsecond + time.Duration(offset.Days)*24*time.Hour
	r.Standing = Member
	if draining {
		r.Standing = Draining
	}
	return r, err
}

// stand says what each replica is at asOf, and adds the owners that hold a lease and are no member.
// A lease's length is what its holder's heartbeat gave its own row.
func stand(asOf time.Time, replicas []Replica, leases []Lease) []Replica {
	byID := make(map[string]int, len(replicas))
	for i := range replicas {
		r := &replicas[i]
		byID[r.ID] = i
		if !r.ExpiresAt.After(asOf) {
			r.Standing = Gone
		}
	}
	for i := range leases {
		l := &leases[i]
		if l.State != Held {
			continue
		}
		at, ok := byID[l.Owner]
		if !ok {
			at = len(replicas)
			byID[l.Owner] = at
			replicas = append(replicas, Replica{ID: l.Owner, Standing: Outside})
		}
		r := &replicas[at]
		r.Leases++
		l.Length = max(0, r.ExpiresAt.Sub(r.SeenAt))
	}
	slices.SortFunc(replicas, func(a, b Replica) int {
		return cmp.Or(cmp.Compare(rank[a.Standing], rank[b.Standing]), cmp.Compare(a.ID, b.ID))
	})
	return replicas
}

var rank = map[Standing]int{Member: 0, Draining: 0, Outside: 1, Gone: 2}
