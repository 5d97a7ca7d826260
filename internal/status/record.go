package status

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"
)

// ErrNoRun says that the history has no run of that id: it was pruned, or never was.
var ErrNoRun = errors.New("there is no such run in the history")

// A RunRecord is all that is known of one run.
type RunRecord struct {
	AsOf     time.Time
	Run      Run      // with the whole of its error, up to 64 KiB
	Log      string   // the last of the lines that it logged
	Attempts []Run    // all at the same tick, itself too, in their order
	Again    bool     // the last of them was cut short, and the next term makes another
	Request  *Request // what it was made for; nil: its schedule, or a request that was pruned
}

const (
	runSQL = `SELECT log, left(error, 65536), ` + runColumns + ` FROM runs WHERE id = $1`

	attemptsSQL = `
SELECT ` + runColumns + `
  FROM runs
 WHERE (lease, tick) = (SELECT lease, tick FROM runs WHERE id = $1)
 ORDER BY attempt LIMIT 200`

	againSQL = `SELECT EXISTS (SELECT FROM runs WHERE (lease, tick) = (SELECT lease, tick FROM runs WHERE id = $1) AND again)`

	requestOfSQL = `SELECT ` + requestColumns + ` FROM requests WHERE id = (SELECT request_id FROM runs WHERE id = $1)`
)

// Run reads one run; ErrNoRun if there is none.
func (r *Reader) Run(ctx context.Context, id int64) (RunRecord, error) {
	var rec RunRecord
	var err error
	asked := []question{{runSQL, []any{id}}, {attemptsSQL, []any{id}}, {againSQL, []any{id}}, {requestOfSQL, []any{id}}}
	rec.AsOf, err = r.ask(ctx, asked, func(_ time.Time, res pgx.BatchResults) (err error) {
		var row runRow
		var log, fault *string
		if err := res.QueryRow().Scan(append([]any{&log, &fault}, row.columns()...)...); err != nil {
			return err
		}
		rec.Run, rec.Log, rec.Run.Error = *row.run(), value(log), value(fault)
		if rec.Attempts, err = collect(res, scanRun); err != nil {
			return err
		}
		if err := res.QueryRow().Scan(&rec.Again); err != nil {
			return err
		}
		requests, err := collect(res, scanRequest)
		if len(requests) > 0 {
			rec.Request = &requests[0]
		}
		return err
	})
	switch {
	case errors.Is(err, pgx.ErrNoRows):
		return RunRecord{}, fmt.Errorf("run %d: %w", id, ErrNoRun)
	case err != nil:
		return RunRecord{}, fmt.Errorf("read run %d: %w", id, err)
	}
	return rec, nil
}
