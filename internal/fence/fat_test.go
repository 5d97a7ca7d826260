package fence_test

import (
	"context"
	"fmt"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
)

// fatSQL makes each renewal of a lease leave its page for a while: the new version has a value that
// goes to a table of its own first. Whoever locks the row FOR KEY SHARE just then is forgotten by
// PostgreSQL once the renewal goes on.
const fatSQL = `
ALTER TABLE leadership ADD pad text NOT NULL DEFAULT '';
ALTER TABLE leadership ALTER pad SET STORAGE EXTERNAL;
CREATE FUNCTION fatten() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    NEW.pad := repeat(random()::text, 2000);
    RETURN NEW;
END $$;
CREATE TRIGGER fatten BEFORE UPDATE ON leadership FOR EACH ROW WHEN (NEW.epoch = OLD.epoch) EXECUTE FUNCTION fatten();`

const padSQL = `SELECT reltoastrelid::regclass::text FROM pg_class WHERE oid = 'leadership'::regclass`

// P3: a takeover waits for the fenced writes that began in the midst of a renewal.
func TestTakeoverWaitsForAWriteThatBeganDuringARenewal(t *testing.T) {
	t.Parallel()
	for _, form := range forms {
		t.Run(form.name, func(t *testing.T) {
			t.Parallel()
			db := newDB(t)
			exec(t, db, gateSQL)
			exec(t, db, fatSQL)
			a := takeOver(t, db, "a")
			a.seed(t)
			exec(t, db, holdSQL)

			holder, err := db.Begin(within(t))
			if err != nil {
				t.Fatal(err)
			}
			defer func() { _ = holder.Rollback(context.Background()) }()
			if _, err := holder.Exec(within(t), `REINDEX TABLE `+value[string](t, db, padSQL)); err != nil {
				t.Fatal(err)
			}
			renewed := make(chan error, 1)
			go func() {
				tag, err := db.Exec(within(t), renewSQL, lease)
				if err == nil && tag.RowsAffected() != 1 {
					err = fmt.Errorf("%d leases renewed", tag.RowsAffected())
				}
				renewed <- err
			}()
			eventually(t, "the renewal is under way", func() bool { return waiting(t, db) == 1 })
			open := closeGate(t, db, 2)
			written := atGate(t, db, func() error { return form.write(within(t), a.Writer) })
			wantNoError(t, holder.Rollback(within(t)))
			wantNoError(t, <-renewed)

			taken := make(chan error, 1)
			go func() {
				_, err := db.Exec(within(t), takeOverSQL, lease, "b")
				taken <- err
			}()
			eventually(t, "the takeover waits, or is done", func() bool { return waiting(t, db) == 1 || len(taken) == 1 })
			if len(taken) == 1 {
				t.Error("the takeover did not wait")
			}
			open()
			wantNoError(t, <-written)
			wantNoError(t, <-taken)
			wantFenced(t, a.Upsert(within(t), bridgeStatus, status{"LP-1", "DOWN"}))
		})
	}
}

// P3: the same at random, with takeovers as often as can be.
func TestNoWriteIsAcceptedAfterATakeoverHoweverRenewalsGo(t *testing.T) {
	t.Parallel()
	s := newStress(t)
	exec(t, s.db, fatSQL)
	s.forms, s.raises = []string{"insert", "large", "Tx insert", "Tx without epoch"}, false
	if n := s.run(4*time.Second, false); n > 0 {
		t.Errorf("%d writes were accepted after a takeover to a later epoch:\n%s", n, s.violations())
	}
	t.Logf("%d takeovers, %d refused", value[int](t, s.db, `SELECT count(*) FROM takeovers`), s.refused.Load())
}

