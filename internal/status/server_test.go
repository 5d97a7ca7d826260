package status

import (
	"strings"
	"testing"
)

// P10: how many runs are kept is said as well as it is known, also before the table was ever analyzed.
func TestRunsThatAreKeptAreCountedBeforeThereIsAnEstimate(t *testing.T) {
	t.Parallel()
	db := history(t)
	run(t, db, `ALTER TABLE runs SET (autovacuum_enabled = false)`)
	words := func() string {
		t.Helper()
		got, err := patient(db, nil).Server(t.Context(), true)
		if err != nil {
			t.Fatal(err)
		}
		return got.Value.RunsWords()
	}
	if got := words(); got != "9" {
		t.Errorf("9 runs are told as %s", got)
	}
	run(t, db, `ANALYZE runs`)
	run(t, db, `DELETE FROM runs WHERE id = 1`)
	if got := words(); got != "8" { // whatever the estimate is
		t.Errorf("8 runs are told as %s", got)
	}
	run(t, db, `INSERT INTO runs (lease, job, tick, epoch, owner, started_at, ended_at, outcome)
		SELECT 'c', 'c', '2026-01-01'::timestamptz + n * interval '1 s', 1, 'x/1', now(), now(), 'success' FROM generate_series(1, 20000) n`)
	if got := words(); got != "more than 10000" {
		t.Errorf("20008 runs, not analyzed, are told as %s", got)
	}
	run(t, db, `ANALYZE runs`)
	if got := words(); !strings.HasPrefix(got, "about 200") {
		t.Errorf("20008 runs are told as %s", got)
	}
}
