package fence_test

import (
	"context"
	"net"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"rota/internal/fence"
)

// after is a database in which terms 1 to 7 have passed, the last of them with rows of its own, and
// b leads in term 8: it has raised, and written nothing yet.
func after(t testing.TB) (db *pgxpool.Pool, former, b *leader) {
	t.Helper()
	db = newDB(t)
	exec(t, db, `INSERT INTO leadership VALUES ($1, 'z', now(), 6)`, lease)
	former = takeOver(t, db, "a")
	former.seed(t)
	b = takeOver(t, db, "b")
	b.raise(t, db)
	return db, former, b
}

func watermark(t testing.TB, db *pgxpool.Pool, table string) int64 {
	t.Helper()
	return value[int64](t, db, `SELECT coalesce((SELECT epoch FROM fence_watermarks WHERE protected = $1::regclass), -1)`, table)
}

// staleSQL is what programs that bypass the fence would still send in term 7.
var staleSQL = map[string]string{
	"insert":                       `INSERT INTO prices VALUES ('new', 7, 7)`,
	"insert without an epoch":      `INSERT INTO prices VALUES ('new', 7)`,
	"update":                       `UPDATE prices SET bid = 7, epoch = 7 WHERE symbol = 'USDJPY'`,
	"article's upsert":             `INSERT INTO prices VALUES ('USDJPY', 7, 7) ON CONFLICT (symbol) DO UPDATE SET bid = EXCLUDED.bid, epoch = EXCLUDED.epoch WHERE prices.epoch <= EXCLUDED.epoch`,
	"insert into a partition":      `INSERT INTO ticks_2026 VALUES ('new', '2026-03-02', 7, 7)`,
	"insert into a younger one":    `INSERT INTO ticks_rest VALUES ('new', '2030-03-02', 7, 7)`,
	"update of a partitioned":      `UPDATE ticks SET bid = 7, epoch = 7`,
	"update that moves a row":      `UPDATE ticks SET day = '2030-01-01', epoch = 7`,
	"merge":                        `MERGE INTO prices p USING (VALUES ('USDJPY')) v (symbol) ON p.symbol = v.symbol WHEN MATCHED THEN UPDATE SET bid = 7, epoch = 7`,
	"as many rows as there may be": `INSERT INTO prices SELECT 'new' || i, 7, 7 + i % 2 FROM generate_series(1, 100) i`,
}

// P3, P4: a program that bypasses the fence is refused with its old epoch on a large table, on each
// of its rows, though the successor has raised no row of it, nor written one.
func TestStaleWriteByHandToALargeTableIsRefused(t *testing.T) {
	t.Parallel()
	db, _, b := after(t)
	refused := func(when string) {
		t.Helper()
		before := value[string](t, db, everythingSQL)
		for name, sql := range staleSQL {
			if _, err := db.Exec(within(t), sql); !hasCode(err, fence.Refusal) {
				t.Errorf("%s, %s: got %v, want %s", when, name, err, fence.Refusal)
			}
		}
		if now := value[string](t, db, everythingSQL); now != before {
			t.Errorf("%s: rows changed from\n%s\nto\n%s", when, before, now)
		}
	}
	refused("untouched rows")
	b.seed(t)
	refused("touched rows")
}

// P4: the raise of a large table changes none of its rows, and tells the epoch that it met.
func TestRaiseOfALargeTableMovesItsWatermarkAlone(t *testing.T) {
	t.Parallel()
	db, _, b := after(t)
	const rows = `SELECT string_agg(p::text || p.xmin, ' ' ORDER BY symbol) FROM prices p WHERE epoch = 7`
	before := value[string](t, db, rows)
	c := takeOver(t, db, "c")
	for want := b.token.Epoch; want <= c.token.Epoch; want++ { // and once more, which changes nothing
		highest, err := fence.Raise(within(t), db, c.token, fence.Shard{}, prices, ticks)
		if err != nil || highest != want {
			t.Errorf("the highest epoch met was %d, %v; want %d", highest, err, want)
		}
	}
	if value[string](t, db, rows) != before {
		t.Error("rows were changed")
	}
	for _, table := range []string{"prices", "ticks"} {
		if at := watermark(t, db, table); at != c.token.Epoch {
			t.Errorf("the watermark of %s is %d, want %d", table, at, c.token.Epoch)
		}
	}
}

// P3: a former term's raise that comes late lowers nothing, and learns that it is over.
func TestLateRaiseLowersNoWatermark(t *testing.T) {
	t.Parallel()
	db, former, b := after(t)
	before := value[string](t, db, everythingSQL)
	highest, err := fence.Raise(within(t), db, former.token, fence.Shard{}, bridgeStatus, prices, ticks)
	if err != nil || highest != b.token.Epoch {
		t.Errorf("got %d, %v, want %d", highest, err, b.token.Epoch)
	}
	if at := watermark(t, db, "prices"); at != b.token.Epoch || value[string](t, db, everythingSQL) != before {
		t.Errorf("the watermark is %d, or rows were changed", at)
	}
	if _, err := db.Exec(within(t), `UPDATE fence_watermarks SET epoch = 7`); !hasCode(err, fence.Refusal) {
		t.Errorf("lowered by hand: got %v, want %s", err, fence.Refusal)
	}
}

