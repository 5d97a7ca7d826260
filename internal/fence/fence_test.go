package fence_test

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"

	"rota/internal/fence"
)

var day = time.Date(2026, 3, 1, 0, 0, 0, 0, time.UTC)

// forms are the ways of writing through the fence. LP-1 is a row that the successor, where there is
// one, has written; LP-2 one that it has not; LP-new is no row yet.
var forms = []struct {
	name  string
	write func(ctx context.Context, w *fence.Writer) error
}{
	{"touched row", func(ctx context.Context, w *fence.Writer) error {
		return w.Upsert(ctx, bridgeStatus, status{"LP-1", "DOWN"})
	}},
	{"untouched row", func(ctx context.Context, w *fence.Writer) error {
		return w.Upsert(ctx, bridgeStatus, &status{"LP-2", "DOWN"})
	}},
	{"new row", func(ctx context.Context, w *fence.Writer) error {
		return w.Upsert(ctx, bridgeStatus, status{"LP-new", "DOWN"})
	}},
	{"many rows", func(ctx context.Context, w *fence.Writer) error {
		return w.Upsert(ctx, bridgeStatus, []status{{"LP-new-1", "DOWN"}, {"LP-2", "DOWN"}, {"LP-new-2", "DOWN"}})
	}},
	{"partitioned table", func(ctx context.Context, w *fence.Writer) error {
		return w.Upsert(ctx, readings, []*reading{{"LP-2", day, nil}, {"LP-2", day.AddDate(5, 0, 0), nil}})
	}},
	{"large table", func(ctx context.Context, w *fence.Writer) error {
		return w.Upsert(ctx, prices, []price{{"EURUSD", 7}, {"new", 7}})
	}},
	{"untouched row of a large table", func(ctx context.Context, w *fence.Writer) error {
		return w.Upsert(ctx, prices, price{"USDJPY", 7})
	}},
	{"large partitioned table", func(ctx context.Context, w *fence.Writer) error {
		return w.Upsert(ctx, ticks, []tick{{"EURUSD", day, 7}, {"EURUSD", day.AddDate(5, 0, 0), 7}})
	}},
	{"Tx insert into a large table", func(ctx context.Context, w *fence.Writer) error {
		return w.Tx(ctx, func(tx pgx.Tx) error {
			_, err := tx.Exec(ctx, `INSERT INTO prices VALUES ('tx', 7, $1)`, w.Epoch())
			return err
		})
	}},
	{"Tx update of a large table that says nothing of the epoch", func(ctx context.Context, w *fence.Writer) error {
		return w.Tx(ctx, func(tx pgx.Tx) error {
			_, err := tx.Exec(ctx, `UPDATE prices SET bid = 7`)
			return err
		})
	}},
	{"Tx update", func(ctx context.Context, w *fence.Writer) error {
		return w.Tx(ctx, func(tx pgx.Tx) error {
			_, err := tx.Exec(ctx, `UPDATE bridge_status SET health = 'DOWN' WHERE bridge_id = 'LP-2'`)
			return err
		})
	}},
	{"Tx insert", func(ctx context.Context, w *fence.Writer) error {
		return w.Tx(ctx, func(tx pgx.Tx) error {
			_, err := tx.Exec(ctx, `INSERT INTO bridge_status (bridge_id, health, epoch) VALUES ('LP-tx', 'DOWN', $1)`, w.Epoch())
			return err
		})
	}},
	{"Tx with an old epoch on a raised row", func(ctx context.Context, w *fence.Writer) error {
		return w.Tx(ctx, func(tx pgx.Tx) error {
			_, err := tx.Exec(ctx, `UPDATE bridge_status SET health = 'DOWN', epoch = $1 WHERE bridge_id = 'LP-1'`, w.Epoch())
			return err
		})
	}},
}

// everything is the content of the protected tables.
const everythingSQL = `
SELECT coalesce(string_agg(r, E'\n' ORDER BY r), '')
  FROM (SELECT s::text AS r FROM bridge_status s UNION ALL SELECT v::text FROM readings v
        UNION ALL SELECT p::text FROM prices p UNION ALL SELECT k::text FROM ticks k) AS rows`

// seed writes the rows that the forms find.
func (l *leader) seed(t testing.TB) {
	t.Helper()
	wantNoError(t, l.Upsert(within(t), bridgeStatus, []status{{"LP-1", "UP"}, {"LP-2", "UP"}}))
	wantNoError(t, l.Upsert(within(t), prices, []price{{"EURUSD", 1}, {"USDJPY", 1}}))
	wantNoError(t, l.Upsert(within(t), ticks, tick{"EURUSD", day, 1}))
}

