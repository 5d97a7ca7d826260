package status

import (
	"slices"

	"github.com/jackc/pgx/v5"

	"rota/internal/registry"
)

// ableSQL is what live members can lead: jobs, with the count of their shards where they have some.
// Members of one build share their ability, so that this does not grow with them.
const ableSQL = `
SELECT a.id, a.jobs FROM abilities a
 WHERE a.id IN (SELECT ability FROM replicas WHERE expires_at > clock_timestamp() AND NOT draining)`

// An ability is a set of jobs that members can lead.
type ability struct {
	id   string
	jobs []string
}

func scanAbility(row pgx.CollectableRow) (a ability, err error) {
	err = row.Scan(&a.id, &a.jobs)
	return a, err
}

// HasHeir reports whether a member besides its holder could take the lease.
func (s Snapshot) HasHeir(l Lease) bool {
	for _, r := range s.Replicas {
		if r.Standing == Member && r.ID != l.Owner && slices.Contains(s.able[r.Ability], registry.Kin(l.Name)) {
			return true
		}
	}
	return false
}

// strand marks the leases that nobody holds and nobody can take.
func strand(leases []Lease, able map[string][]string) {
	can := map[string]bool{}
	for _, jobs := range able {
		for _, job := range jobs {
			can[job] = true
		}
	}
	for i, l := range leases {
		leases[i].Stranded = l.State != Held && !can[registry.Kin(l.Name)]
	}
}