// P2, P3: a watermark above the token says that the lease row was reset: the raise tells of it and
// changes nothing, and each form of writing to the table is refused even to the lease's holder.
func TestHigherWatermarkTellsOfAResetLease(t *testing.T) {
	t.Parallel()
	db, _, _ := after(t)
	exec(t, db, `DELETE FROM leadership`)
	a := takeOver(t, db, "a")
	before := value[string](t, db, everythingSQL)
	highest, err := fence.Raise(within(t), db, a.token, fence.Shard{}, prices)
	if err != nil || highest != 8 {
		t.Errorf("got %d, %v, want 8", highest, err)
	}
	for _, table := range []string{"prices", "ticks"} {
		wantFenced(t, a.again(t, db).Tx(within(t), func(pgx.Tx) error { return nil }))
		exec(t, db, `DELETE FROM fence_watermarks WHERE protected = $1::regclass`, table)
	}
	wantNoError(t, a.again(t, db).Tx(within(t), func(pgx.Tx) error { return nil }))
	exec(t, db, `INSERT INTO fence_watermarks VALUES ('prices', 8)`)
	exec(t, db, `ALTER TABLE prices DISABLE TRIGGER USER`) // the upsert looks for itself
	wantFenced(t, a.again(t, db).Upsert(within(t), prices, price{"new", 7}))
	if value[string](t, db, everythingSQL) != before {
		t.Error("rows were changed")
	}
}

// P2: no row is ever above its table's watermark, so that the watermark alone tells how far a
// program went that led without raising. An update that names no epoch is given what a raised row has.
func TestNoRowIsAboveItsWatermark(t *testing.T) {
	t.Parallel()
	db, _, b := after(t)
	exec(t, db, `UPDATE prices SET bid = 5 WHERE symbol = 'USDJPY'`)
	if epoch := value[int64](t, db, `SELECT epoch FROM prices WHERE symbol = 'USDJPY'`); epoch != b.token.Epoch {
		t.Errorf("the row has epoch %d, want %d", epoch, b.token.Epoch)
	}
	exec(t, db, `INSERT INTO ticks_rest VALUES ('new', '2030-03-02', 7, 50)`)
	if highest, err := fence.Raise(within(t), db, b.token, fence.Shard{}, prices, ticks); err != nil || highest != 50 {
		t.Errorf("got %d, %v, want 50", highest, err)
	}
	wantFenced(t, b.Upsert(within(t), ticks, tick{"EURUSD", day, 2}))
}

// P2: nor is it where a term writes through the fence that has not raised.
func TestUpsertWithoutARaiseMovesTheWatermark(t *testing.T) {
	t.Parallel()
	db := newDB(t)
	a := takeOver(t, db, "a")
	a.seed(t)
	if at := watermark(t, db, "prices"); at != a.token.Epoch {
		t.Errorf("the watermark is %d, want %d", at, a.token.Epoch)
	}
}

// P3: the watermark decides by its newest version, and not by the snapshot of a statement or a
// transaction that began before the raise.
func TestRaiseBetweenSnapshotAndWriteRefusesTheWrite(t *testing.T) {
	t.Parallel()
	for _, level := range []pgx.TxIsoLevel{pgx.ReadCommitted, pgx.RepeatableRead, pgx.Serializable} {
		db, _, _ := after(t)
		exec(t, db, gateSQL)
		open := closeGate(t, db, 1)
		written := atGate(t, db, func() error {
			return pgx.BeginTxFunc(within(t), db, pgx.TxOptions{IsoLevel: level}, func(tx pgx.Tx) error {
				_, err := tx.Exec(within(t), `INSERT INTO prices SELECT 'new', 7, 8 FROM (SELECT gate(1) OFFSET 0) AS g`)
				return err
			})
		})
		takeOver(t, db, "c").raise(t, db)
		open()
		want := fence.Refusal
		if level != pgx.ReadCommitted {
			want = "40001" // which tells the program to begin again, and then it is refused
		}
		if err := <-written; !hasCode(err, want) {
			t.Errorf("%s: got %v, want %s", level, err, want)
		}
	}
}

