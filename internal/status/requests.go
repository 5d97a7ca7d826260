package status

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgtype"
)

// A Request is what an operator asked for and a replica carries out.
type Request struct {
	ID      int64
	Kind    string // run, cancel, step_down or drain
	Job     string
	Lease   string
	Epoch   int64 // of the term that should end
	Run     int64 // that should be cancelled
	Replica string
	Args    json.RawMessage // a JSON object; nil: none
	Reason  string
	By      string
	MadeAt  time.Time
	DoneAt  time.Time // zero: it is open
	Result  string
}

const requestColumns = `id, kind, job, lease, epoch, run_id, replica, args, left(reason, 1000), asked_by, made_at, done_at, result`

const openRequestsSQL = `SELECT ` + requestColumns + ` FROM requests WHERE done_at IS NULL AND id > $1 ORDER BY id LIMIT $2`

func scanRequest(row pgx.CollectableRow) (q Request, err error) {
	var (
		job, lease, replica, result *string
		epoch, run                  *int64
		args                        []byte
		made, done                  pgtype.Timestamptz
	)
	err = row.Scan(&q.ID, &q.Kind, &job, &lease, &epoch, &run, &replica, &args, &q.Reason, &q.By, &made, &done, &result)
	q.Job, q.Lease, q.Epoch, q.Run, q.Replica = value(job), value(lease), value(epoch), value(run), value(replica)
	q.Args, q.MadeAt, q.DoneAt, q.Result = args, instant(made), instant(done), value(result)
	return q, err
}

// ErrNoRequest says that there is no request of that id: it was pruned, or never was.
var ErrNoRequest = errors.New("there is no such request")

const requestSQL = `SELECT ` + requestColumns + ` FROM requests WHERE id = $1`

// Request reads one request, settled or not; ErrNoRequest if there is none.
func (r *Reader) Request(ctx context.Context, id int64) (q Request, err error) {
	_, err = r.ask(ctx, []question{{requestSQL, []any{id}}}, func(_ time.Time, res pgx.BatchResults) error {
		found, err := collect(res, scanRequest)
		if err == nil && len(found) == 0 {
			return pgx.ErrNoRows
		}
		if err == nil {
			q = found[0]
		}
		return err
	})
	switch {
	case errors.Is(err, pgx.ErrNoRows):
		return q, fmt.Errorf("request %d: %w", id, ErrNoRequest)
	case err != nil:
		return q, fmt.Errorf("read request %d: %w", id, err)
	}
	return q, nil
}

// RequestsOf says which of the open requests are wanted; the zero value: the oldest of all.
type RequestsOf struct {
	After int64 // only requests with a higher id
	Limit int   // 1 to Most; zero: Most
}

// Validate says what is wrong with the question.
func (q RequestsOf) Validate() error { return validPage(0, q.Limit) }

// A RequestsPage is a part of what has been asked for and not been settled, the oldest first.
type RequestsPage struct {
	AsOf time.Time
	Open []Request
	Next int64 // the After of the page that follows; zero: there is none
}

// Requests reads a page of the open requests.
func (r *Reader) Requests(ctx context.Context, q RequestsOf) (RequestsPage, error) {
	if err := q.Validate(); err != nil {
		return RequestsPage{}, err
	}
	q.Limit = cmp.Or(q.Limit, Most)
	var p RequestsPage
	var err error
	p.AsOf, err = r.ask(ctx, []question{{openRequestsSQL, []any{q.After, q.Limit + 1}}}, func(_ time.Time, res pgx.BatchResults) (err error) {
		p.Open, err = collect(res, scanRequest)
		return err
	})
	if err != nil {
		return RequestsPage{}, fmt.Errorf("read the open requests: %w", err)
	}
	if len(p.Open) > q.Limit {
		p.Open = p.Open[:q.Limit]
		p.Next = p.Open[q.Limit-1].ID
	}
	return p, nil
}
