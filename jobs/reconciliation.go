package jobs

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"

	"rota/internal/fence"
	"rota/internal/registry"
)

var breaksTable = fence.Table{Name: "breaks", Key: []string{"account", "trade_id", "kind"}}

func init() {
	registry.Register(registry.Job{
		Name:     "reconciliation",
		About:    "Compares the engine's trades with each broker's statement, and keeps the list of breaks.",
		Schedule: registry.Cron("* * * * *"),
		Timeout:  10 * time.Minute,
		Protects: []fence.Table{breaksTable},
		Args:     reconciliationArgs{Timeout: time.Minute, MaxBytes: 64 << 20, MaxRows: 500_000, MaxDays: 7},
		Run:      reconciliation,
	})
}

type reconciliationArgs struct {
	Timeout  time.Duration // for the reading of one statement
	MaxBytes int64         // of one statement
	MaxRows  int           // of one statement
	MaxDays  int           // that one statement may cover: a wrong date must not make a year of breaks
}

type account struct{ ID, Statement string }

// A tradeBreak is one trade on which the two sides disagree, in one way.
type tradeBreak struct {
	TradeID string `json:"trade_id"`
	Kind    string `json:"kind"`
	Date    string `json:"trade_date"`
	Engine  string `json:"engine"`
	Broker  string `json:"broker"`
}

const accountsSQL = `SELECT id, statement FROM accounts ORDER BY id`

// reconciliation goes on after an account that fails, and reports all that did.
func reconciliation(ctx context.Context, run *registry.Run) error {
	rows, err := run.DB.Query(ctx, accountsSQL)
	if err != nil {
		return fmt.Errorf("read accounts: %w", err)
	}
	accounts, err := pgx.CollectRows(rows, pgx.RowToStructByName[account])
	if err != nil {
		return fmt.Errorf("read accounts: %w", err)
	}
	var failed []error
	for _, a := range accounts {
		err := reconcileAccount(ctx, run, a)
		switch {
		case errors.Is(err, fence.ErrFenced):
			return err
		case ctx.Err() != nil:
			return context.Cause(ctx)
		case err != nil:
			failed = append(failed, fmt.Errorf("account %s: %w", a.ID, err))
		}
	}
	return errors.Join(failed...)
}

func reconcileAccount(ctx context.Context, run *registry.Run, a account) error {
	st, err := readStatement(ctx, a.Statement, run.Args.(reconciliationArgs))
	if err != nil {
		return fmt.Errorf("statement: %w", err)
	}
	if st.Bad > 0 {
		run.Log.Warn("statement has bad rows", "account", a.ID, "bad", st.Bad, "of", st.Rows, "first", st.BadRows)
	}
	engine, err := engineTrades(ctx, run.DB, a.ID, st)
	if err != nil {
		return fmt.Errorf("read trades: %w", err)
	}
	breaks := findBreaks(st, engine)
	if err := writeBreaks(ctx, run.Fence, a.ID, st, breaks); err != nil {
		return fmt.Errorf("write breaks: %w", err)
	}
	run.Log.Info("account reconciled", "account", a.ID, "from", st.First, "to", st.Last,
		"trades", len(engine), "breaks", len(breaks))
	return nil
}

// The engine's trades of the statement's days, and those that it has under another date.
const engineTradesSQL = `
SELECT trade_id AS id, trade_date::text AS date, symbol, side,
       trim_scale(quantity)::text AS quantity, trim_scale(price)::text AS price
  FROM trades
 WHERE account = $1 AND (trade_date BETWEEN $2::date AND $3::date OR trade_id = ANY ($4))`

func engineTrades(ctx context.Context, db registry.Reader, account string, st *statement) ([]trade, error) {
	ids := make([]string, 0, len(st.Trades))
	for id := range st.Trades {
		ids = append(ids, id)
	}
	rows, err := db.Query(ctx, engineTradesSQL, account, st.First, st.Last, ids)
	if err != nil {
		return nil, err
	}
	return pgx.CollectRows(rows, pgx.RowToStructByName[trade])
}

