package lease

import (
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"testing"
	"time"
)

// A cast is a membership at play: who leads what, and who could.
type cast struct {
	jobs  []string
	can   map[string]*ability
	leads map[string]string        // lease: owner; none: free
	since map[string]time.Duration // when it began to
	now   time.Duration
	alone func() bool
}

func (c *cast) members() []standing {
	loads := map[string]*standing{}
	for owner, can := range c.can {
		loads[owner] = &standing{owner: owner, can: can}
	}
	for lease, owner := range c.leads {
		if loads[owner] != nil {
			loads[owner].add(leasesOf([]string{lease})[0], 1)
		}
	}
	var all []standing
	for _, owner := range slices.Sorted(maps.Keys(loads)) {
		all = append(all, *loads[owner])
	}
	return all
}

// beat plays one heartbeat: what is free is taken, and then everybody decides by the same look.
func (c *cast) beat(most int, tied func(lease string) bool) (moved int) {
	c.now++
	var free []Lease
	for _, j := range c.jobs {
		if c.can[c.leads[j]] == nil {
			delete(c.leads, j)
			free = append(free, leasesOf([]string{j})...)
		}
	}
	for lease, owner := range assign(free, c.members()) {
		c.take(lease, owner)
	}
	members := c.members()
	for _, m := range members {
		var mine []possession
		for _, j := range c.jobs {
			if c.leads[j] == m.owner {
				mine = append(mine, possession{Lease: leasesOf([]string{j})[0], since: c.since[j], tied: tied(j)})
			}
		}
		for _, v := range moves(m.owner, mine, members, most, c.alone()) {
			c.take(v.lease, v.to)
			moved++
		}
	}
	return moved
}

func (c *cast) take(lease, owner string) {
	c.leads[lease], c.since[lease] = owner, c.now
}

// unfair is a lease whose leader leads two more than another that could lead it.
func (c *cast) unfair() string {
	members := c.members()
	for lease, owner := range c.leads {
		i := slices.IndexFunc(members, func(m standing) bool { return m.owner == owner })
		for _, other := range members {
			if other.can.lead(leasesOf([]string{lease})[0].kin()) && members[i].leases >= other.leases+2 {
				return fmt.Sprintf("%s is led by %s, which leads %d; %s leads %d and could lead it", lease, owner, members[i].leases, other.owner, other.leases)
			}
		}
	}
	return ""
}

func idle(string) bool { return false }

func everything(jobs []string) *ability {
	return newAbility(jobs)
}

func named(prefix string, n int) (names []string) {
	for i := range n {
		names = append(names, fmt.Sprintf("%s-%05d", prefix, i))
	}
	return names
}

func newCast(jobs, members int) *cast {
	c := &cast{jobs: named("job", jobs), can: map[string]*ability{}, leads: map[string]string{}, since: map[string]time.Duration{}, alone: func() bool { return false }}
	all := everything(c.jobs)
	for _, m := range named("member", members) {
		c.can[m] = all
	}
	return c
}

// P9: whatever joins and leaves, leadership is even after a beat or two, no more moves than that
// takes are made, and then there is quiet.
func TestLeadershipSpreadsWithNoMoveTooMany(t *testing.T) {
	t.Parallel()
	for _, c := range []struct{ jobs, members int }{{3, 2}, {12, 3}, {30, 3}, {100, 10}, {1000, 50}, {3, 10}} {
		t.Run(fmt.Sprintf("%d jobs, %d members", c.jobs, c.members), func(t *testing.T) {
			t.Parallel()
			w := newCast(c.jobs, 1)
			w.beat(c.jobs, idle)
			all := w.can["member-00000"]
			for i := 1; i < c.members; i++ { // they join one after another
				w.can[fmt.Sprintf("member-%05d", i)] = all
				w.settles(t, c.jobs/(i+1)+1)
			}
			delete(w.can, "member-00000") // one is lost, and what it led is free
			w.settles(t, 1)
			w.can["member-00000"] = all
			w.settles(t, c.jobs/c.members+1)
		})
	}
}

// settles plays until nothing moves, within two beats, and then on.
func (c *cast) settles(t *testing.T, most int) {
	t.Helper()
	moved := c.beat(len(c.jobs), idle) + c.beat(len(c.jobs), idle)
	if moved > most {
		t.Errorf("%d members: %d moves, where %d are enough", len(c.can), moved, most)
	}
	if why := c.unfair(); why != "" {
		t.Errorf("%d members: %s", len(c.can), why)
	}
	for range 5 {
		if more := c.beat(len(c.jobs), idle); more > 0 {
			t.Errorf("%d members: %d moves although all is even", len(c.can), more)
		}
	}
}

