package status

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgtype"
)

// A LastTick is how far a lease's schedule has come.
type LastTick struct {
	AsOf     time.Time
	Tick     time.Time // the newest that was claimed or written off, or when counting began; zero: nobody has led it
	Schedule string    // by which it was counted
	Run      *Run      // the newest attempt at Tick, or the record of ticks that it is one of; nil: there is none
}

const progressSQL = `SELECT last_tick, schedule FROM progress WHERE lease = $1`

const schedulesSQL = `SELECT lease, schedule FROM progress`

// Schedules reads by which schedule the ticks of each lease are counted: that of the replica that led
// it last, with its jobs file.
func (r *Reader) Schedules(ctx context.Context) (map[string]string, error) {
	counted := map[string]string{}
	_, err := r.ask(ctx, []question{{schedulesSQL, nil}}, func(_ time.Time, res pgx.BatchResults) error {
		rows, err := res.Query()
		if err != nil {
			return err
		}
		var lease, schedule string
		_, err = pgx.ForEachRow(rows, []any{&lease, &schedule}, func() error {
			counted[lease] = schedule
			return nil
		})
		return err
	})
	if err != nil {
		return nil, fmt.Errorf("read the schedules: %w", err)
	}
	return counted, nil
}

// A row for several ticks stands at the last of them.
const runOfTickSQL = `
SELECT ` + runColumns + `
  FROM runs, (SELECT last_tick FROM progress WHERE lease = $1) p
 WHERE lease = $1 AND request_id IS NULL
   AND tick >= (SELECT last_tick FROM progress WHERE lease = $1) AND coalesce(first_tick, tick) <= p.last_tick
 ORDER BY tick, attempt DESC LIMIT 1`

// LastTick reads how far a lease's schedule has come.
func (r *Reader) LastTick(ctx context.Context, lease string) (LastTick, error) {
	var t LastTick
	var err error
	t.AsOf, err = r.ask(ctx, []question{{progressSQL, []any{lease}}, {runOfTickSQL, []any{lease}}},
		func(_ time.Time, res pgx.BatchResults) error {
			var last pgtype.Timestamptz
			err := res.QueryRow().Scan(&last, &t.Schedule)
			if err != nil && !errors.Is(err, pgx.ErrNoRows) {
				return err
			}
			t.Tick = instant(last)
			runs, err := collect(res, scanRun)
			if len(runs) > 0 {
				t.Run = &runs[0]
			}
			return err
		})
	if err != nil {
		return LastTick{}, fmt.Errorf("read the last tick of %s: %w", lease, err)
	}
	return t, nil
}