// P2, P3: a database that leads already is brought to this schema with its terms, and back.
func TestLeasesOfAnOlderSchemaKeepTheirEpochs(t *testing.T) {
	t.Parallel()
	epochsUp, epochsDown := migration(t, "00009_lease_epochs.sql")
	ownersUp, ownersDown := migration(t, "00019_lease_owners.sql")
	db := newDB(t)
	exec(t, db, ownersDown)
	exec(t, db, epochsDown)
	exec(t, db, `INSERT INTO leadership VALUES ('symbol_sync', '', now(), 0)`)
	takeOver(t, db, "z")
	a := takeOver(t, db, "a")
	exec(t, db, epochsUp)
	exec(t, db, ownersUp)
	wantNoError(t, a.Upsert(within(t), bridgeStatus, status{"LP-1", "UP"}))
	wantNoError(t, a.Tx(within(t), func(tx pgx.Tx) error { return insert(within(t), tx, "LP-2", a) }))
	takeOver(t, db, "b")
	wantFenced(t, a.again(t, db).Upsert(within(t), bridgeStatus, status{"LP-1", "UP"}))
	if n := value[int](t, db, `SELECT count(*) FROM leadership l JOIN lease_epochs USING (job_name, epoch, owner)`); n != 2 {
		t.Errorf("%d leases have their epoch, want 2", n)
	}
}

// P8: who reads the epochs for long, as a dump does, keeps them from being migrated and not the leases
// from being renewed.
func TestMigrationOfEpochsInUseGivesUp(t *testing.T) {
	t.Parallel()
	up, down := migration(t, "00019_lease_owners.sql")
	for name, sql := range map[string]string{"up": up, "down": down} {
		db := newDB(t)
		takeOver(t, db, "a")
		if name == "up" {
			exec(t, db, down)
		}
		dump, err := db.Begin(within(t))
		if err != nil {
			t.Fatal(err)
		}
		defer func() { _ = dump.Rollback(context.Background()) }()
		if _, err := dump.Exec(within(t), `SELECT FROM lease_epochs`); err != nil {
			t.Fatal(err)
		}
		if _, err := db.Exec(within(t), sql); !hasCode(err, "55P03") || !strings.Contains(err.Error(), "migrate again") {
			t.Errorf("%s: got %v, want that it gives up, and says what to do", name, err)
		}
		if n := exec(t, db, renewSQL, lease); n != 1 {
			t.Errorf("%s: %d leases renewed after it, want 1", name, n)
		}
		wantNoError(t, dump.Rollback(within(t)))
		exec(t, db, sql)
	}
}

// migration reads what a migration does and how it is undone.
func migration(t testing.TB, name string) (up, down string) {
	t.Helper()
	file, err := os.ReadFile("../../migrations/" + name)
	if err != nil {
		t.Fatal(err)
	}
	up, down, _ = strings.Cut(string(file), "-- +goose Down")
	return up, down
}

// What fenced writes lock is only ever updated by a change of key, for any other update may lose its
// locks: one that changes nothing is none.
func TestWhatFencedWritesLockChangesItsKeyOrNothing(t *testing.T) {
	t.Parallel()
	db := newDB(t)
	takeOver(t, db, "a")
	for _, table := range []string{"lease_epochs", "fence_watermarks"} {
		if n := exec(t, db, `UPDATE `+table+` SET epoch = epoch`); n != 0 {
			t.Errorf("%s: %d rows were updated with the epoch that they have", table, n)
		}
		unkeyed := value[string](t, db, `SELECT coalesce(string_agg(attname, ' '), '') FROM pg_attribute
			WHERE attrelid = $1::regclass AND attnum > 0 AND attname <> ALL (ARRAY(
				SELECT a.attname FROM pg_index i JOIN pg_attribute a ON a.attrelid = i.indrelid AND a.attnum = ANY (i.indkey)
				 WHERE i.indrelid = $1::regclass AND i.indisunique AND i.indimmediate AND i.indpred IS NULL AND i.indexprs IS NULL))`, table)
		if unkeyed != "" {
			t.Errorf("%s: no key has %s", table, unkeyed)
		}
	}
}
