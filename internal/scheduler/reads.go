package scheduler

import (
	"context"
	"sync"

	"github.com/jackc/pgx/v5"

	"rota/internal/registry"
)

// reads is what one run reads by. An answer that is left open holds a connection for ever, and the pool
// is that of all jobs of the replica; so those of a run are closed once its function has returned.
type reads struct {
	db registry.Reader

	mu   sync.Mutex
	open map[*answer]struct{}
}

func (r *reads) Query(ctx context.Context, sql string, args ...any) (pgx.Rows, error) {
	rows, err := r.db.Query(ctx, sql, args...)
	if err != nil {
		return rows, err // which hold no connection
	}
	a := &answer{Rows: rows, of: r}
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.open == nil {
		r.open = make(map[*answer]struct{})
	}
	r.open[a] = struct{}{}
	return a, nil
}

func (r *reads) QueryRow(ctx context.Context, sql string, args ...any) pgx.Row {
	rows, err := r.Query(ctx, sql, args...)
	return single{rows, err}
}

// close closes what is open still, and returns how many answers that were. It does not wait: a goroutine
// that the function has left behind may be reading one.
func (r *reads) close() int {
	r.mu.Lock()
	defer r.mu.Unlock()
	for a := range r.open {
		go a.Close()
	}
	return len(r.open)
}

func (r *reads) closed(a *answer) {
	r.mu.Lock()
	defer r.mu.Unlock()
	delete(r.open, a)
}

// An answer is the rows of a query, which may be closed while another goroutine reads them.
type answer struct {
	pgx.Rows

	of *reads
	mu sync.Mutex
}

func (a *answer) Close() {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.Rows.Close()
	a.of.closed(a)
}

func (a *answer) Next() bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	more := a.Rows.Next()
	if !more { // and pgx has closed them
		a.of.closed(a)
	}
	return more
}

func (a *answer) Scan(dest ...any) error {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.told(a.Rows.Scan(dest...))
}

func (a *answer) Values() ([]any, error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	values, err := a.Rows.Values()
	return values, a.told(err)
}

// told is an error of the rows, which closes them.
func (a *answer) told(err error) error {
	if err != nil {
		a.of.closed(a)
	}
	return err
}

func (a *answer) RawValues() [][]byte {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.Rows.RawValues()
}

func (a *answer) Err() error {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.Rows.Err()
}

// A single is the first row of an answer, or why there is none.
type single struct {
	rows pgx.Rows
	err  error
}

func (s single) Scan(dest ...any) error {
	if s.err != nil {
		return s.err
	}
	defer s.rows.Close()
	if !s.rows.Next() {
		if err := s.rows.Err(); err != nil {
			return err
		}
		return pgx.ErrNoRows
	}
	if err := s.rows.Scan(dest...); err != nil {
		return err
	}
	s.rows.Close()
	return s.rows.Err()
}
