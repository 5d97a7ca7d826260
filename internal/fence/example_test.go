package fence_test

import (
	"context"
	"errors"
	"fmt"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"rota/internal/fence"
)

// Symbols is one value, for registry.Job's Protects and for every Upsert.
var Symbols = fence.Table{Name: "symbols", Key: []string{"venue", "symbol"}, Stamp: "updated_at"}

type Symbol struct {
	Venue  string `db:"venue"`
	Symbol string `db:"symbol"`
	Digits int    `db:"digits"`
}

func ExampleWriter_Upsert() {
	sync := func(ctx context.Context, w *fence.Writer) error {
		// All rows or none, in one statement. An error is returned as it is: ErrFenced means that
		// the term is over, and trying again cannot help.
		return w.Upsert(ctx, Symbols, []Symbol{
			{Venue: "LP-3", Symbol: "EURUSD", Digits: 5},
			{Venue: "LP-3", Symbol: "USDJPY", Digits: 3},
		})
	}
	_ = sync
}

func ExampleWriter_Tx() {
	retire := func(ctx context.Context, w *fence.Writer, venue string) error {
		err := w.Tx(ctx, func(tx pgx.Tx) error {
			_, err := tx.Exec(ctx, `UPDATE symbols SET retired = true, epoch = $2 WHERE venue = $1`, venue, w.Epoch())
			return err // nil commits, if the term still holds its lease
		})
		if errors.Is(err, fence.ErrUnknown) {
			return fmt.Errorf("retire the symbols of %s: look before doing it again: %w", venue, err)
		}
		return err
	}
	_ = retire
}

func ExampleRaise() {
	begin := func(ctx context.Context, db *pgxpool.Pool, t fence.Token) error {
		highest, err := fence.Raise(ctx, db, t, fence.Shard{}, Symbols)
		if err != nil {
			return err
		}
		if highest > t.Epoch {
			return fmt.Errorf("rows have epoch %d: the lease row was reset, and the next term must be above it", highest)
		}
		return nil // now the term may work
	}
	_ = begin
}
