package fence_test

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"rota/internal/fence"
)

// stressSQL makes every accepted write leave a line in a log that is only appended to, in the same
// transaction. The raise, which changes nothing but the epoch, leaves none.
//
// A takeover notes the snapshot that it sees once it holds the lease row: every write of an earlier
// term that is ever accepted must be visible in it, for a write that committed later did so without
// the lock. This needs no clock, and no order of arrival.
//
// The sleeps stretch the two windows that matter: from a statement's snapshot to its lock, and from
// its lock to its commit.
const stressSQL = `
CREATE TABLE accepted (form text NOT NULL, epoch bigint NOT NULL, xid xid8 NOT NULL DEFAULT pg_current_xact_id());
CREATE TABLE takeovers (epoch bigint PRIMARY KEY, seen pg_snapshot NOT NULL);
CREATE TABLE raises (epoch bigint PRIMARY KEY, seen pg_snapshot NOT NULL);
CREATE FUNCTION log_accepted() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    INSERT INTO desk.accepted VALUES (NEW.form, NEW.epoch);
    PERFORM pg_sleep(random() * 0.002);
    RETURN NULL;
END $$;
ALTER TABLE bridge_status ADD COLUMN form text NOT NULL DEFAULT '';
ALTER TABLE readings ADD COLUMN form text NOT NULL DEFAULT '';
ALTER TABLE prices ADD COLUMN form text NOT NULL DEFAULT '';
CREATE TRIGGER log_insert AFTER INSERT ON bridge_status FOR EACH ROW EXECUTE FUNCTION log_accepted();
CREATE TRIGGER log_update AFTER UPDATE ON bridge_status FOR EACH ROW WHEN (NEW.health <> OLD.health) EXECUTE FUNCTION log_accepted();
CREATE TRIGGER log_insert AFTER INSERT ON readings FOR EACH ROW EXECUTE FUNCTION log_accepted();
CREATE TRIGGER log_update AFTER UPDATE ON readings FOR EACH ROW WHEN (NEW.value <> OLD.value) EXECUTE FUNCTION log_accepted();
CREATE TRIGGER log_insert AFTER INSERT ON prices FOR EACH ROW EXECUTE FUNCTION log_accepted();
CREATE TRIGGER log_update AFTER UPDATE ON prices FOR EACH ROW WHEN (NEW.bid <> OLD.bid) EXECUTE FUNCTION log_accepted();
CREATE SCHEMA stretch;
CREATE FUNCTION stretch.clock_timestamp() RETURNS timestamptz LANGUAGE plpgsql VOLATILE AS $$
BEGIN
    PERFORM pg_sleep(random() * 0.003);
    RETURN pg_catalog.clock_timestamp();
END $$;`

// violationsSQL counts accepted writes that a takeover to a later epoch did not wait for. Those by
// hand, to a large table, are refused from the raise on, whose snapshot is taken once it has returned.
const violationsSQL = `
SELECT count(*) FROM accepted a
  JOIN (SELECT epoch, seen, false AS raised FROM takeovers UNION ALL SELECT epoch, seen, true FROM raises) AS t
    ON t.epoch > a.epoch AND (a.form <> 'by hand' OR t.raised)
 WHERE NOT pg_visible_in_snapshot(a.xid, t.seen)`

// noted is a row of either table, with what the log needs.
type noted struct {
	Bridge string `db:"bridge_id"`
	Form   string `db:"form"`
	Health string `db:"health"`
}

type notedReading struct {
	Bridge string    `db:"bridge_id"`
	Day    time.Time `db:"day"`
	Form   string    `db:"form"`
	Value  int       `db:"value"`
}

type notedPrice struct {
	Symbol string `db:"symbol"`
	Form   string `db:"form"`
	Bid    int    `db:"bid"`
}

// byHandSQL is the article's upsert.
const byHandSQL = `
INSERT INTO prices (symbol, bid, form, epoch) SELECT s, $2, 'by hand', $3 FROM unnest($1::text[]) AS s WHERE clock_timestamp() IS NOT NULL
ON CONFLICT (symbol) DO UPDATE SET bid = EXCLUDED.bid, form = EXCLUDED.form, epoch = EXCLUDED.epoch
 WHERE prices.epoch <= EXCLUDED.epoch`

