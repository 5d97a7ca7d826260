package lease

import (
	"context"
	"maps"
	"slices"
	"strings"
	"time"

	"rota/internal/fence"
)

// A company is the other members as this replica sees them.
type company struct {
	peers  []peer              // of the last look, in order
	loads  map[string]load     // of each owner, by the last look
	known  map[string]*ability // by id; nil: not found
	steady time.Duration       // since when looks have shown the same members, by sinceBoot
}

func newCompany(own *ability) company {
	return company{known: map[string]*ability{own.id: own}}
}

// seen takes in a look that was sent then.
func (c *company) seen(l look, sent time.Duration) {
	peers := slices.SortedFunc(slices.Values(l.peers), func(a, b peer) int { return strings.Compare(a.owner, b.owner) })
	if !slices.Equal(peers, c.peers) || c.steady == 0 {
		c.peers, c.steady = peers, sent
	}
	c.loads = make(map[string]load, len(l.owners))
	for _, o := range l.owners {
		c.loads[o.owner] = o
	}
}

// lead reports whether another member is known to be able to lead leases of a kin.
func (c *company) lead(kin string) bool {
	return slices.ContainsFunc(c.peers, func(p peer) bool { return c.known[p.ability].lead(kin) })
}

// strange are the ids of abilities that have not been asked for.
func (c *company) strange() (ids []string) {
	for _, p := range c.peers {
		if _, known := c.known[p.ability]; !known && !slices.Contains(ids, p.ability) {
			ids = append(ids, p.ability)
		}
	}
	return ids
}

// learn asks what members can lead of whom that is not known. Until it is, they count as able to
// lead nothing.
func (e *election) learn() {
	ids := e.company.strange()
	if len(ids) == 0 || e.learning {
		return
	}
	e.learning = true
	e.call(func() func() {
		ctx, cancel := context.WithTimeout(context.Background(), e.cfg.callTimeout())
		defer cancel()
		found, err := e.store.abilities(ctx, ids)
		return func() {
			e.learning = false
			if err != nil {
				return // the next look asks again
			}
			for _, a := range found {
				e.company.known[a.id] = &a
			}
			e.lookSoon()
		}
	})
}

// standings are the members that count, and this replica among them unless it gives up everything.
// A term that is about to move counts for the member that it moves to.
func (e *election) standings() []standing {
	moving := map[string]*standing{}
	own := standing{owner: e.cfg.Owner, can: e.can}
	for s := range e.taken {
		switch {
		case s.to == "":
			own.add(s.lease, 1)
		default:
			if moving[s.to] == nil {
				moving[s.to] = &standing{}
			}
			moving[s.to].add(s.lease, 1)
		}
	}
	var all []standing
	if !e.draining {
		all = append(all, own)
	}
	for _, p := range e.company.peers {
		o := e.company.loads[p.owner]
		m := standing{owner: p.owner, leases: o.leases, shards: maps.Clone(o.shards), can: e.company.known[p.ability]}
		if more := moving[p.owner]; more != nil {
			m.leases += more.leases
			for kin, n := range more.shards {
				m.addShards(kin, n)
			}
		}
		all = append(all, m)
	}
	return all
}

// mostMoves is how many terms may be moved in one heartbeat by a replica that leads so many.
func mostMoves(led int) int { return max(8, led/10) }

// balance gives up terms in favour of members that lead less, where the same members have been seen
// for a whole heartbeat. What is free counts for the member that will take it: it may be what another
// has just given up, and who waited for it to be taken would find the next one's at each heartbeat.
func (e *election) balance(l look, sent time.Duration) {
	if e.draining || sent-e.company.steady < e.cfg.Renew*9/10 || e.joined == sent {
		return
	}
	members := e.standings()
	count(assign(leasesOf(l.free), members), members)
	var mine []possession
	moving := 0
	for s := range e.taken {
		switch {
		case !s.led() || s.crew.out():
		case s.to != "":
			moving++
		default:
			mine = append(mine, possession{Lease: s.lease, since: s.began, tied: s.term.tied.Load()})
		}
	}
	for _, m := range moves(e.cfg.Owner, mine, members, mostMoves(len(mine))-moving, e.rand.IntN(2) == 0) {
		s := e.seats[m.lease]
		s.to = m.to
		s.term.yield()
	}
}

// count adds leases to the standings of those whom they are assigned to.
func count(assigned map[string]string, members []standing) {
	for _, l := range leasesOf(slices.Sorted(maps.Keys(assigned))) {
		i := slices.IndexFunc(members, func(m standing) bool { return m.owner == assigned[l.Name] })
		members[i].add(l, 1)
	}
}

// successors says for whom each of the terms is given up: the member that it moves to, if that is
// still there, or else those that lead the least of the others.
func (e *election) successors(batch []release) []string {
	var others []standing
	for _, m := range e.standings() {
		if m.owner != e.cfg.Owner {
			others = append(others, m)
		}
	}
	to := make([]string, len(batch))
	var open []Lease
	for i, r := range batch {
		if r.seat != nil && slices.ContainsFunc(others, func(m standing) bool { return m.owner == r.seat.to }) {
			to[i] = forMember(r.seat.to)
		} else {
			open = append(open, leasesOf([]string{r.name})...)
		}
	}
	assigned := assign(open, others)
	for i, r := range batch {
		if owner := assigned[r.name]; to[i] == "" && owner != "" {
			to[i] = forMember(owner)
		}
	}
	return to
}

// memberMark begins the word of an announcement that says for whom the leases after it are. The
// name of no lease begins so.
const memberMark = ">"

// forMember is the word for an owner: its UUID is enough.
func forMember(owner string) string { return memberMark + owner[strings.LastIndexByte(owner, '/')+1:] }

func memberOf(word string) (string, bool) {
	return word, strings.HasPrefix(word, memberMark)
}

// leasesOf are leases by their names.
func leasesOf(names []string) []Lease {
	all := make([]Lease, len(names))
	for i, n := range names {
		job, s := fence.SplitLease(n)
		all[i] = Lease{Name: n, Job: job, Shard: s}
	}
	return all
}
