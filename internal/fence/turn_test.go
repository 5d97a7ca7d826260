package fence_test

import (
	"testing"

	"github.com/jackc/pgx/v5/pgxpool"

	"rota/internal/fence"
)

// statusAsLarge is bridge_status as a job's next version may declare it.
var statusAsLarge = fence.Table{Name: "bridge_status", Key: []string{"bridge_id"}, Stamp: "checked_at", Large: true}

// P4: a table that its job calls large, and that the database does not hold as one, is not raised:
// the error says what to do.
func TestLargeTableWithoutItsTriggersIsNotRaised(t *testing.T) {
	t.Parallel()
	db, _, b := after(t)
	raise := func(table fence.Table) error {
		_, err := fence.Raise(within(t), db, b.token, fence.Shard{}, table)
		return err
	}
	says(t, raise(statusAsLarge), "raise bridge_status", `fence_protect('"bridge_status"', true)`)
	exec(t, db, `ALTER TABLE prices DISABLE TRIGGER rota_watermark_2`)
	says(t, raise(prices), "fence_protect")
	exec(t, db, `ALTER TABLE prices ENABLE TRIGGER rota_watermark_2`)
	wantNoError(t, raise(prices))
	exec(t, db, `DELETE FROM fence_watermarks`)
	says(t, raise(prices), "fence_protect")
	if _, err := db.Exec(within(t), `INSERT INTO prices VALUES ('new', 7, 8)`); !hasCode(err, "55000") {
		t.Errorf("got %v, want 55000: nothing says what epoch may be written", err)
	}
	exec(t, db, `SELECT fence_protect('prices', true)`)
	wantNoError(t, raise(prices))
}

// P2, P3: a table that turns large with rows above what comes later keeps their epoch.
func TestTableThatTurnsLargeKeepsTheEpochOfItsRows(t *testing.T) {
	t.Parallel()
	db := newDB(t)
	exec(t, db, `INSERT INTO bridge_status VALUES ('LP-1', 'UP', now(), 3), ('LP-2', 'UP', now(), 41)`)
	for range 2 { // once more is no error
		exec(t, db, `SELECT fence_protect('bridge_status', true)`)
	}
	a := takeOver(t, db, "a")
	highest, err := fence.Raise(within(t), db, a.token, fence.Shard{}, statusAsLarge)
	if err != nil || highest != 41 {
		t.Errorf("got %d, %v, want 41", highest, err)
	}
	exec(t, db, `UPDATE leadership SET epoch = 41`)
	b := takeOver(t, db, "b")
	b.Writer = fence.NewWriter(b.term, b.end, db, b.token, fence.Shard{}, statusAsLarge)
	_, err = fence.Raise(within(t), db, b.token, fence.Shard{}, statusAsLarge)
	wantNoError(t, err)
	wantNoError(t, b.Upsert(within(t), statusAsLarge, status{"LP-1", "DOWN"}))
	says(t, b.Upsert(within(t), bridgeStatus, status{"LP-1", "DOWN"}), "Protects")
}

// P3, P4: during a rolling deploy one version of a job calls its table large and the other does not.
// Whichever raises, no epoch goes back, and the other's former term is refused.
func TestTableThatIsLargeForSomeAndPlainForOthers(t *testing.T) {
	t.Parallel()
	db, _, _ := after(t)
	exec(t, db, `SELECT fence_protect('bridge_status', true)`)
	exec(t, db, `INSERT INTO bridge_status SELECT i, repeat('x', 50), now(), 8 FROM generate_series(1, 30000) i`)
	for i, table := range []fence.Table{statusAsLarge, bridgeStatus, statusAsLarge, bridgeStatus} {
		epoch := int64(9 + i)
		next := takeOver(t, db, "next")
		highest, err := fence.Raise(within(t), db, next.token, fence.Shard{}, table)
		if err != nil || highest != epoch-1 {
			t.Errorf("got %d, %v, want %d", highest, err, epoch-1)
		}
		if at := watermark(t, db, "bridge_status"); at != epoch {
			t.Errorf("the watermark is %d, want %d", at, epoch)
		}
		wantStale(t, db, epoch-1)
	}
	if n := value[int](t, db, `SELECT count(*) FROM bridge_status WHERE epoch <> 12`); n != 0 {
		t.Errorf("%d rows were not raised", n)
	}
	reset := fence.Token{Lease: lease, Owner: "next", Epoch: 2}
	exec(t, db, `DELETE FROM bridge_status`)
	if highest, err := fence.Raise(within(t), db, reset, fence.Shard{}, bridgeStatus); err != nil || highest != 12 {
		t.Errorf("without a row: got %d, %v, want 12", highest, err)
	}
}

func wantStale(t testing.TB, db *pgxpool.Pool, epoch int64) {
	t.Helper()
	for _, sql := range []string{
		`UPDATE bridge_status SET health = 'DOWN', epoch = $1 WHERE bridge_id = '17'`,
		`INSERT INTO bridge_status VALUES ('new', 'DOWN', now(), $1)`,
	} {
		if _, err := db.Exec(within(t), sql, epoch); !hasCode(err, fence.Refusal) {
			t.Errorf("%s: got %v, want %s", sql, err, fence.Refusal)
		}
	}
}

// P4: a large table that is made a plain one again has its rows raised to its watermark.
func TestTableThatTurnsPlainAgainHasItsRowsRaised(t *testing.T) {
	t.Parallel()
	db, _, b := after(t)
	for _, table := range []string{"prices", "ticks"} {
		for range 2 {
			exec(t, db, `SELECT fence_protect($1::regclass, false)`, table)
		}
		if n := value[int](t, db, `SELECT count(*) FROM `+table+` WHERE epoch <> 8`); n != 0 {
			t.Errorf("%s: %d rows are not raised", table, n)
		}
		if n := value[int](t, db, `SELECT count(*) FROM pg_trigger WHERE tgrelid = $1::regclass`, table); n != 1 {
			t.Errorf("%s has %d triggers, want 1", table, n)
		}
	}
	_, err := fence.Raise(within(t), db, b.token, fence.Shard{}, prices)
	says(t, err, "fence_protect")
	if n := exec(t, db, `UPDATE prices SET bid = 7 WHERE epoch <= 7`); n != 0 {
		t.Errorf("the article's condition let %d rows through", n)
	}
}
