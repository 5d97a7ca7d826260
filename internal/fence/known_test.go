package fence_test

import (
	"context"
	"errors"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5/pgxpool"

	"rota/internal/fence"
)

// known is a leader that has written on its only connection within the second, so that its next single
// row does not look at leadership, and the pool that it writes through.
func known(t testing.TB, db *pgxpool.Pool) (*leader, *pgxpool.Pool) {
	t.Helper()
	l := takeOver(t, db, "a")
	pool := poolOn(t, db.Config().ConnString(), func(cfg *pgxpool.Config) {
		cfg.ConnConfig.RuntimeParams["search_path"] = "stretch, pg_catalog, desk, public"
		cfg.AfterConnect, cfg.MaxConns = fence.Prepare, 1
	})
	l = l.again(t, pool)
	wantNoError(t, l.Upsert(within(t), bridgeStatus, status{"LP-1", "UP"}))
	return l, pool
}

const underWaySQL = `SELECT query FROM pg_stat_activity WHERE datname = current_database() AND query ~ 'INSERT INTO "bridge_status"' AND state = 'active'`

// atGateUnlooking has an upsert that does not look at leadership wait between its snapshot and its lock.
func atGateUnlooking(t testing.TB, db *pgxpool.Pool, l *leader) (open func(), result <-chan error) {
	t.Helper()
	eventually(t, "an upsert does not look at leadership", func() bool {
		open = closeGate(t, db, 1)
		result = atGate(t, db, func() error { return l.Upsert(within(t), bridgeStatus, status{"new-" + unique(), "DOWN"}) })
		if !strings.Contains(value[string](t, db, underWaySQL), "leadership") {
			return true
		}
		open()
		wantNoError(t, <-result)
		return false
	})
	return open, result
}

// P3: an upsert that trusts what it knows is refused by a takeover between its snapshot and its lock.
func TestTakeoverRefusesAWriterThatKnowsItsLease(t *testing.T) {
	t.Parallel()
	db := newDB(t)
	exec(t, db, gateSQL)
	a, _ := known(t, db)
	open, written := atGateUnlooking(t, db, a)
	b := takeOver(t, db, "b")
	b.raise(t, db)
	before := value[string](t, db, everythingSQL)
	open()
	wantFenced(t, <-written)
	if now := value[string](t, db, everythingSQL); now != before {
		t.Errorf("rows changed from %q to %q", before, now)
	}
}

// P3: a lease that is reset by hand under the same epoch is another's all the same.
func TestResetUnderTheSameEpochRefusesAWriterThatKnowsItsLease(t *testing.T) {
	t.Parallel()
	for name, sql := range map[string]string{
		"another owner": `UPDATE leadership SET owner = 'b'`,
		"another row":   `DELETE FROM leadership; INSERT INTO leadership VALUES ('bridge_health', 'b', now() + interval '1 hour', 1)`,
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			db := newDB(t)
			exec(t, db, gateSQL)
			a, _ := known(t, db)
			open, written := atGateUnlooking(t, db, a)
			exec(t, db, sql)
			open()
			wantFenced(t, <-written)
		})
	}
}

// P8: what a writer knows of its lease has run out for an upsert that comes late. It looks again, so that
// it neither holds up a successor after its lease's end, nor is refused while its lease lasts.
func TestUpsertThatComesLateLooksAtItsLeaseAgain(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		name, sql string
		fenced    bool
	}{
		{"the lease lasts", renewSQL, false},
		{"the lease has run out", `UPDATE leadership SET expires_at = now() - interval '1 second' WHERE job_name = $1`, true},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			db := newDB(t)
			exec(t, db, gateSQL)
			a, _ := known(t, db)
			open, written := atGateUnlooking(t, db, a)
			exec(t, db, c.sql, lease)
			eventually(t, "what was known has run out", func() bool {
				return value[bool](t, db, `SELECT clock_timestamp() > query_start + interval '1 second' FROM pg_stat_activity
					WHERE datname = current_database() AND query ~ 'INSERT INTO "bridge_status"' AND state = 'active'`)
			})
			open()
			if err := <-written; errors.Is(err, fence.ErrFenced) != c.fenced {
				t.Errorf("got %v; want ErrFenced: %v", err, c.fenced)
			}
		})
	}
}

// A release by hand is noticed within a second though nobody takes over.
func TestWriterSeesAReleaseByHand(t *testing.T) {
	t.Parallel()
	db := newDB(t)
	exec(t, db, gateSQL)
	a, _ := known(t, db)
	exec(t, db, `UPDATE leadership SET expires_at = now()`)
	eventually(t, "an upsert is refused", func() bool {
		err := a.Upsert(within(t), bridgeStatus, status{"LP-1", "DOWN"})
		if err != nil {
			wantFenced(t, err)
		}
		return err != nil
	})
}

// P8: where somebody has changed a session's lock_timeout, an upsert of the next second sets it again.
func TestUpsertSetsTheLockTimeoutOfItsOwnSessionAgain(t *testing.T) {
	t.Parallel()
	db := newDB(t)
	exec(t, db, gateSQL)
	a, pool := known(t, db)
	for _, sql := range []string{`SET lock_timeout = 0`, `RESET ALL`} {
		exec(t, pool, sql)
		eventually(t, "lock_timeout is set after "+sql, func() bool {
			wantNoError(t, a.Upsert(within(t), bridgeStatus, status{"LP-1", "UP"}))
			return value[string](t, pool, `SELECT current_setting('lock_timeout')`) == "500ms"
		})
	}
}

// Each call has its own context, whatever was kept of the one before.
func TestUpsertKeepsToItsOwnContext(t *testing.T) {
	t.Parallel()
	db := newDB(t)
	a := takeOver(t, db, "a")
	upsert := func(ctx context.Context) error { return a.Upsert(ctx, bridgeStatus, status{"LP-1", "UP"}) }
	first, cancel := context.WithCancel(within(t))
	wantNoError(t, upsert(first))
	wantNoError(t, upsert(first))
	cancel()
	if err := upsert(first); !errors.Is(err, context.Canceled) {
		t.Errorf("a cancelled context: got %v", err)
	}
	wantNoError(t, upsert(within(t)))
	wantNoError(t, upsert(uncomparable{within(t), nil}))
	wantNoError(t, upsert(uncomparable{within(t), nil}))
}

// uncomparable panics where it is compared.
type uncomparable struct {
	context.Context
	_ []int
}