// P4: a write by hand that is under way is waited for, and is raised with the others.
func TestRaiseWaitsForAWriteUnderWayToALargeTable(t *testing.T) {
	t.Parallel()
	db, _, _ := after(t)
	tx, err := db.Begin(within(t))
	wantNoError(t, err)
	defer func() { _ = tx.Rollback(context.Background()) }()
	_, err = tx.Exec(within(t), `INSERT INTO prices VALUES ('new', 7, 8)`)
	wantNoError(t, err)
	c := takeOver(t, db, "c")
	raised := make(chan error, 1)
	go func() {
		_, err := fence.Raise(within(t), db, c.token, fence.Shard{}, prices)
		raised <- err
	}()
	eventually(t, "the raise waits", func() bool {
		return value[int](t, db, `SELECT count(*) FROM pg_stat_activity
			WHERE datname = current_database() AND wait_event_type = 'Lock'`) > 0
	})
	if at := watermark(t, db, "prices"); at != 8 {
		t.Errorf("the watermark is at %d", at)
	}
	wantNoError(t, tx.Commit(within(t)))
	wantNoError(t, <-raised)
	if at := watermark(t, db, "prices"); at != c.token.Epoch {
		t.Errorf("the watermark is at %d", at)
	}
}

// P4: a raise whose answer was lost may be made again.
func TestRaiseWhoseAnswerWasLostIsMadeAgain(t *testing.T) {
	t.Parallel()
	db, _, _ := after(t)
	c := takeOver(t, db, "c")
	deaf := poolOn(t, db.Config().ConnString(), func(cfg *pgxpool.Config) {
		cfg.ConnConfig.DefaultQueryExecMode = pgx.QueryExecModeExec
		cfg.ConnConfig.DialFunc = func(ctx context.Context, network, addr string) (net.Conn, error) {
			conn, err := (&net.Dialer{}).DialContext(ctx, network, addr)
			return &deafConn{Conn: conn, after: []byte("fence_watermarks")}, err
		}
	})
	if _, err := fence.Raise(within(t), deaf, c.token, fence.Shard{}, prices, bridgeStatus); err == nil {
		t.Error("the answer was not lost")
	}
	eventually(t, "the raise has taken effect", func() bool { return watermark(t, db, "prices") == c.token.Epoch })
	highest, err := fence.Raise(within(t), db, c.token, fence.Shard{}, prices, bridgeStatus)
	if err != nil || highest != c.token.Epoch {
		t.Errorf("got %d, %v, want %d", highest, err, c.token.Epoch)
	}
}

// P3: whoever may write to a large table need have no right to its watermark, nor find it.
func TestLargeTableIsHeldForRolesWithoutRights(t *testing.T) {
	t.Parallel()
	db, _, _ := after(t)
	exec(t, db, `CREATE ROLE `+pgx.Identifier{db.Config().ConnConfig.Database}.Sanitize())
	role := pgx.Identifier{db.Config().ConnConfig.Database}.Sanitize()
	t.Cleanup(func() { exec(t, db, `DROP OWNED BY `+role); exec(t, db, `DROP ROLE `+role) })
	exec(t, db, `GRANT USAGE ON SCHEMA desk TO `+role+`; GRANT ALL ON prices TO `+role)
	write := func(epoch int) error {
		return pgx.BeginFunc(within(t), db, func(tx pgx.Tx) error {
			if _, err := tx.Exec(within(t), `SET LOCAL ROLE `+role+`; SET LOCAL search_path = ''`); err != nil {
				return err
			}
			_, err := tx.Exec(within(t), `INSERT INTO desk.prices VALUES ($1::int::text, 7, $1::int)`, epoch)
			return err
		})
	}
	wantNoError(t, write(8))
	if err := write(7); !hasCode(err, fence.Refusal) {
		t.Errorf("got %v, want %s", err, fence.Refusal)
	}
}

// Two tables of one name have watermarks of their own, and a new name is no new table.
func TestWatermarkIsOfTheTableAndNotOfItsName(t *testing.T) {
	t.Parallel()
	db, _, b := after(t)
	exec(t, db, `CREATE SCHEMA other; CREATE TABLE other.prices (LIKE prices INCLUDING ALL); SELECT fence_protect('other.prices', true)`)
	exec(t, db, `INSERT INTO other.prices VALUES ('EURUSD', 1, 3)`)
	if at := watermark(t, db, "other.prices"); at != 3 {
		t.Errorf("the other's watermark is %d, want 3", at)
	}
	exec(t, db, `ALTER TABLE prices RENAME TO quotes`)
	if _, err := db.Exec(within(t), `INSERT INTO quotes VALUES ('new', 7, 7)`); !hasCode(err, fence.Refusal) {
		t.Errorf("got %v, want %s", err, fence.Refusal)
	}
	if at := watermark(t, db, "quotes"); at != b.token.Epoch {
		t.Errorf("the watermark is %d, want %d", at, b.token.Epoch)
	}
}

// says fails unless the error has each of the words.
func says(t testing.TB, err error, words ...string) {
	t.Helper()
	for _, word := range words {
		if err == nil || !strings.Contains(err.Error(), word) {
			t.Errorf("got %v, want %q in it", err, word)
		}
	}
}
