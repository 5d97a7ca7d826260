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
	shards map[string]int // of the leases, those of jobs that have several, by their kin
}

// add counts n leases more.
func (m *standing) add(l Lease, n int) {
	m.leases += n
	if !l.Shard.Whole() {
		m.addShards(l.kin(), n)
	}
}

func (m *standing) addShards(kin string, n int) {
	if m.shards == nil {
		m.shards = map[string]int{}
	}
	m.shards[kin] += n
}

// copied are standings that may be changed without harm to others'.
func copied(members []standing) []standing {
	members = slices.Clone(members)
	for i := range members {
		members[i].shards = maps.Clone(members[i].shards)
	}
	return members
}

// An ability is the set of jobs that a member can lead, each by the kin of its leases. Members with
// the same set share it.
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

// names are the kin, in no order; empty, and not nil, where there are none.
func (a *ability) names() []string {
	return slices.AppendSeq(make([]string, 0, len(a.jobs)), maps.Keys(a.jobs))
}

func (a *ability) lead(kin string) bool { return a != nil && a.jobs[kin] }

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
// those that can lead it, and among equals to one that depends on the lease alone. A shard goes to
// the one that leads the least of its job's first; what is no shard comes after them, and evens out
// the whole. Every member that sees the same computes the same, so that each claims what is its own
// and two never want one lease. What nobody can lead is given to nobody.
func assign(free []Lease, members []standing) map[string]string {
	members = copied(members)
	free = slices.SortedFunc(slices.Values(free), func(a, b Lease) int {
		return cmp.Or(compareBool(a.Shard.Whole(), b.Shard.Whole()), cmp.Compare(a.Name, b.Name))
	})
	to := make(map[string]string, len(free))
	for _, l := range free {
		if i := least(members, l, ""); i >= 0 {
			members[i].add(l, 1)
			to[l.Name] = members[i].owner
		}
	}
	return to
}

// least is the member that leads the least of those that can lead a lease, other than one owner; -1:
// there is none.
func least(members []standing, l Lease, except string) int {
	best, weight, kin := -1, uint64(0), l.kin()
	var last *ability // most members have one in common
	able := false
	for i := range members {
		m := &members[i]
		less := -1
		if best >= 0 {
			less = cmp.Or(cmp.Compare(m.shards[kin], members[best].shards[kin]), cmp.Compare(m.leases, members[best].leases))
		}
		if m.owner == except || less > 0 {
			continue
		}
		if m.can != last {
			last, able = m.can, m.can.lead(kin)
		}
		if !able {
			continue
		}
		switch {
		case less < 0:
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
// could lead them, nor two shards more of one job. It plays through what all members do from the same
// standing, each giving from the one that has the most to the one that has the least, and keeps its
// own part; so the members together move no more than is needed, and stop when nothing is to be
// gained. At most so many are made at once. Which of its leases are moved: those that no run ties
// down first, those whose runs never end by themselves last, and the oldest terms, so that what has
// just moved stays.
//
// Shards come first. What is moved after that to even out the whole leaves the shards of each job as
// even as they are, so that it comes to an end.
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

// A game is the members' moves as one of them plays them through.
type game struct {
	members []standing // after the moves so far
	sure    []standing // after those of this member alone
	at      int        // this member
	mine    []possession
	others  bool // whether the others are taken to move too
}

func play(me string, mine []possession, members []standing, most int, others bool) []move {
	g := game{members: copied(members), others: others}
	slices.SortFunc(g.members, func(a, b standing) int { return cmp.Compare(a.owner, b.owner) })
	g.sure = copied(g.members)
	g.at = slices.IndexFunc(g.members, func(m standing) bool { return m.owner == me })
	if g.at < 0 {
		return nil
	}
	g.mine = slices.SortedFunc(slices.Values(mine), func(a, b possession) int {
		return cmp.Or(compareBool(a.Unbroken, b.Unbroken), compareBool(a.tied, b.tied), cmp.Compare(a.since, b.since), cmp.Compare(a.Name, b.Name))
	})
	var made []move
	for len(made) < most {
		from, to, kin := g.steepestShards()
		if from < 0 {
			from, to = g.steepest()
		}
		switch {
		case from < 0:
			return made
		case from != g.at:
			g.guess(from, to, kin)
		default:
			made = append(made, g.give(to, kin))
		}
	}
	return made
}

// guess plays a move of another, of a shard of a kin or of some lease.
func (g *game) guess(from, to int, kin string) {
	g.members[from].leases--
	g.members[to].leases++
	if kin != "" {
		g.members[from].addShards(kin, -1)
		g.members[to].addShards(kin, 1)
	}
}

// give moves a lease of ours, of a kin or of any.
func (g *game) give(to int, kin string) move {
	i := slices.IndexFunc(g.mine, func(p possession) bool {
		return kin != "" && p.kin() == kin || kin == "" && g.mayGive(p, to)
	})
	l := g.mine[i].Lease
	g.mine = slices.Delete(g.mine, i, i+1)
	for _, members := range [][]standing{g.members, g.sure} {
		members[g.at].add(l, -1)
		members[to].add(l, 1)
	}
	return move{l.Name, g.members[to].owner}
}

// mayGive reports whether a lease may be moved to even out the whole: to one that leads fewer shards
// of its job, if it is one, so that those are no less even.
func (g *game) mayGive(p possession, to int) bool {
	kin := p.kin()
	return g.members[to].can.lead(kin) && (p.Shard.Whole() ||
		g.members[g.at].shards[kin] > g.members[to].shards[kin] && g.sure[g.at].shards[kin] > g.sure[to].shards[kin])
}

// steepestShards is the pair of members with the greatest difference, of two at least, in the shards
// of one job, between which one may be moved, and their kin; -1: there is none.
func (g *game) steepestShards() (from, to int, kin string) {
	from, to = -1, -1
	widest := 1
	for _, k := range kins(g.members) {
		for i := range g.members {
			for j := range g.members {
				d := g.members[i].shards[k] - g.members[j].shards[k]
				if d < widest || d < 2 || !g.members[j].can.lead(k) || d == widest && g.members[j].leases >= g.members[max(0, to)].leases {
					continue
				}
				if i == g.at && (g.sure[i].shards[k]-g.sure[j].shards[k] < 2 || !slices.ContainsFunc(g.mine, func(p possession) bool { return p.kin() == k })) ||
					i != g.at && !g.others {
					continue
				}
				from, to, kin, widest = i, j, k, d
			}
		}
	}
	return from, to, kin
}

// kins are those of which somebody leads a shard, in order.
func kins(members []standing) []string {
	var all []string
	for _, m := range members {
		all = slices.AppendSeq(all, maps.Keys(m.shards))
	}
	slices.Sort(all)
	return slices.Compact(all)
}

// steepest is the pair of members with the greatest difference in all, of two at least, between which
// a lease may be moved; -1: there is none.
func (g *game) steepest() (from, to int) {
	may := func(from, to int) bool {
		if from == g.at {
			return g.sure[from].leases-g.sure[to].leases > 1 && slices.ContainsFunc(g.mine, func(p possession) bool { return g.mayGive(p, to) })
		}
		return g.others && g.members[from].can.meets(g.members[to].can)
	}
	from, to = -1, -1
	widest := 1
	for i := range g.members {
		for j := range g.members {
			if d := g.members[i].leases - g.members[j].leases; d > widest && may(i, j) {
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
