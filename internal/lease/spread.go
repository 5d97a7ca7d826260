package lease

import (
	"cmp"
	"crypto/sha256"
	"encoding/hex"
	"hash/fnv"
	"maps"
	"slices"
	"strings"
	"time"
)

// A standing is what one member leads, and what it could lead.
type standing struct {
	owner  string
	leases int
	can    *ability
}

// An ability is the set of jobs that a member can lead. Members with the same set share it.
type ability struct {
	id   string // a hash of the jobs
	jobs map[string]bool
}

func newAbility(jobs []string) *ability {
	jobs = slices.Compact(slices.Sorted(slices.Values(jobs)))
	sum := sha256.Sum256([]byte(strings.Join(jobs, "\n")))
	a := &ability{id: hex.EncodeToString(sum[:16]), jobs: make(map[string]bool, len(jobs))}
	for _, j := range jobs {
		a.jobs[j] = true
	}
	return a
}

// names are the jobs, in no order; empty, and not nil, where there are none.
func (a *ability) names() []string {
	return slices.AppendSeq(make([]string, 0, len(a.jobs)), maps.Keys(a.jobs))
}

func (a *ability) lead(job string) bool { return a != nil && a.jobs[job] }

// meets reports whether there is a job that both can lead.
func (a *ability) meets(b *ability) bool {
	if a == nil || b == nil {
		return false
	}
	if a == b {
		return len(a.jobs) > 0
	}
	if len(b.jobs) < len(a.jobs) {
		a, b = b, a
	}
	for job := range a.jobs {
		if b.jobs[job] {
			return true
		}
	}
	return false
}

// assign gives each of the free leases to one of the members: to the one that leads the least of
// those that can lead it, and among equals to one that depends on the lease alone. Every member
// that sees the same computes the same, so that each claims what is its own and two never want one
// lease. What nobody can lead is given to nobody.
func assign(free []Lease, members []standing) map[string]string {
	members = slices.Clone(members)
	free = slices.SortedFunc(slices.Values(free), func(a, b Lease) int { return cmp.Compare(a.Name, b.Name) })
	to := make(map[string]string, len(free))
	for _, l := range free {
		if i := least(members, l, ""); i >= 0 {
			members[i].leases++
			to[l.Name] = members[i].owner
		}
	}
	return to
}

// least is the member that leads the least of those that can lead a lease, other than one owner; -1:
// there is none.
func least(members []standing, l Lease, except string) int {
	best, weight := -1, uint64(0)
	for i, m := range members {
		if m.owner == except || !m.can.lead(l.Job) {
			continue
		}
		switch {
		case best >= 0 && m.leases > members[best].leases:
		case best < 0 || m.leases < members[best].leases:
			best, weight = i, affinity(l.Name, m.owner)
		default:
			if w := affinity(l.Name, m.owner); w > weight {
				best, weight = i, w
			}
		}
	}
	return best
}

// affinity orders the members in a way that is a lease's own (rendezvous hashing).
func affinity(lease, owner string) uint64 {
	h := fnv.New64a()
	_, _ = h.Write([]byte(lease))
	_, _ = h.Write([]byte{0})
	_, _ = h.Write([]byte(owner))
	return h.Sum64()
}

// A possession is a lease that this replica leads.
type possession struct {
	Lease
	since time.Duration // when its term began, by sinceBoot
	tied  bool          // a run is under way, which is not interrupted: the move waits for its end
}

// A move is a lease to be given up in favour of another member.
type move struct{ lease, to string }

// moves are those that this replica makes so that no member leads two leases more than another that
// could lead them. It plays through what all members do from the same standing, each giving from
// the one that has the most to the one that has the least, and keeps its own part; so the members
// together move no more than is needed, and stop when nothing is to be gained. At most so many are
// made at once. Which of its leases are moved: those that no run ties down first, those whose runs
// never end by themselves last, and the oldest terms, so that what has just moved stays.
//
// What others give is a guess where members can lead different jobs, and a wrong guess would keep a
// lease where it is for ever. So if nothing comes of it, and alone says so, one lease is moved as if
// the others gave nothing; alone should be left to chance, so that not all do so at once.
func moves(me string, mine []possession, members []standing, most int, alone bool) []move {
	if made := play(me, mine, members, most, true); len(made) > 0 || !alone || alike(members) {
		return made
	}
	return play(me, mine, members, min(most, 1), false)
}

// alike reports whether all members can lead the same, so that no guess is wrong.
func alike(members []standing) bool {
	return !slices.ContainsFunc(members, func(m standing) bool { return m.can != members[0].can })
}

func play(me string, mine []possession, members []standing, most int, others bool) []move {
	at := slices.IndexFunc(members, func(m standing) bool { return m.owner == me })
	if at < 0 {
		return nil
	}
	members = slices.Clone(members)
	slices.SortFunc(members, func(a, b standing) int { return cmp.Compare(a.owner, b.owner) })
	at = slices.IndexFunc(members, func(m standing) bool { return m.owner == me })
	mine = slices.SortedFunc(slices.Values(mine), func(a, b possession) int {
		return cmp.Or(compareBool(a.Unbroken, b.Unbroken), compareBool(a.tied, b.tied), cmp.Compare(a.since, b.since), cmp.Compare(a.Name, b.Name))
	})
	sure := slices.Clone(members)
	var made []move
	for len(made) < most {
		from, to := steepest(members, func(from, to int) bool {
			if from == at {
				return sure[at].leases-sure[to].leases > 1 && slices.ContainsFunc(mine, func(p possession) bool { return members[to].can.lead(p.Job) })
			}
			return others && members[from].can.meets(members[to].can)
		})
		if from < 0 {
			break
		}
		members[from].leases--
		members[to].leases++
		if from != at {
			continue
		}
		i := slices.IndexFunc(mine, func(p possession) bool { return members[to].can.lead(p.Job) })
		made = append(made, move{mine[i].Name, members[to].owner})
		sure[at].leases--
		sure[to].leases++
		mine = slices.Delete(mine, i, i+1)
	}
	return made
}

// steepest is the pair of members with the greatest difference, of two at least, between which a
// lease may be moved; -1: there is none.
func steepest(members []standing, may func(from, to int) bool) (from, to int) {
	from, to = -1, -1
	widest := 1
	for i := range members {
		for j := range members {
			if d := members[i].leases - members[j].leases; d > widest && may(i, j) {
				from, to, widest = i, j, d
			}
		}
	}
	return from, to
}

func compareBool(a, b bool) int {
	switch {
	case a == b:
		return 0
	case b:
		return -1
	}
	return 1
}
