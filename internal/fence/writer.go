package fence

import (
	"context"
	"errors"
	"fmt"
	"reflect"
	"strings"
	"sync"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/prometheus/client_golang/prometheus"
)

// A Writer writes for one term, and is refused once that term has passed. It may be used by any
// number of goroutines.
//
// Refused means over. The first refusal ends the term with an ErrFenced cause that names the lease,
// the epoch and the reason; from then on, or once the term has ended for another reason, every call
// is refused without asking the database, by ErrFenced together with the cause. A call that is
// under way when the term ends is cut short.
type Writer struct {
	term   context.Context
	end    context.CancelCauseFunc
	db     *pgxpool.Pool
	token  Token
	shard  Shard
	tables map[string]Table
	guard  string // SQL of the guard of Tx

	mu         sync.Mutex
	refusal    error
	refused    int
	counter    prometheus.Counter
	statements map[statementKey]*statement
	knowns     map[*pgx.Conn]known
	idle       *bounded // the latest that is not in use
}

type statementKey struct {
	table string
	row   reflect.Type
}

// NewWriter returns the writer of the term whose context is term. A refused write calls end.
//
// The writer is bound to the term and not to the run, so that a cancelled run may still write its
// last state while its replica leads. It looks each table up once, so that one writer for a whole
// term is cheaper than one for each run. Its statements go out in db's own exec mode: for a pooler
// in transaction mode that is set by default_query_exec_mode in db's URL.
func NewWriter(term context.Context, end context.CancelCauseFunc, db *pgxpool.Pool, t Token, s Shard, tables ...Table) *Writer {
	w := &Writer{
		term: term, end: end, db: db, token: t, shard: s,
		tables:     make(map[string]Table, len(tables)),
		guard:      guardOf(tables),
		statements: map[statementKey]*statement{},
		knowns:     map[*pgx.Conn]known{},
	}
	for _, table := range tables {
		w.tables[table.Name] = table
	}
	return w
}

// prepareSQL changes nothing where another process answers than the one that the client was told of:
// that is a pooler, whose sessions serve others too.
const prepareSQL = `SELECT set_config('lock_timeout', '500ms', false) WHERE pg_backend_pid() = $1::bigint`

// Prepare is for a pool's AfterConnect: it spares each Upsert the setting of its lock_timeout, a tenth
// of what a small one takes. All else that is sent on the connection waits no longer than half a
// second for a lock either. Nothing rests on it, and behind a pooler it does nothing.
func Prepare(ctx context.Context, conn *pgx.Conn) error {
	tag, err := conn.Exec(ctx, prepareSQL, int64(conn.PgConn().PID()))
	if err != nil {
		return fmt.Errorf("prepare a connection for fenced writes: %w", err)
	}
	if tag.RowsAffected() > 0 {
		conn.PgConn().CustomData()[sessionKey] = true
	}
	return nil
}

// Epoch is what SQL inside Tx stores in the epoch column.
func (w *Writer) Epoch() int64 { return w.token.Epoch }

// Refused is how many writes have been refused so far, those that were refused without asking the
// database among them.
func (w *Writer) Refused() int {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.refused
}

// Count adds each further refusal to c too; see Metrics.Of.
func (w *Writer) Count(c prometheus.Counter) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.counter = c
}

// over refuses a call of a term that is known to have passed.
func (w *Writer) over() error {
	w.mu.Lock()
	err := w.refusal
	w.mu.Unlock()
	if err == nil {
		if err = w.cause(); err == nil {
			return nil
		}
	}
	w.count()
	return err
}

// cause is why the term has ended, as an ErrFenced; nil while it lasts.
func (w *Writer) cause() error {
	cause := context.Cause(w.term)
	if cause == nil || errors.Is(cause, ErrFenced) {
		return cause
	}
	return w.fenced(cause)
}

func (w *Writer) fenced(cause error) error {
	return fmt.Errorf("%w (lease %s, epoch %d): %w", ErrFenced, w.token.Lease, w.token.Epoch, cause)
}

func (w *Writer) count() {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.refused++
	if w.counter != nil {
		w.counter.Inc()
	}
}

// judge says what an error means. sent tells whether the error is that of the write itself, so that
// a lost answer leaves the outcome open.
func (w *Writer) judge(err error, sent bool) error {
	if err == nil || errors.Is(err, ErrFenced) {
		return err // the latter from a write inside a function
	}
	if isRefusal(err) {
		return w.refuse(err)
	}
	unknown := sent && answerLost(err)
	if unknown {
		err = fmt.Errorf("%w: %w", ErrUnknown, err)
	}
	if cause := w.cause(); cause != nil {
		if !unknown {
			w.count()
		}
		err = fmt.Errorf("%w: %w", cause, err)
	}
	return err
}

func (w *Writer) refuse(err error) error {
	err = w.fenced(err)
	w.mu.Lock()
	if w.refusal == nil {
		w.refusal = err
	}
	w.mu.Unlock()
	w.count()
	w.end(err)
	return err
}

func isRefusal(err error) bool {
	var pg *pgconn.PgError
	return errors.As(err, &pg) && pg.Code == Refusal
}

// answerLost says whether what was sent may have taken effect although an error came back. An error
// from the server is an answer, unless it is a pooler's word that it has lost the server (class 08).
func answerLost(err error) bool {
	var pg *pgconn.PgError
	if errors.As(err, &pg) {
		return strings.HasPrefix(pg.Code, "08")
	}
	return !pgconn.SafeToRetry(err)
}

// mayWrite refuses a table that was not declared as protected, for its rows are not raised.
func (w *Writer) mayWrite(t Table) error {
	declared, ok := w.tables[t.Name]
	if !ok {
		return errors.New("it is not among the job's protected tables: name it in Protects")
	}
	if !declared.equal(t) {
		return errors.New("its key, shard, stamp or size differs from what the job's Protects say: use one value for both")
	}
	if w.shard.Whole() {
		return nil
	}
	return t.CheckShard()
}

func (w *Writer) statement(table string, row reflect.Type) (s *statement, ok bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	s, ok = w.statements[statementKey{table, row}]
	return s, ok
}

func (w *Writer) keep(table string, row reflect.Type, s *statement) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.statements[statementKey{table, row}] = s
}
