package fence_test

import (
	"bytes"
	"context"
	"errors"
	"io"
	"net"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"rota/internal/fence"
)

const insertSQL = `INSERT INTO bridge_status (bridge_id, health, epoch) VALUES ($1, 'UP', $2)`

func insert(ctx context.Context, tx pgx.Tx, bridge string, w *leader) error {
	_, err := tx.Exec(ctx, insertSQL, bridge, w.Epoch())
	return err
}

func bridges(t testing.TB, db *pgxpool.Pool) string {
	t.Helper()
	return value[string](t, db, `SELECT coalesce(string_agg(bridge_id, ' ' ORDER BY bridge_id), '') FROM bridge_status`)
}

// noneInTransaction waits until every other session of the database is out of its transaction.
func noneInTransaction(t testing.TB, db *pgxpool.Pool) {
	t.Helper()
	eventually(t, "no session is in a transaction, and no connection is out of the pool", func() bool {
		return db.Stat().AcquiredConns() == 0 && value[int](t, db, `SELECT count(*) FROM pg_stat_activity
			WHERE datname = current_database() AND pid <> pg_backend_pid() AND xact_start IS NOT NULL
			  AND backend_type = 'client backend'`) == 0
	})
}

// whileBusy does something while the transaction is at work, and so not ended for being idle,
// however long it takes.
func whileBusy(t testing.TB, tx pgx.Tx, do func()) {
	t.Helper()
	done := make(chan struct{})
	go func() {
		defer close(done)
		do()
	}()
	for {
		select {
		case <-done:
			return
		default:
			if _, err := tx.Exec(within(t), "SELECT 1"); err != nil {
				t.Error(err)
				<-done
				return
			}
		}
	}
}

// P3: the guard runs last, so that a takeover in the midst of the function is noticed, and its
// failure keeps COMMIT from being executed.
func TestTakeoverDuringATransactionUndoesIt(t *testing.T) {
	t.Parallel()
	db := newDB(t)
	a := takeOver(t, db, "a")
	wantFenced(t, a.Tx(within(t), func(tx pgx.Tx) error {
		wantNoError(t, insert(within(t), tx, "LP-1", a))
		whileBusy(t, tx, func() { takeOver(t, db, "b") })
		return nil
	}))
	if got := bridges(t, db); got != "" {
		t.Errorf("committed: %s", got)
	}
	noneInTransaction(t, db)
}

func TestErrorOfTheFunctionRollsBack(t *testing.T) {
	t.Parallel()
	db := newDB(t)
	a := takeOver(t, db, "a")
	mine := errors.New("mine")
	err := a.Tx(within(t), func(tx pgx.Tx) error {
		wantNoError(t, insert(within(t), tx, "LP-1", a))
		return mine
	})
	if !errors.Is(err, mine) || errors.Is(err, fence.ErrFenced) || errors.Is(err, fence.ErrUnknown) {
		t.Errorf("got %v, want the function's own error alone", err)
	}
	if got := bridges(t, db); got != "" {
		t.Errorf("committed: %s", got)
	}
	noneInTransaction(t, db)
	if a.term.Err() != nil {
		t.Error("an ordinary error ended the term")
	}
}

func TestPanicOfTheFunctionRollsBackAndGoesOn(t *testing.T) {
	t.Parallel()
	db := newDB(t)
	a := takeOver(t, db, "a")
	func() {
		defer func() {
			if recover() != "boom" {
				t.Error("the panic was swallowed")
			}
		}()
		_ = a.Tx(within(t), func(tx pgx.Tx) error {
			wantNoError(t, insert(within(t), tx, "LP-1", a))
			panic("boom")
		})
	}()
	noneInTransaction(t, db)
	if got := bridges(t, db); got != "" {
		t.Errorf("committed: %s", got)
	}
}

// The function cannot get around the guard unnoticed.
func TestFunctionThatEndsTheTransactionItselfIsReported(t *testing.T) {
	t.Parallel()
	for _, sql := range []string{"COMMIT", "ROLLBACK", "COMMIT; BEGIN", "COMMIT AND CHAIN"} {
		t.Run(sql, func(t *testing.T) {
			t.Parallel()
			db := newDB(t)
			a := takeOver(t, db, "a")
			err := a.Tx(within(t), func(tx pgx.Tx) error {
				_, err := tx.Exec(within(t), sql)
				return err
			})
			if err == nil || !strings.Contains(err.Error(), "ended the transaction itself") {
				t.Errorf("got %v, want a report", err)
			}
			noneInTransaction(t, db)
		})
	}
}