// P9: members that can lead different jobs reach a spread in which nobody leads two more than
// another that could take one, whatever they began with, and stay there.
func TestUnequalMembersSpreadWhatTheyCan(t *testing.T) {
	t.Parallel()
	for range 300 {
		seed := rand.Uint64()
		r := rand.New(rand.NewPCG(seed, 0))
		w := newCast(3+r.IntN(60), 2+r.IntN(8))
		for _, owner := range slices.Sorted(maps.Keys(w.can)) {
			if r.IntN(3) > 0 {
				w.can[owner] = newAbility(nil)
				for _, j := range w.jobs {
					w.can[owner].jobs[j] = r.IntN(3) > 0
				}
			}
		}
		w.alone = func() bool { return r.IntN(2) == 0 }
		owners := slices.Sorted(maps.Keys(w.can))
		for _, j := range w.jobs { // as it may be after any history
			if owner := owners[r.IntN(len(owners))]; w.can[owner].lead(j) {
				w.leads[j] = owner
			}
		}
		beats := 0
		for quiet := 0; quiet < 5; beats++ {
			busy := func(string) bool { return r.IntN(4) == 0 }
			if moved := w.beat(1+r.IntN(8), busy); moved > 0 || w.unfair() != "" {
				quiet = 0
			} else {
				quiet++
			}
			if beats > 500 {
				t.Fatalf("seed %d: after %d beats there is no quiet: %s", seed, beats, w.unfair())
			}
		}
	}
}

// Two replicas never want the same free lease, and none is forgotten that somebody can lead.
func TestFreeLeasesHaveOneTakerEach(t *testing.T) {
	t.Parallel()
	w := newCast(100, 7)
	some := newAbility(w.jobs[3:4])
	w.can["member-00002"] = some
	members := w.members()
	var free []Lease
	for _, j := range w.jobs {
		free = append(free, Lease{Name: j, Job: j})
	}
	nobody := Lease{Name: "orphan", Job: "orphan"}
	to := assign(append(free, nobody), members)
	if len(to) != 100 || to["orphan"] != "" {
		t.Errorf("%d are assigned, the one that nobody can lead to %q", len(to), to["orphan"])
	}
	slices.Reverse(free)
	slices.Reverse(members)
	if again := assign(free, members); !maps.Equal(to, again) {
		t.Error("another that sees the same in another order decides otherwise")
	}
	for lease, owner := range to {
		if !w.can[owner].lead(lease) {
			t.Errorf("%s is assigned to %s, which cannot lead it", lease, owner)
		}
		w.leads[lease] = owner
	}
	if why := w.unfair(); why != "" {
		t.Error(why)
	}
}

// No run is interrupted for a move, and what has just moved stays where it is.
func TestMovesTakeTheOldestTermThatNoRunTiesDown(t *testing.T) {
	t.Parallel()
	all := everything([]string{"a", "b", "c", "d"})
	mine := []possession{
		{Lease: Lease{Name: "a", Job: "a", Unbroken: true}, since: 1},
		{Lease: Lease{Name: "b", Job: "b"}, since: 2, tied: true},
		{Lease: Lease{Name: "c", Job: "c"}, since: 4},
		{Lease: Lease{Name: "d", Job: "d"}, since: 3},
	}
	other := standing{owner: "other", leases: 0, can: all}
	for leads, want := range [][]string{{"d", "c"}, {"d"}, {"d"}, nil} {
		other.leases = leads
		var got []string
		for _, m := range moves("me", mine, []standing{{owner: "me", leases: 4, can: all}, other}, 8, false) {
			got = append(got, m.lease)
		}
		if !slices.Equal(got, want) {
			t.Errorf("while the other leads %d, %v are moved, want %v", leads, got, want)
		}
	}
	some := newAbility([]string{"a", "b"})
	if got := moves("me", mine, []standing{{owner: "me", leases: 4, can: all}, {owner: "other", can: some}}, 8, false); !slices.Equal(got, []move{{"b", "other"}, {"a", "other"}}) {
		t.Errorf("to one that cannot lead the others, %v are moved", got)
	}
}
