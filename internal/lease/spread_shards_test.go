package lease

import (
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"testing"
)

// unevenShards is a job of which some member leads two shards more than another that could lead one.
func (c *cast) unevenShards() string {
	members := c.members()
	for _, kin := range kins(members) {
		for _, a := range members {
			for _, b := range members {
				if b.can.lead(kin) && a.shards[kin] >= b.shards[kin]+2 {
					return fmt.Sprintf("%s leads %d of %s, and %s %d", a.owner, a.shards[kin], kin, b.owner, b.shards[kin])
				}
			}
		}
	}
	return ""
}

// newShardedCast has jobs of one lease and jobs of several.
func newShardedCast(whole, sharded, of, members int) *cast {
	c := newCast(0, members)
	var kin []string
	add := func(leases []Lease) {
		for _, l := range leases {
			c.jobs = append(c.jobs, l.Name)
		}
		kin = append(kin, leases[0].kin())
	}
	for _, job := range named("whole", whole) {
		add(Leases(job, 1, false))
	}
	for _, job := range named("sharded", sharded) {
		add(Leases(job, of, false))
	}
	all := newAbility(kin)
	for m := range c.can {
		c.can[m] = all
	}
	return c
}

// P9: the shards of each job are spread evenly, and so is the whole, within a few beats of every
// change, whatever came before; then there is quiet.
func TestShardsSpreadAmongThemselves(t *testing.T) {
	t.Parallel()
	for _, c := range []struct{ whole, sharded, of, members int }{{0, 1, 4, 2}, {5, 1, 3, 3}, {9, 4, 4, 3}, {30, 10, 6, 7}, {0, 5, 2, 3}} {
		t.Run(fmt.Sprint(c), func(t *testing.T) {
			t.Parallel()
			for range 20 {
				seed := rand.Uint64()
				r := rand.New(rand.NewPCG(seed, 0))
				w := newShardedCast(c.whole, c.sharded, c.of, c.members)
				owners := slices.Sorted(maps.Keys(w.can))
				for _, l := range w.jobs { // as it may be after any history
					if i := r.IntN(len(owners) + 1); i < len(owners) {
						w.leads[l] = owners[i]
					}
				}
				moved, most := 0, len(w.jobs)
				for range 6 {
					moved += w.beat(most, idle)
				}
				if why := w.unfair() + w.unevenShards(); why != "" || moved > 2*most {
					t.Fatalf("seed %d: after %d moves: %s", seed, moved, why)
				}
				for range 5 {
					if more := w.beat(most, idle); more > 0 {
						t.Fatalf("seed %d: %d moves although all is even", seed, more)
					}
				}
				delete(w.can, owners[0]) // one is lost
				w.beat(most, idle)
				w.beat(most, idle)
				if why := w.unfair() + w.unevenShards(); why != "" {
					t.Fatalf("seed %d: after a loss: %s", seed, why)
				}
			}
		})
	}
}

// P9: where not every member can lead everything, the shards of each job are even among those that
// can, there is quiet, and what is uneven in the whole cannot be helped by a lease that is no shard.
func TestShardsSpreadAmongThoseThatCanLeadThem(t *testing.T) {
	t.Parallel()
	for range 200 {
		seed := rand.Uint64()
		r := rand.New(rand.NewPCG(seed, 0))
		w := newShardedCast(r.IntN(20), 1+r.IntN(4), 2+r.IntN(5), 2+r.IntN(5))
		owners := slices.Sorted(maps.Keys(w.can))
		kin := slices.Collect(maps.Keys(w.can[owners[0]].jobs))
		slices.Sort(kin)
		for _, owner := range owners {
			if r.IntN(2) == 0 {
				w.can[owner] = newAbility(slices.DeleteFunc(slices.Clone(kin), func(string) bool { return r.IntN(3) == 0 }))
			}
		}
		w.alone = func() bool { return r.IntN(2) == 0 }
		quiet, beats := 0, 0
		for ; quiet < 8; beats++ {
			if moved := w.beat(1+r.IntN(8), func(string) bool { return r.IntN(4) == 0 }); moved > 0 || w.unevenShards() != "" {
				quiet = 0
			} else {
				quiet++
			}
			if beats > 600 {
				t.Fatalf("seed %d: after %d beats there is no quiet: %s", seed, beats, w.unevenShards())
			}
		}
	}
}