// P3, the other half: whoever leads may write in every form.
func TestLeaderWritesInEveryForm(t *testing.T) {
	t.Parallel()
	for _, form := range forms {
		t.Run(form.name, func(t *testing.T) {
			t.Parallel()
			db := newDB(t)
			a := takeOver(t, db, "a")
			a.seed(t)
			before := value[string](t, db, everythingSQL)
			wantNoError(t, form.write(within(t), a.Writer))
			if value[string](t, db, everythingSQL) == before {
				t.Error("nothing was written")
			}
			if a.term.Err() != nil || a.Refused() != 0 {
				t.Errorf("the term ended by %v after %d refusals", context.Cause(a.term), a.Refused())
			}
		})
	}
}

// P3: refused is every form, before the successor has written anything, after it has raised, and
// after it has written.
func TestFormerLeaderIsRefusedInEveryForm(t *testing.T) {
	t.Parallel()
	for _, form := range forms {
		t.Run(form.name, func(t *testing.T) {
			t.Parallel()
			db := newDB(t)
			a := takeOver(t, db, "a")
			a.seed(t)
			refused := func(when string) {
				t.Helper()
				before := value[string](t, db, everythingSQL)
				late := a.again(t, db)
				wantFenced(t, form.write(within(t), late.Writer))
				if !errors.Is(context.Cause(late.term), fence.ErrFenced) {
					t.Errorf("%s: the term's cause is %v, want ErrFenced", when, context.Cause(late.term))
				}
				if late.Refused() != 1 {
					t.Errorf("%s: %d refusals counted, want 1", when, late.Refused())
				}
				if after := value[string](t, db, everythingSQL); after != before {
					t.Errorf("%s: rows changed from\n%s\nto\n%s", when, before, after)
				}
			}
			b := takeOver(t, db, "b")
			refused("before the raise")
			b.raise(t, db)
			refused("after the raise")
			wantNoError(t, b.Upsert(within(t), bridgeStatus, status{"LP-1", "UP"}))
			wantNoError(t, b.Upsert(within(t), prices, price{"EURUSD", 1}))
			refused("after a write")
		})
	}
}

// P3, P5: a lease that has run out is refused before anybody has taken it.
func TestExpiredLeaseIsRefusedThoughNobodyHasTakenIt(t *testing.T) {
	t.Parallel()
	db := newDB(t)
	a := takeOver(t, db, "a")
	exec(t, db, `UPDATE leadership SET expires_at = clock_timestamp()`)
	for _, form := range forms {
		wantFenced(t, form.write(within(t), a.again(t, db).Writer))
	}
}

// P2, P3: the epoch alone is not enough: another owner's term is not ours.
func TestAnotherOwnersTokenIsRefused(t *testing.T) {
	t.Parallel()
	db := newDB(t)
	a := takeOver(t, db, "a")
	a.token.Owner = "z"
	wantFenced(t, a.again(t, db).Upsert(within(t), bridgeStatus, status{"LP-1", "UP"}))
	a.token.Owner, a.token.Lease = "a", "symbol_sync"
	wantFenced(t, a.again(t, db).Upsert(within(t), bridgeStatus, status{"LP-1", "UP"}))
}

// P3: a row of a higher epoch refuses even the holder of the lease, all rows with it.
func TestRowOfAHigherEpochRefusesTheWholeUpsert(t *testing.T) {
	t.Parallel()
	db := newDB(t)
	a := takeOver(t, db, "a")
	exec(t, db, `INSERT INTO bridge_status VALUES ('LP-2', 'UP', now(), 50)`)
	wantFenced(t, a.Upsert(within(t), bridgeStatus, []status{{"LP-1", "DOWN"}, {"LP-2", "DOWN"}, {"LP-3", "DOWN"}}))
	if n := value[int](t, db, `SELECT count(*) FROM bridge_status WHERE health = 'DOWN'`); n != 0 {
		t.Errorf("%d rows were written", n)
	}
}

// P5: refused means over: the term ends by the first refusal, and no further call asks the database.
func TestRefusedMeansOver(t *testing.T) {
	t.Parallel()
	db := newDB(t)
	reg := prometheus.NewRegistry()
	metrics := fence.NewMetrics(reg, lease, "symbol_sync")
	if n := testutil.CollectAndCount(reg); n != 2 {
		t.Errorf("%d series exist at the start, want one for each job", n)
	}
	a := takeOver(t, db, "a")
	a.Count(metrics.Of(lease))
	takeOver(t, db, "b")
	wantFenced(t, a.Upsert(within(t), bridgeStatus, status{"LP-1", "DOWN"}))
	// Even if it were allowed again, the writer asks no more.
	exec(t, db, `UPDATE leadership SET owner = 'a', epoch = $1`, a.token.Epoch)
	wantFenced(t, a.Upsert(within(t), bridgeStatus, status{"LP-1", "DOWN"}))
	wantFenced(t, a.Upsert(within(t), bridgeStatus, []status{}))
	wantFenced(t, a.Tx(within(t), func(pgx.Tx) error { t.Error("the function was called"); return nil }))
	if n := value[int](t, db, `SELECT count(*) FROM bridge_status`); n != 0 {
		t.Errorf("%d rows were written", n)
	}
	if a.Refused() != 4 || testutil.ToFloat64(metrics.Of(lease)) != 4 {
		t.Errorf("counted %d and %v refusals, want 4", a.Refused(), testutil.ToFloat64(metrics.Of(lease)))
	}
}

