package registry

import (
	"fmt"
	"slices"
	"testing"
)

// Every key is owned by one shard, and by the whole of a job that has none.
func TestEveryKeyHasOneOwner(t *testing.T) {
	t.Parallel()
	for i := range 200 {
		key, owners := fmt.Sprint("key ", i), 0
		for k := range 7 {
			if (&Run{Shard: k + 1, Of: 7}).Owns(key) {
				owners++
			}
		}
		if owners != 1 || !(&Run{Shard: 1, Of: 1}).Owns(key) || !(&Run{}).Owns(key) {
			t.Errorf("%s has %d owners", key, owners)
		}
	}
}

func TestLeasesOfAJobAreNamedByItsShards(t *testing.T) {
	t.Parallel()
	for shards, want := range map[int][]string{0: {"j"}, 1: {"j"}, 3: {"j.1of3", "j.2of3", "j.3of3"}} {
		if got := (Job{Name: "j", Shards: shards}).Leases(); !slices.Equal(got, want) {
			t.Errorf("%d shards have the leases %v", shards, got)
		}
	}
	if job, k, of := LeaseOf("j.2of3"); job != "j" || k != 2 || of != 3 {
		t.Errorf("j.2of3 is shard %d of %d of %s", k, of, job)
	}
}
