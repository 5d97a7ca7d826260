package fence_test

import (
	"context"
	"sync"
	"testing"

	"github.com/jackc/pgx/v5/pgxpool"

	"rota/internal/fence"
)

// gateSQL makes what calls gate(n) wait as long as the test holds advisory lock n. It polls, for
// lock_timeout would cut a wait for the lock itself short; while it waits, the session sleeps.
//
// The schema stretch has a clock_timestamp() of its own that passes a gate. With stretch before
// pg_catalog on the search path, the product's own statements stop between taking their snapshot,
// which a statement does first of all, and locking the lease row.
const gateSQL = `
CREATE FUNCTION gate(n int) RETURNS void LANGUAGE plpgsql VOLATILE AS $$
BEGIN
    WHILE NOT pg_try_advisory_xact_lock_shared(n) LOOP PERFORM pg_sleep(0.002); END LOOP;
END $$;
CREATE SCHEMA stretch;
CREATE FUNCTION stretch.clock_timestamp() RETURNS timestamptz LANGUAGE plpgsql VOLATILE AS $$
BEGIN
    PERFORM desk.gate(1);
    RETURN pg_catalog.clock_timestamp();
END $$;`

// stretched is a pool whose fenced writes stop at gate 1 between their snapshot and their lock.
func stretched(t testing.TB, db *pgxpool.Pool) *pgxpool.Pool {
	t.Helper()
	return poolOn(t, db.Config().ConnString(), func(cfg *pgxpool.Config) {
		cfg.ConnConfig.RuntimeParams["search_path"] = "stretch, pg_catalog, desk, public"
		cfg.AfterConnect = fence.Prepare
	})
}

// closeGate holds gate n shut until open is called.
func closeGate(t testing.TB, db *pgxpool.Pool, n int) (open func()) {
	t.Helper()
	conn, err := db.Acquire(within(t))
	if err != nil {
		t.Fatal(err)
	}
	if _, err := conn.Exec(within(t), `SELECT pg_advisory_lock($1)`, n); err != nil {
		t.Fatal(err)
	}
	open = sync.OnceFunc(func() {
		if _, err := conn.Exec(context.Background(), `SELECT pg_advisory_unlock($1)`, n); err != nil {
			t.Error(err)
		}
		conn.Release()
	})
	t.Cleanup(open)
	return open
}

// atGate starts something and returns once it waits at a gate.
func atGate(t testing.TB, db *pgxpool.Pool, f func() error) (result <-chan error) {
	t.Helper()
	done := make(chan error, 1)
	go func() { done <- f() }()
	eventually(t, "the write is at the gate", func() bool { return asleep(db) > 0 })
	return done
}

const renewSQL = `
UPDATE leadership SET expires_at = clock_timestamp() + '1 hour'
 WHERE job_name IN (SELECT job_name FROM leadership WHERE job_name = $1 FOR NO KEY UPDATE SKIP LOCKED)`

// P3: a takeover that commits between a statement's snapshot and its lock refuses the statement.
// The snapshot still shows the old term's lease, and rows that are not raised.
func TestTakeoverBetweenSnapshotAndLockRefusesTheWrite(t *testing.T) {
	t.Parallel()
	for _, form := range forms {
		t.Run(form.name, func(t *testing.T) {
			t.Parallel()
			db := newDB(t)
			exec(t, db, gateSQL)
			a := takeOver(t, db, "a")
			a.seed(t)

			open := closeGate(t, db, 1)
			late := a.again(t, stretched(t, db))
			written := atGate(t, db, func() error { return form.write(within(t), late.Writer) })
			// A renewal and a release in between change no key, and must not hide what follows.
			exec(t, db, renewSQL, lease)
			exec(t, db, `UPDATE leadership SET expires_at = clock_timestamp() - interval '1 second'`)
			b := takeOver(t, db, "b")
			if _, err := fence.Raise(within(t), db, b.token, fence.Shard{}, readings); err != nil {
				t.Fatal(err)
			}
			before := value[string](t, db, everythingSQL)
			open()
			wantFenced(t, <-written)
			if after := value[string](t, db, everythingSQL); after != before {
				t.Errorf("rows changed from %q to %q", before, after)
			}
		})
	}
}

// lockOnlySQL is the design that looks as good and is not: instead of an index that makes the epoch
// part of a key, a trigger locks the new row as strongly as a change of key would. Takeovers do
// wait for writes under way then; but to a statement whose snapshot is older the former row looks
// as if no key had changed, so that it may be locked as it was.
const lockOnlySQL = `
DROP INDEX lease_epochs_term;
CREATE FUNCTION lock_only() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    PERFORM 1 FROM public.lease_epochs WHERE job_name = NEW.job_name FOR UPDATE;
    RETURN NULL;
END $$;
CREATE TRIGGER lock_only AFTER UPDATE ON lease_epochs FOR EACH ROW EXECUTE FUNCTION lock_only();`

