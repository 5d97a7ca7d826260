package status

import (
	"context"
	"encoding/json"
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

const openRequestsSQL = `SELECT ` + requestColumns + ` FROM requests WHERE done_at IS NULL ORDER BY id LIMIT 1000`

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

// Requests reads what has been asked for and not been settled, the oldest first, 1,000 at most.
func (r *Reader) Requests(ctx context.Context) (asOf time.Time, open []Request, err error) {
	asOf, err = r.ask(ctx, []question{{openRequestsSQL, nil}}, func(_ time.Time, res pgx.BatchResults) (err error) {
		open, err = collect(res, scanRequest)
		return err
	})
	if err != nil {
		return asOf, nil, fmt.Errorf("read the open requests: %w", err)
	}
	return asOf, open, nil
}
