package status

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"testing"

	"rota/internal/pgtest"
	"rota/internal/registry"
)

// P10: the leases of the count in force are shown, in the order of their shards, and what is led yet
// of another; those that are out of force are not.
func TestLeasesOfTheCountInForceAreShown(t *testing.T) {
	t.Parallel()
	db := pgtest.New(t)
	run(t, db, `INSERT INTO job_shards (job, n, acting, generation, epoch_high) VALUES ('s', 12, 3, 2, 40), ('whole', 1, 1, 2, 9), ('turned', 2, 2, 3, 9)`)
	run(t, db, `INSERT INTO leadership (job_name, owner, expires_at, epoch)
		SELECT 's.' || k || 'of12', '', clock_timestamp() + CASE WHEN k = 7 THEN interval '100 years' ELSE interval '-1 second' END, CASE WHEN k = 7 THEN 20 ELSE 0 END FROM generate_series(1, 12) AS k`)
	run(t, db, `INSERT INTO leadership (job_name, owner, expires_at, epoch) VALUES
		('s', '', clock_timestamp() + interval '100 years', 2), ('s.1of3', 'a/1', clock_timestamp() + interval '1 hour', 39),
		('s.2of3', 'a/1', clock_timestamp() - interval '1 second', 38), ('s-t', 'a/1', clock_timestamp() + interval '1 hour', 1),
		('whole', 'a/1', clock_timestamp() + interval '1 hour', 9), ('whole.1of2', '', clock_timestamp() + interval '100 years', 8)`)
	snap := look(t, patient(db, []registry.Job{{Name: "new", Schedule: registry.OnDemand, Shards: 2}, {Name: "s", Schedule: registry.OnDemand, Shards: 12}}))
	var got []string
	for _, l := range snap.Leases {
		got = append(got, fmt.Sprintf("%s %s %d/%d %s", l.Name, l.Job, l.Shard, l.Of, l.State))
	}
	want := []string{"new.1of2 new 1/2 never", "new.2of2 new 2/2 never", "s.1of3 s 1/3 held"}
	for k := range 12 {
		state := "never"
		if k == 6 {
			state = "free"
		}
		want = append(want, fmt.Sprintf("s.%dof12 s %d/12 %s", k+1, k+1, state))
	}
	want = append(want, "s-t s-t 0/0 held", "whole whole 0/0 held")
	if !slices.Equal(got, want) {
		t.Errorf("shown are\n%s\nwant\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"))
	}
	if l := find(t, snap, "s.7of12"); !l.ExpiresAt.IsZero() || !l.CompiledIn || l.LastEnd != nil {
		t.Errorf("a lease that was out of force is %+v", l)
	}
	b, err := json.Marshal(find(t, snap, "s.2of12").JSON())
	if err != nil || !strings.Contains(string(b), `"job":"s","shard":{"k":2,"of":12}`) {
		t.Errorf("JSON: %s, %v", b, err)
	}
	part, next := snap.After("s.9of12", 2)
	if part.Leases[0].Name != "s.10of12" || next != "s.11of12" {
		t.Errorf("after s.9of12 comes %s, and then what follows %s", part.Leases[0].Name, next)
	}
}

// P10: a count that no live member has is one that nobody can lead.
func TestShardsThatNoLiveMemberCanLeadAreStranded(t *testing.T) {
	t.Parallel()
	db := pgtest.New(t)
	run(t, db, `INSERT INTO job_shards (job, n) VALUES ('a', 2), ('b', 2)`)
	run(t, db, `INSERT INTO abilities VALUES ('x', '{a.of2,b.of3}')`)
	run(t, db, `INSERT INTO replicas (id, host, pid, version, started_at, seen_at, expires_at, ability)
		VALUES ('x/1', 'h', 1, 'v', clock_timestamp(), clock_timestamp(), clock_timestamp() + interval '1 hour', 'x')`)
	run(t, db, `INSERT INTO leadership (job_name, owner, expires_at, epoch) VALUES ('a.1of2', 'x/1', '-infinity', 3), ('b.1of2', 'x/1', '-infinity', 3)`)
	snap := look(t, patient(db, nil))
	if find(t, snap, "a.1of2").Stranded || !find(t, snap, "b.1of2").Stranded {
		t.Errorf("stranded: %+v", snap.Leases)
	}
}
