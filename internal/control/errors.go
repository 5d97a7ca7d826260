package control

import (
	"context"
	"errors"
	"fmt"

	"github.com/jackc/pgx/v5/pgconn"
)

// What a caller may want to tell apart. The texts of the errors themselves say what and why, and the
// way out, in one line.
var (
	// ErrInvalid: the order is wrong by itself, and asking again cannot help. A name that may be one of
	// several is wrong, and so is a kind of thing that the order is not for.
	ErrInvalid = errors.New("invalid")
	// ErrNotFound: there is no such job, lease, run or replica; a lease of another count of shards than
	// the one in force is none.
	ErrNotFound = errors.New("not found")
	// ErrRefused: it cannot be done as things are.
	ErrRefused = errors.New("refused")
	// ErrBusy: somebody holds a row that it needs. Nothing was done, unless the text says so.
	ErrBusy = errors.New("busy")
	// ErrSilent: the database did not answer in time. Nothing was done, nor will it be.
	ErrSilent = errors.New("silent")
	// ErrUnknown: the database's answer was lost. It may have been done, or not; what was not will not be.
	ErrUnknown = errors.New("unknown")
)

// A refusal is an error that is one of the above, in words of its own.
type refusal struct {
	kind  error
	text  string
	cause error
}

func (r *refusal) Error() string   { return r.text }
func (r *refusal) Unwrap() []error { return []error{r.kind, r.cause} }

func refuse(kind error, format string, args ...any) error {
	return &refusal{kind: kind, text: fmt.Sprintf(format, args...), cause: kind}
}

// because is a refusal in words of our own; what the database said is its cause, for logs.
func because(kind, cause error, format string, args ...any) error {
	return &refusal{kind: kind, text: fmt.Sprintf(format, args...), cause: cause}
}

// The SQLSTATEs that have a meaning here.
const (
	lockNotAvailable = "55P03"
	queryCanceled    = "57014"
)

// answered reports whether the database itself refused: nothing of the transaction was done.
func answered(err error) bool {
	var pg *pgconn.PgError
	return errors.As(err, &pg)
}

func isState(err error, codes ...string) bool {
	var pg *pgconn.PgError
	if !errors.As(err, &pg) {
		return false
	}
	for _, c := range codes {
		if pg.Code == c {
			return true
		}
	}
	return false
}

// explain puts an error of the database into one of the kinds. sent says that the transaction's last
// word was under way. ctx is that of whoever asks, and not the one that bounds the transaction.
func explain(ctx context.Context, err error, what string, sent bool) error {
	var known *refusal
	switch {
	case err == nil:
		return nil
	case errors.As(err, &known):
		return err
	case isState(err, lockNotAvailable, queryCanceled):
		return because(ErrBusy, err, "%s: somebody holds a row that it needs; try again", what)
	case sent && !answered(err):
		return because(ErrUnknown, err,
			"%s: the database did not answer, and it is not known whether it was done: look before asking again (what was not done by now will not be)", what)
	case ctx.Err() != nil:
		return fmt.Errorf("%s: given up before it was done: %w", what, err)
	case isState(err, tooLateState), errors.Is(err, context.DeadlineExceeded):
		return because(ErrSilent, err, "%s: the database did not answer within %v, and nothing was done: try again once it answers", what, orderTimeout)
	}
	return fmt.Errorf("%s: %w", what, err)
}