var serial atomic.Int64 // makes every write a change

func unique() string { return fmt.Sprint(serial.Add(1)) }

func anyBridge() string { return fmt.Sprintf("LP-%d", rand.IntN(30)) }

// stressForms write at random; every write is new in some column.
var stressForms = map[string]func(ctx context.Context, db *pgxpool.Pool, w *fence.Writer) error{
	"insert": func(ctx context.Context, _ *pgxpool.Pool, w *fence.Writer) error {
		return w.Upsert(ctx, bridgeStatus, noted{"new-" + unique(), "insert", "UP"})
	},
	"upsert": func(ctx context.Context, _ *pgxpool.Pool, w *fence.Writer) error {
		return w.Upsert(ctx, bridgeStatus, noted{anyBridge(), "upsert", unique()})
	},
	"multi-row": func(ctx context.Context, _ *pgxpool.Pool, w *fence.Writer) error {
		rows := []noted{{"new-" + unique(), "multi-row", "UP"}}
		for i := range 3 {
			rows = append(rows, noted{fmt.Sprintf("LP-%d", i*10+rand.IntN(10)), "multi-row", unique()})
		}
		return w.Upsert(ctx, bridgeStatus, rows)
	},
	"partitioned": func(ctx context.Context, _ *pgxpool.Pool, w *fence.Writer) error {
		return w.Upsert(ctx, readings, []notedReading{
			{anyBridge(), day, "partitioned", int(serial.Add(1))},
			{anyBridge(), day.AddDate(2, 0, 0), "partitioned", int(serial.Add(1))},
		})
	},
	"Tx": func(ctx context.Context, _ *pgxpool.Pool, w *fence.Writer) error {
		return w.Tx(ctx, func(tx pgx.Tx) error {
			_, err := tx.Exec(ctx, `UPDATE bridge_status SET health = $1, form = 'Tx', epoch = $2 WHERE bridge_id = $3`,
				unique(), w.Epoch(), anyBridge())
			return err
		})
	},
	"Tx insert": func(ctx context.Context, _ *pgxpool.Pool, w *fence.Writer) error {
		return w.Tx(ctx, func(tx pgx.Tx) error {
			_, err := tx.Exec(ctx, `INSERT INTO bridge_status (bridge_id, health, form, epoch) VALUES ($1, 'UP', 'Tx insert', $2)`,
				"new-"+unique(), w.Epoch())
			return err
		})
	},
	"Tx without epoch": func(ctx context.Context, _ *pgxpool.Pool, w *fence.Writer) error {
		return w.Tx(ctx, func(tx pgx.Tx) error {
			_, err := tx.Exec(ctx, `INSERT INTO accepted VALUES ('Tx without epoch', $1)`, w.Epoch())
			return err
		})
	},
	"large": func(ctx context.Context, _ *pgxpool.Pool, w *fence.Writer) error {
		return w.Upsert(ctx, prices, []notedPrice{
			{anyBridge(), "large", int(serial.Add(1))}, {"new-" + unique(), "large", int(serial.Add(1))},
		})
	},
	"large Tx": func(ctx context.Context, _ *pgxpool.Pool, w *fence.Writer) error {
		return w.Tx(ctx, func(tx pgx.Tx) error {
			_, err := tx.Exec(ctx, `INSERT INTO prices (symbol, bid, form, epoch) VALUES ($1, 1, 'large Tx', $2)`, "new-"+unique(), w.Epoch())
			return err
		})
	},
	"by hand": func(ctx context.Context, db *pgxpool.Pool, w *fence.Writer) error {
		_, err := db.Exec(ctx, byHandSQL, []string{anyBridge(), "new-" + unique()}, serial.Add(1), w.Epoch())
		if hasCode(err, fence.Refusal) {
			return fence.ErrFenced
		}
		return err
	},
}

// A stress is many writers of every form, of current and former terms, against renewals and
// takeovers.
type stress struct {
	t       testing.TB
	db      *pgxpool.Pool // of takeovers and renewals
	writers *pgxpool.Pool
	current atomic.Pointer[fence.Token]
	refused atomic.Int64
	forms   []string // that are written in
	raises  bool     // after a takeover, as life does
}