// P5: once its term's context is done the writer refuses by itself, and says why the term ended.
func TestWriterRefusesOnceItsTermHasEnded(t *testing.T) {
	t.Parallel()
	db := newDB(t)
	a := takeOver(t, db, "a")
	deadline := errors.New("the deadline passed")
	a.end(deadline)
	err := a.Upsert(within(t), bridgeStatus, status{"LP-1", "UP"})
	wantFenced(t, err)
	if !errors.Is(err, deadline) {
		t.Errorf("got %v, want the term's cause in it", err)
	}
	wantFenced(t, a.Tx(within(t), func(pgx.Tx) error { return nil }))
}

// The article's own upsert, by hand, as a program without the helper would send it.
const articleSQL = `
INSERT INTO bridge_status (bridge_id, health, checked_at, epoch)
VALUES ('LP-3', 'DOWN', now(), 7)
ON CONFLICT (bridge_id) DO UPDATE
   SET health     = EXCLUDED.health,
       checked_at = EXCLUDED.checked_at,
       epoch      = EXCLUDED.epoch
 WHERE bridge_status.epoch <= EXCLUDED.epoch`

// P3, P4: after the raise the article's statement changes 0 rows.
func TestArticlesUpsertWithAnOldEpochChangesNothing(t *testing.T) {
	t.Parallel()
	db := newDB(t)
	exec(t, db, `INSERT INTO leadership VALUES ('bridge_health', 'z', now(), 6)`)
	a := takeOver(t, db, "a") // epoch 7
	if n := exec(t, db, articleSQL); n != 1 {
		t.Fatalf("while a leads it changed %d rows, want 1", n)
	}
	wantNoError(t, a.Upsert(within(t), bridgeStatus, status{"LP-3", "UP"}))
	takeOver(t, db, "b").raise(t, db)
	if n := exec(t, db, articleSQL); n != 0 {
		t.Errorf("it changed %d rows, want 0", n)
	}
}

// P3: a program that bypasses the fence cannot lower an epoch.
func TestProtectedTableRefusesToLowerAnEpoch(t *testing.T) {
	t.Parallel()
	db := newDB(t)
	a := takeOver(t, db, "a")
	wantNoError(t, a.Upsert(within(t), bridgeStatus, status{"LP-1", "UP"}))
	wantNoError(t, a.Upsert(within(t), readings, reading{"LP-1", day, nil}))
	for _, table := range []string{"bridge_status", "readings"} {
		_, err := db.Exec(within(t), `UPDATE `+table+` SET epoch = epoch - 1`)
		if !hasCode(err, fence.Refusal) {
			t.Errorf("%s: got %v, want %s", table, err, fence.Refusal)
		}
		exec(t, db, `SELECT fence_protect($1::regclass)`, table) // once more is no error
		exec(t, db, `UPDATE `+table+` SET epoch = epoch + 1`)
	}
	exec(t, db, `CREATE TABLE odd (id int PRIMARY KEY, epoch int)`)
	if _, err := db.Exec(within(t), `SELECT fence_protect('odd')`); err == nil {
		t.Error("an epoch column that is no bigint was accepted")
	}
}

var execModes = []pgx.QueryExecMode{
	pgx.QueryExecModeCacheStatement, pgx.QueryExecModeCacheDescribe, pgx.QueryExecModeDescribeExec,
	pgx.QueryExecModeExec, pgx.QueryExecModeSimpleProtocol,
}

// Every exec mode that a pooler may need writes the same.
func TestEveryExecModeWrites(t *testing.T) {
	t.Parallel()
	db := newDB(t)
	takeOver(t, db, "a")
	for _, mode := range execModes {
		t.Run(mode.String(), func(t *testing.T) {
			pool := poolOn(t, db.Config().ConnString(), func(cfg *pgxpool.Config) {
				cfg.ConnConfig.DefaultQueryExecMode = mode
			})
			a := takeOver(t, pool, mode.String())
			a.raise(t, pool)
			for _, form := range forms {
				wantNoError(t, form.write(within(t), a.Writer))
			}
			exec(t, db, `DELETE FROM bridge_status WHERE bridge_id = 'LP-tx'`)
			exec(t, db, `DELETE FROM prices WHERE symbol = 'tx'`)
			takeOver(t, pool, "z")
			for _, form := range forms {
				wantFenced(t, form.write(within(t), a.again(t, pool).Writer))
			}
		})
	}
}