func TestCommitOfAFencedTransactionIsAnError(t *testing.T) {
	t.Parallel()
	db := newDB(t)
	a := takeOver(t, db, "a")
	wantNoError(t, a.Tx(within(t), func(tx pgx.Tx) error {
		if tx.Commit(within(t)) == nil {
			t.Error("it was committed")
		}
		return insert(within(t), tx, "LP-1", a)
	}))
	if got := bridges(t, db); got != "LP-1" {
		t.Errorf("committed: %q, want LP-1", got)
	}
}

func TestSavepointsWorkInAFencedTransaction(t *testing.T) {
	t.Parallel()
	db := newDB(t)
	a := takeOver(t, db, "a")
	wantNoError(t, a.Tx(within(t), func(tx pgx.Tx) error {
		wantNoError(t, pgx.BeginFunc(within(t), tx, func(tx pgx.Tx) error { return insert(within(t), tx, "LP-1", a) }))
		if pgx.BeginFunc(within(t), tx, func(tx pgx.Tx) error {
			wantNoError(t, insert(within(t), tx, "LP-2", a))
			return insert(within(t), tx, "LP-1", a) // a duplicate
		}) == nil {
			t.Error("the duplicate was accepted")
		}
		rows, err := tx.Query(within(t), `SELECT 1`)
		wantNoError(t, err)
		rows.Close()
		batch := &pgx.Batch{}
		batch.Queue(insertSQL, "LP-3", a.Epoch())
		wantNoError(t, tx.SendBatch(within(t), batch).Close())
		_, err = tx.CopyFrom(within(t), pgx.Identifier{"bridge_status"}, []string{"bridge_id", "health", "epoch"},
			pgx.CopyFromRows([][]any{{"LP-4", "UP", a.Epoch()}}))
		return err
	}))
	if got := bridges(t, db); got != "LP-1 LP-3 LP-4" {
		t.Errorf("committed: %q", got)
	}
}

func TestSwallowedErrorInATransactionIsReported(t *testing.T) {
	t.Parallel()
	db := newDB(t)
	a := takeOver(t, db, "a")
	err := a.Tx(within(t), func(tx pgx.Tx) error {
		wantNoError(t, insert(within(t), tx, "LP-1", a))
		_ = insert(within(t), tx, "LP-1", a)
		return nil
	})
	if err == nil || errors.Is(err, fence.ErrFenced) {
		t.Errorf("got %v, want an error that is no refusal", err)
	}
	noneInTransaction(t, db)
	if got := bridges(t, db); got != "" {
		t.Errorf("committed: %s", got)
	}
}

// Rows that were left open cannot smuggle the connection back to the pool.
func TestRowsLeftOpenFailTheTransaction(t *testing.T) {
	t.Parallel()
	db := newDB(t)
	a := takeOver(t, db, "a")
	err := a.Tx(within(t), func(tx pgx.Tx) error {
		wantNoError(t, insert(within(t), tx, "LP-1", a))
		_, err := tx.Query(within(t), `SELECT generate_series(1, 100000)`) //nolint:sqlclosecheck // left open on purpose: Tx has to deal with it
		return err
	})
	if err == nil || errors.Is(err, fence.ErrUnknown) {
		t.Errorf("got %v, want an error with a known outcome", err)
	}
	noneInTransaction(t, db)
	if got := bridges(t, db); got != "" {
		t.Errorf("committed: %s", got)
	}
}

// Wherever a context ends, no session stays in a transaction (hazard 69).
func TestCancelledContextLeavesNoIdleTransaction(t *testing.T) {
	t.Parallel()
	db := newDB(t)
	a := takeOver(t, db, "a")
	for _, where := range []string{"between statements", "in a statement", "at the end"} {
		for range 10 {
			ctx, cancel := context.WithCancel(within(t))
			err := a.Tx(ctx, func(tx pgx.Tx) error {
				wantNoError(t, insert(ctx, tx, "LP-1", a))
				switch where {
				case "in a statement":
					stop := context.AfterFunc(onSleep(t, db), cancel)
					defer stop()
					_, err := tx.Exec(ctx, `SELECT pg_sleep(60)`)
					return err
				case "between statements":
					cancel()
					_, err := tx.Exec(ctx, `SELECT 1`)
					return err
				}
				cancel()
				return nil
			})
			if !errors.Is(err, context.Canceled) || errors.Is(err, fence.ErrFenced) {
				t.Errorf("%s: got %v, want the cancellation", where, err)
			}
		}
		noneInTransaction(t, db)
	}
	if got := bridges(t, db); got != "" {
		t.Errorf("committed: %s", got)
	}
}