// The interleaving above, with a trigger that merely locks: the stale insert is accepted after the
// takeover and the raise. This is why a change of epoch must be a change of key.
func TestTriggerThatMerelyLocksAcceptsAStaleInsert(t *testing.T) {
	t.Parallel()
	db := newDB(t)
	exec(t, db, gateSQL)
	exec(t, db, lockOnlySQL)
	a := takeOver(t, db, "a")

	open := closeGate(t, db, 1)
	late := a.again(t, stretched(t, db))
	written := atGate(t, db, func() error {
		return late.Upsert(within(t), bridgeStatus, status{"LP-new", "DOWN"})
	})
	b := takeOver(t, db, "b")
	b.raise(t, db)
	open()
	wantNoError(t, <-written)
	if epoch := value[int64](t, db, `SELECT epoch FROM bridge_status`); epoch >= b.token.Epoch {
		t.Errorf("the row has epoch %d, want the former one: this test no longer shows what it should", epoch)
	}
}

// holdSQL makes each write pass gate 2. Deferred, so that a Tx has passed its guard when it gets there.
const holdSQL = `
CREATE FUNCTION hold() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN PERFORM gate(2); RETURN NULL; END $$;
CREATE CONSTRAINT TRIGGER hold AFTER INSERT OR UPDATE ON bridge_status
    DEFERRABLE INITIALLY DEFERRED FOR EACH ROW EXECUTE FUNCTION hold();
CREATE CONSTRAINT TRIGGER hold AFTER INSERT OR UPDATE ON readings
    DEFERRABLE INITIALLY DEFERRED FOR EACH ROW EXECUTE FUNCTION hold();
CREATE CONSTRAINT TRIGGER hold AFTER INSERT OR UPDATE ON prices
    DEFERRABLE INITIALLY DEFERRED FOR EACH ROW EXECUTE FUNCTION hold();
CREATE CONSTRAINT TRIGGER hold AFTER INSERT OR UPDATE ON ticks
    DEFERRABLE INITIALLY DEFERRED FOR EACH ROW EXECUTE FUNCTION hold();`

// waiting is how many sessions of the database wait for a lock.
func waiting(t testing.TB, db *pgxpool.Pool) int {
	t.Helper()
	return value[int](t, db, `SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() AND wait_event_type = 'Lock'`)
}

// P3: a takeover waits for a fenced write that is under way, and every later one is refused; a
// renewal does not wait.
func TestTakeoverWaitsForAWriteUnderWayAndARenewalDoesNot(t *testing.T) {
	t.Parallel()
	for _, form := range forms {
		t.Run(form.name, func(t *testing.T) {
			t.Parallel()
			db := newDB(t)
			exec(t, db, gateSQL)
			a := takeOver(t, db, "a")
			a.seed(t)
			exec(t, db, holdSQL)
			open := closeGate(t, db, 2)
			written := atGate(t, db, func() error { return form.write(within(t), a.Writer) })

			if n := exec(t, db, renewSQL, lease); n != 1 {
				t.Errorf("the renewal skipped the lease as locked")
			}
			taken := make(chan error, 1)
			go func() {
				_, err := db.Exec(within(t), takeOverSQL, lease, "b")
				taken <- err
			}()
			eventually(t, "the takeover waits", func() bool { return waiting(t, db) > 0 })
			select {
			case err := <-taken:
				t.Errorf("the takeover did not wait (%v)", err)
			default:
			}
			open()
			wantNoError(t, <-written)
			wantNoError(t, <-taken)
			wantFenced(t, a.Upsert(within(t), bridgeStatus, status{"LP-1", "DOWN"}))
		})
	}
}

// A write that waits for somebody's row lets the lease go after half a second.
func TestWriteThatWaitsForARowGivesUp(t *testing.T) {
	t.Parallel()
	db := newDB(t)
	a := takeOver(t, db, "a")
	wantNoError(t, a.Upsert(within(t), bridgeStatus, status{"LP-1", "UP"}))
	holder, err := db.Begin(within(t))
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = holder.Rollback(context.Background()) }()
	if _, err := holder.Exec(within(t), `SELECT FROM bridge_status FOR UPDATE`); err != nil {
		t.Fatal(err)
	}
	err = a.Upsert(within(t), bridgeStatus, status{"LP-1", "DOWN"})
	if !hasCode(err, "55P03") || a.term.Err() != nil {
		t.Errorf("got %v, want a lock timeout, and the term goes on", err)
	}
}