func newStress(t testing.TB) *stress {
	db := newDB(t)
	exec(t, db, stressSQL)
	exec(t, db, `INSERT INTO bridge_status (bridge_id, health) SELECT 'LP-' || i, 'UP' FROM generate_series(0, 29) i`)
	exec(t, db, `INSERT INTO prices (symbol, bid) SELECT 'LP-' || i, 0 FROM generate_series(0, 29) i`)
	s := &stress{t: t, db: db, writers: stretched(t, db), forms: slices.Collect(maps.Keys(stressForms)), raises: true}
	s.takeOver(within(t))
	return s
}

// run goes on for a while, or until the checker finds something and stopAtFirst is set.
func (s *stress) run(d time.Duration, stopAtFirst bool) (violations int) {
	ctx, cancel := context.WithTimeout(context.Background(), d)
	defer cancel()
	var running sync.WaitGroup
	for _, form := range s.forms {
		for range 2 {
			running.Go(func() { s.write(ctx, stressForms[form]) })
		}
	}
	running.Go(func() {
		for ctx.Err() == nil {
			_, err := s.db.Exec(ctx, renewSQL+` AND expires_at > clock_timestamp()`, lease)
			s.check(ctx, "renew", err)
		}
	})
	running.Go(func() {
		for ctx.Err() == nil {
			s.takeOver(ctx)
			if stopAtFirst && value[int](s.t, s.db, violationsSQL) > 0 {
				cancel()
			}
		}
	})
	running.Wait()
	return value[int](s.t, s.db, violationsSQL)
}

// write uses each term until it is refused, and then a while longer, as a former leader would that
// has not noticed.
func (s *stress) write(ctx context.Context, write func(context.Context, *pgxpool.Pool, *fence.Writer) error) {
	for ctx.Err() == nil {
		token := *s.current.Load()
		for late := 0; late < 3 && ctx.Err() == nil; {
			term, end := context.WithCancelCause(context.Background())
			w := fence.NewWriter(term, end, s.writers, token, fence.Shard{}, protected...)
			var err error
			for err == nil {
				if err = write(ctx, s.writers, w); !errors.Is(err, fence.ErrFenced) && ctx.Err() == nil && isContention(err) {
					err = nil
				}
			}
			end(nil)
			if errors.Is(err, fence.ErrFenced) {
				s.refused.Add(1)
				late++
				continue
			}
			s.check(ctx, "write", err)
		}
	}
}

// isContention says whether a write was undone for a reason that says nothing of its term: a lock
// timeout, a deadlock, or, on a busy machine, a pause of half a second in a transaction.
func isContention(err error) bool {
	return hasCode(err, "55P03") || hasCode(err, "40P01") || hasCode(err, "25P03")
}

func (s *stress) check(ctx context.Context, what string, err error) {
	if err != nil && ctx.Err() == nil {
		s.t.Errorf("%s: %v", what, err)
	}
}

const stressTakeOverSQL = `
UPDATE leadership SET owner = $2, epoch = epoch + 1, expires_at = clock_timestamp() + '1 hour'
 WHERE job_name = $1 RETURNING epoch`

// takeOver is now and then harsher than life: it takes an unexpired lease.
func (s *stress) takeOver(ctx context.Context) {
	token := fence.Token{Lease: lease, Owner: unique()}
	_, err := s.db.Exec(ctx, `INSERT INTO leadership VALUES ($1, '', now(), 0) ON CONFLICT DO NOTHING`, lease)
	if err == nil && rand.IntN(3) > 0 {
		_, err = s.db.Exec(ctx, `UPDATE leadership SET expires_at = now() - interval '1 second' WHERE job_name = $1`, lease)
	}
	if err == nil {
		err = pgx.BeginFunc(ctx, s.db, func(tx pgx.Tx) error {
			if err := tx.QueryRow(ctx, stressTakeOverSQL, lease, token.Owner).Scan(&token.Epoch); err != nil {
				return err
			}
			_, err := tx.Exec(ctx, `INSERT INTO takeovers VALUES ($1, pg_current_snapshot())`, token.Epoch)
			return err
		})
	}
	if err != nil {
		s.check(ctx, "take over", err)
		return
	}
	if rand.IntN(2) == 0 { // else former leaders write before the raise
		s.raise(ctx, token)
		s.current.Store(&token)
		return
	}
	s.current.Store(&token)
	s.raise(ctx, token)
}

