package lease

import (
	"testing"
	"testing/synctest"
)

// leadsAll reports whether each of a job's shards is led, by one of the replicas.
func leadsAll(of int, replicas ...*replica) bool {
	for _, l := range Leases("s", of, false) {
		n := 0
		for _, r := range replicas {
			if r.leads(l.Name) != nil {
				n++
			}
		}
		if n != 1 {
			return false
		}
	}
	return true
}

// A replica that puts its count in force and dies leaves it to nobody: those that live put theirs in
// force, once its membership has run out.
func TestCountThatNobodyHasIsReplaced(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		old := w.start("r1/1", nil, Leases("s", 2, false)...)
		pass(2 * testRenew)
		if !leadsAll(2, old) {
			t.Fatal("it does not lead its shards")
		}
		next := w.start("r2/2", nil, Leases("s", 3, false)...)
		pass(4 * testRenew)
		if !leadsAll(3, next) || len(old.leading()) > 0 {
			t.Errorf("the newer count is not in force: the older one leads %d", len(old.leading()))
		}
		next.stop() // as good as dead: it has no say again
		pass(3 * testLease)
		if !leadsAll(2, old) {
			t.Error("the count that a live member has is not in force")
		}
		old.end()
		next.end()
	})
}

// The latest to register wins, and no one changes the count for as long as a member has it.
func TestCountStaysThatOfTheLatestToJoin(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		all := []*replica{w.start("r1/1", nil, Leases("s", 2, false)...)}
		pass(2 * testRenew)
		all = append(all, w.start("r2/2", nil, Leases("s", 1, false)...))
		pass(4 * testRenew)
		all = append(all, w.start("r3/3", nil, Leases("s", 3, false)...))
		pass(4 * testRenew)
		generation := w.db.shards["s"].generation
		pass(40 * testRenew)
		if !leadsAll(3, all[2]) || w.db.shards["s"].generation != generation || generation != 3 {
			t.Errorf("the count has changed %d times, then %d more", generation, w.db.shards["s"].generation-generation)
		}
		for _, r := range all {
			r.end()
		}
	})
}