// onSleep is done once a session of the database sleeps.
func onSleep(t testing.TB, db *pgxpool.Pool) context.Context {
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan struct{})
	go func() {
		defer close(done)
		defer cancel()
		for asleep(db) == 0 && ctx.Err() == nil {
			continue
		}
	}()
	t.Cleanup(func() { cancel(); <-done })
	return ctx
}

func asleep(db *pgxpool.Pool) (n int) {
	_ = db.QueryRow(context.Background(), `SELECT count(*) FROM pg_stat_activity
		WHERE datname = current_database() AND wait_event = 'PgSleep'`).Scan(&n)
	return n
}

// P5: the term's end cuts short what is under way, whatever context its statements were given.
func TestEndOfTheTermCutsAStatementShort(t *testing.T) {
	t.Parallel()
	db := newDB(t)
	a := takeOver(t, db, "a")
	gone := errors.New("gone")
	stop := context.AfterFunc(onSleep(t, db), func() { a.end(gone) })
	defer stop()
	err := a.Tx(within(t), func(tx pgx.Tx) error {
		wantNoError(t, insert(context.Background(), tx, "LP-1", a))
		_, err := tx.Exec(context.Background(), `SELECT pg_sleep(60)`)
		return err
	})
	wantFenced(t, err)
	if !errors.Is(err, gone) {
		t.Errorf("got %v, want the term's cause in it", err)
	}
	noneInTransaction(t, db)
	if got := bridges(t, db); got != "" {
		t.Errorf("committed: %s", got)
	}
}

// A leader that pauses in a transaction loses it, and with it its locks.
func TestPauseInATransactionEndsIt(t *testing.T) {
	t.Parallel()
	db := newDB(t)
	a := takeOver(t, db, "a")
	err := a.Tx(within(t), func(tx pgx.Tx) error {
		wantNoError(t, insert(within(t), tx, "LP-1", a))
		eventually(t, "the session is gone", func() bool {
			return value[int](t, db, `SELECT count(*) FROM pg_stat_activity
				WHERE datname = current_database() AND state LIKE 'idle in transaction%'`) == 0
		})
		return nil
	})
	if err == nil {
		t.Error("got no error")
	}
	if got := bridges(t, db); got != "" {
		t.Errorf("committed: %s", got)
	}
}

// A deafConn loses every answer once it has sent something that contains after.
type deafConn struct {
	net.Conn
	after []byte
	deaf  atomic.Bool
}

func (c *deafConn) Write(p []byte) (int, error) {
	n, err := c.Conn.Write(p)
	if bytes.Contains(p, c.after) {
		c.deaf.Store(true)
	}
	return n, err
}

func (c *deafConn) Read(p []byte) (int, error) {
	n, err := c.Conn.Read(p)
	if c.deaf.Load() {
		return 0, io.ErrUnexpectedEOF
	}
	return n, err
}

// A lost answer is said to be one: the write may have taken effect, and here it has.
func TestLostAnswerIsSaidToBeUnknown(t *testing.T) {
	t.Parallel()
	db := newDB(t)
	for name, write := range map[string]func(*leader) error{
		"COMMIT": func(a *leader) error {
			return a.Tx(within(t), func(tx pgx.Tx) error { return insert(within(t), tx, "COMMIT", a) })
		},
		"INSERT INTO": func(a *leader) error {
			return a.Upsert(within(t), bridgeStatus, status{"INSERT INTO", "UP"})
		},
		"E'bridge_health'": func(a *leader) (err error) { // one that knows its lease, as all but the first do
			wantNoError(t, a.Upsert(within(t), bridgeStatus, status{"LP-1", "UP"}))
			for err == nil {
				err = a.Upsert(within(t), bridgeStatus, status{"E'bridge_health'", "UP"})
			}
			return err
		},
	} {
		pool := poolOn(t, db.Config().ConnString(), func(cfg *pgxpool.Config) {
			cfg.ConnConfig.DefaultQueryExecMode = pgx.QueryExecModeExec
			cfg.AfterConnect = fence.Prepare
			cfg.ConnConfig.DialFunc = func(ctx context.Context, network, addr string) (net.Conn, error) {
				conn, err := (&net.Dialer{}).DialContext(ctx, network, addr)
				after := name
				if name == "COMMIT" {
					after = "rota_guard"
				}
				return &deafConn{Conn: conn, after: []byte(after)}, err
			}
		})
		a := takeOver(t, db, "a")
		a.Writer = a.again(t, pool).Writer
		err := write(a)
		if !errors.Is(err, fence.ErrUnknown) || errors.Is(err, fence.ErrFenced) {
			t.Errorf("%s: got %v, want ErrUnknown alone", name, err)
		}
		eventually(t, name+" has taken effect", func() bool {
			return strings.Contains(bridges(t, db), name)
		})
		noneInTransaction(t, db)
	}
}