func (s *stress) raise(ctx context.Context, token fence.Token) {
	if !s.raises {
		return
	}
	_, err := fence.Raise(ctx, s.db, token, fence.Shard{}, protected...)
	if err == nil {
		_, err = s.db.Exec(ctx, `INSERT INTO raises VALUES ($1, pg_current_snapshot())`, token.Epoch)
	}
	s.check(ctx, "raise", err)
}

// survives runs a stress that must come out clean, again and again until it has shown something: on a
// busy machine a form may not come to its turn.
func survives(t *testing.T, d time.Duration) {
	s := newStress(t)
	for range 10 {
		if n := s.run(d, false); n > 0 {
			t.Errorf("%d writes were accepted after a takeover to a later epoch:\n%s", n, s.violations())
		}
		if len(s.unshown()) == 0 {
			break
		}
	}
	for _, what := range s.unshown() {
		t.Error(what + ": nothing was shown")
	}
	for form := range stressForms {
		t.Logf("%-17s %6d accepted", form, s.accepted(form))
	}
	t.Logf("%d takeovers, %d refused", value[int](t, s.db, `SELECT count(*) FROM takeovers`), s.refused.Load())
}

// violations are the first of what the checker found, with what the takeover saw and what the server did
// to the table of leases meanwhile.
func (s *stress) violations() string {
	return value[string](s.t, s.db, `SELECT string_agg(said, E'\n') FROM (
		SELECT format('%s under epoch %s by transaction %s, before epoch %s, which saw %s', a.form, a.epoch, a.xid, t.epoch, t.seen) AS said
		  FROM accepted a JOIN takeovers t ON t.epoch > a.epoch WHERE NOT pg_visible_in_snapshot(a.xid, t.seen)
		 UNION ALL
		SELECT format('leadership was vacuumed %s times, the last at %s, and analysed %s times, the last at %s; it is %s',
		       autovacuum_count, last_autovacuum, autoanalyze_count, last_autoanalyze, clock_timestamp())
		  FROM pg_stat_user_tables WHERE relname = 'leadership' LIMIT 30) AS v`)
}

func (s *stress) accepted(form string) int {
	return value[int](s.t, s.db, `SELECT count(*) FROM accepted WHERE form = $1`, form)
}

// unshown is what has happened too seldom for a clean run to mean anything.
func (s *stress) unshown() (what []string) {
	for form := range stressForms {
		if s.accepted(form) == 0 {
			what = append(what, form+" was never accepted")
		}
	}
	if n := value[int](s.t, s.db, `SELECT count(*) FROM takeovers`); n < 4 || s.refused.Load() < 4 {
		what = append(what, fmt.Sprintf("%d takeovers and %d refusals are too few", n, s.refused.Load()))
	}
	return what
}

// P3: no accepted write of an epoch after the takeover to a later one, in any form.
func TestNoWriteIsAcceptedAfterATakeover(t *testing.T) {
	t.Parallel()
	survives(t, 3*time.Second)
}

// The checker is worth something: without the index the lock conflicts with nothing, and it finds
// violations.
func TestCheckerFindsWritesThatNoLockHolds(t *testing.T) {
	t.Parallel()
	all := slices.Collect(maps.Keys(stressForms))
	for index, forms := range map[string][]string{
		"lease_epochs_term":                all,
		"fence_watermarks_protected_epoch": {"by hand", "by hand", "by hand", "by hand"}, // all that rests on it alone
	} {
		s := newStress(t)
		s.forms = forms
		exec(t, s.db, `DROP INDEX `+index)
		if n := s.run(patience, true); n == 0 {
			t.Errorf("without %s, after %v it has found none", index, patience)
		}
	}
}
