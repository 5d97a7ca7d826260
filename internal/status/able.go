package status

import "fmt"

// ableSQL is every job that a live member can lead, with the count of its shards where it has some. Members of one build share their ability, so
// that this does not grow with them.
const ableSQL = `
SELECT DISTINCT j FROM abilities a, unnest(a.jobs) AS j
 WHERE a.id IN (SELECT ability FROM replicas WHERE expires_at > clock_timestamp() AND NOT draining)`

// strand marks the leases that nobody holds and nobody can take.
func strand(leases []Lease, able []string) {
	can := make(map[string]bool, len(able))
	for _, job := range able {
		can[job] = true
	}
	for i, l := range leases {
		leases[i].Stranded = l.State != Held && !can[l.kin()]
	}
}

// kin is how the members say that they can lead the lease.
func (l Lease) kin() string {
	if l.Of < 2 {
		return l.Job
	}
	return fmt.Sprintf("%s.of%d", l.Job, l.Of)
}
