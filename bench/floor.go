package main

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"
)

// A floor is a handover that could not do less: a bare program on three connections of which one
// releases, one hears of it and acquires, and one raises.
type floor struct {
	releaser, acquirer, raiser *pgx.Conn
	owner                      int // how many there have been
}

const floorSQL = `
CREATE TABLE floor_status (bridge_id text PRIMARY KEY, health text NOT NULL, checked_at timestamptz NOT NULL, epoch bigint NOT NULL DEFAULT 0)`

func newFloor(ctx context.Context, w *world) (f *floor, err error) {
	if _, err := w.db.Exec(ctx, floorSQL); err != nil {
		return nil, err
	}
	if _, err := w.db.Exec(ctx, fmt.Sprintf(bridgesSQL, "floor_status")); err != nil {
		return nil, err
	}
	f = &floor{}
	for _, conn := range []**pgx.Conn{&f.releaser, &f.acquirer, &f.raiser} {
		if *conn, err = pgx.Connect(ctx, w.cluster.URL("postgres")); err != nil {
			f.end()
			return nil, err
		}
	}
	if _, err = f.acquirer.Exec(ctx, "LISTEN floor"); err == nil {
		_, err = f.acquire(ctx)
	}
	if err != nil {
		f.end()
		return nil, err
	}
	return f, nil
}

func (f *floor) end() {
	for _, conn := range []*pgx.Conn{f.releaser, f.acquirer, f.raiser} {
		if conn != nil {
			_ = conn.Close(context.Background())
		}
	}
}

func (f *floor) acquire(ctx context.Context) (epoch int64, err error) {
	f.owner++
	err = f.acquirer.QueryRow(ctx, articleUpsert, "floor", fmt.Sprint("floor", f.owner)).Scan(&epoch)
	return epoch, err
}

const (
	floorReleaseSQL = `
WITH released AS (
    UPDATE leadership SET expires_at = now() - interval '1 second' WHERE job_name = 'floor' RETURNING job_name)
SELECT pg_notify('floor', job_name) FROM released`

	floorRaiseSQL = `UPDATE floor_status SET epoch = $1 WHERE epoch < $1`
)

// move is one handover: from the release to the end of the raise.
func (f *floor) move(ctx context.Context) (time.Duration, error) {
	ctx, cancel := context.WithTimeout(ctx, 20*time.Second)
	defer cancel()
	raised := make(chan error, 1)
	go func() { raised <- f.succeed(ctx) }()
	began := time.Now()
	_, err := f.releaser.Exec(ctx, floorReleaseSQL)
	if err != nil {
		cancel()
	}
	err = errors.Join(err, <-raised)
	return time.Since(began), err
}

func (f *floor) succeed(ctx context.Context) error {
	if _, err := f.acquirer.WaitForNotification(ctx); err != nil {
		return err
	}
	epoch, err := f.acquire(ctx)
	if err != nil {
		return err
	}
	_, err = f.raiser.Exec(ctx, floorRaiseSQL, epoch)
	return err
}