// findBreaks compares the two sides. Same sides, same breaks in the same order.
func findBreaks(st *statement, engine []trade) []tradeBreak {
	breaks := []tradeBreak{} // never nil, which JSON would spell null
	known := make(map[string]bool, len(engine))
	for _, ours := range engine {
		known[ours.ID] = true
		theirs, listed := st.Trades[ours.ID]
		_, unreadable := st.Unreadable[ours.ID]
		switch {
		case listed:
			breaks = append(breaks, compareTrades(ours, theirs)...)
		case !unreadable:
			breaks = append(breaks, tradeBreak{ours.ID, "missing_at_broker", ours.Date, ours.String(), ""})
		}
	}
	for id, theirs := range st.Trades {
		if !known[id] {
			breaks = append(breaks, tradeBreak{id, "missing_at_engine", theirs.Date, "", theirs.String()})
		}
	}
	for id, why := range st.Unreadable {
		breaks = append(breaks, tradeBreak{id, "unreadable", st.Last, "", why})
	}
	slices.SortFunc(breaks, func(a, b tradeBreak) int {
		return strings.Compare(a.TradeID+"\x00"+a.Kind, b.TradeID+"\x00"+b.Kind)
	})
	return breaks
}

func compareTrades(ours, theirs trade) (breaks []tradeBreak) {
	for _, field := range []struct{ kind, ours, theirs string }{
		{"trade_date", ours.Date, theirs.Date},
		{"symbol", ours.Symbol, theirs.Symbol},
		{"side", ours.Side, theirs.Side},
		{"quantity", ours.Quantity, theirs.Quantity},
		{"price", ours.Price, theirs.Price},
	} {
		if field.ours != field.theirs {
			breaks = append(breaks, tradeBreak{ours.ID, field.kind, theirs.Date, field.ours, field.theirs})
		}
	}
	return breaks
}

// A break that is open already keeps its row as it is.
const openBreaksSQL = `
INSERT INTO breaks AS b (account, trade_id, kind, trade_date, engine, broker, epoch)
SELECT $1, f.trade_id, f.kind, f.trade_date, f.engine, f.broker, $2
  FROM jsonb_to_recordset($3) AS f(trade_id text, kind text, trade_date date, engine text, broker text)
    ON CONFLICT (account, trade_id, kind) DO UPDATE
   SET trade_date = EXCLUDED.trade_date, engine = EXCLUDED.engine, broker = EXCLUDED.broker,
       found_at = CASE WHEN b.closed_at IS NULL THEN b.found_at ELSE EXCLUDED.found_at END,
       closed_at = NULL, epoch = EXCLUDED.epoch
 WHERE b.closed_at IS NOT NULL
    OR (b.trade_date, b.engine, b.broker) IS DISTINCT FROM (EXCLUDED.trade_date, EXCLUDED.engine, EXCLUDED.broker)`

// Days outside the statement are left alone: it says nothing of them.
const closeBreaksSQL = `
UPDATE breaks SET closed_at = clock_timestamp(), epoch = $2
 WHERE account = $1 AND closed_at IS NULL AND trade_date BETWEEN $4::date AND $5::date
   AND (trade_id, kind) NOT IN (SELECT f.trade_id, f.kind
                                  FROM jsonb_to_recordset($3) AS f(trade_id text, kind text))`

func writeBreaks(ctx context.Context, w *fence.Writer, account string, st *statement, breaks []tradeBreak) error {
	return w.Tx(ctx, func(tx pgx.Tx) error {
		if _, err := tx.Exec(ctx, openBreaksSQL, account, w.Epoch(), breaks); err != nil {
			return err
		}
		_, err := tx.Exec(ctx, closeBreaksSQL, account, w.Epoch(), breaks, st.First, st.Last)
		return err
	})
}
