package status

import (
	"testing"

	"rota/internal/pgtest"
	"rota/internal/registry"
)

// P10: a job that nobody could lead is told from one that nobody has taken yet.
func TestJobThatNoLiveMemberCanLeadIsStranded(t *testing.T) {
	t.Parallel()
	db := pgtest.New(t)
	run(t, db, `INSERT INTO abilities VALUES ('all', '{a,b,held}'), ('some', '{a,shared}')`)
	run(t, db, `INSERT INTO replicas (id, host, pid, version, started_at, seen_at, expires_at, ability, draining)
		SELECT id, 'h', 1, 'v', clock_timestamp(), clock_timestamp(), clock_timestamp() + live, ability, draining FROM (VALUES
			('x/1', interval '1 hour', 'some', false), ('x/2', interval '-1 second', 'all', false), ('x/3', interval '1 hour', 'all', true))
			AS r (id, live, ability, draining)`)
	run(t, db, `INSERT INTO leadership (job_name, owner, expires_at, epoch) VALUES
		('a', 'x/1', '-infinity', 3), ('b', 'x/2', '-infinity', 4), ('held', 'x/2', clock_timestamp() + interval '1 hour', 5), ('shared', 'x/2', clock_timestamp() + interval '1 hour', 5)`)
	snap := look(t, patient(db, []registry.Job{{Name: "c", Schedule: registry.OnDemand}}))
	for name, want := range map[string]bool{"a": false, "held": false, "shared": true} { // of a, whose former owner is x/1 itself
		if got := snap.HasHeir(find(t, snap, name)); got != want {
			t.Errorf("%s: it has an heir: %v, want %v", name, got, want)
		}
	}
	for name, want := range map[string]bool{"a": false, "b": true, "c": true, "held": false} {
		if got := find(t, snap, name).Stranded; got != want {
			t.Errorf("%s: stranded %v, want %v", name, got, want)
		}
	}
}

func TestDisabledJobHasNoNextTick(t *testing.T) {
	t.Parallel()
	db := pgtest.New(t)
	run(t, db, `INSERT INTO leadership (job_name, owner, expires_at, epoch) VALUES ('off', 'x/1', '-infinity', 3)`)
	run(t, db, `INSERT INTO progress (lease, last_tick, schedule) VALUES ('off', '2026-01-01', 'every 5s')`)
	l := find(t, look(t, patient(db, []registry.Job{{Name: "off", Schedule: registry.Every(5e9), Disabled: true}})), "off")
	if !l.Disabled || !l.NextTick.IsZero() || !l.DueSince.IsZero() {
		t.Errorf("it is shown as %+v", l)
	}
}
