package scheduler

import (
	"testing"

	"rota/internal/pgtest"
)

// What a claim needs of a lease and is gone comes back with the next term: to ask again, as where a row is
// held, would be to lead and to run nothing, for ever and without a word.
func TestClaimWhoseRowsAreGoneEndsTheTerm(t *testing.T) {
	t.Parallel()
	db := pgtest.New(t)
	s := &postgres{db, "me"}
	for _, k := range kinds {
		noProgress, noEpoch := leads(t, db, "no-progress-"+string(k), "me", 7), leads(t, db, "no-epoch-"+string(k), "me", 7)
		begins(t, s, noProgress)
		begins(t, s, noEpoch)
		long(t, db)
		mustExec(t, db, `DELETE FROM progress WHERE lease = $1`, noProgress.Lease)
		mustExec(t, db, `DELETE FROM lease_epochs WHERE job_name = $1`, noEpoch.Lease)
		found := claims(t, s, claimOf(k, noProgress), claimOf(k, noEpoch))
		if a, b := found[noProgress].verdict, found[noEpoch].verdict; a != fenced || b != fenced {
			t.Errorf("%s: without progress %v, without an epoch %v", k, a, b)
		}
	}
}
