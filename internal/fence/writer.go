package fence

import (
	"context"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
)

// Raise brings the rows of the tables up to the token's epoch, before a new term does any work,
// and returns the highest epoch that it met on them: one above the token's own means that the
// lease row has been reset or restored, and then no row was changed.
func Raise(ctx context.Context, db *pgxpool.Pool, t Token, tables ...Table) (highest int64, err error) {
	panic("written by the fence's own task")
}

// A Writer writes for one term, and is refused once that term has passed.
type Writer struct{}

// NewWriter returns the writer of the term whose context is term. A refused write calls end.
func NewWriter(term context.Context, end context.CancelCauseFunc, db *pgxpool.Pool, t Token, tables ...Table) *Writer {
	panic("written by the fence's own task")
}

// Upsert writes a struct, or a slice of structs, with db tags: all rows or none, in one statement.
func (w *Writer) Upsert(ctx context.Context, t Table, rows any) error {
	panic("written by the fence's own task")
}

// Tx runs fn in a transaction, which commits only if the term still holds its lease.
func (w *Writer) Tx(ctx context.Context, fn func(pgx.Tx) error) error {
	panic("written by the fence's own task")
}

// Epoch is what SQL inside Tx stores in the epoch column.
func (w *Writer) Epoch() int64 { panic("written by the fence's own task") }

// Refused is how many writes the fence has refused so far.
func (w *Writer) Refused() int { panic("written by the fence's own task") }
