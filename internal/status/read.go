package status

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgtype"
)

// JIT compilation costs such a short query a tenth of its time.
const beginSQL = `
SELECT clock_timestamp(), set_config('statement_timeout', $1, true), set_config('jit', 'off', true)`

// read makes one snapshot, in one transaction, so that no row of it is older than another.
func (r *Reader) read(ctx context.Context) (*Snapshot, error) {
	s := new(Snapshot)
	opts := pgx.TxOptions{IsoLevel: pgx.RepeatableRead, AccessMode: pgx.ReadOnly}
	err := pgx.BeginTxFunc(ctx, r.db, opts, func(tx pgx.Tx) error { return r.load(ctx, tx, s) })
	if err != nil {
		return nil, fmt.Errorf("read the status: %w", err)
	}
	s.Tag, err = tag(s)
	return s, err
}

func (r *Reader) load(ctx context.Context, tx pgx.Tx, s *Snapshot) error {
	var b pgx.Batch
	b.Queue(beginSQL, fmt.Sprint(r.patience.Milliseconds()))
	b.Queue(leasesSQL, Window)
	b.Queue(refusedSQL)
	b.Queue(replicasSQL)
	res := tx.SendBatch(ctx, &b)
	defer func() { _ = res.Close() }() // an error shows in what is read before

	if err := res.QueryRow().Scan(&s.AsOf, nil, nil); err != nil {
		return fmt.Errorf("begin: %w", err)
	}
	s.AsOf = s.AsOf.UTC()
	rows, err := collect(res, scanLease)
	if err != nil {
		return fmt.Errorf("leases: %w", err)
	}
	refused, err := collect(res, scanRefused)
	if err != nil {
		return fmt.Errorf("refused writes: %w", err)
	}
	s.Replicas, err = collect(res, scanReplica)
	if err != nil {
		return fmt.Errorf("replicas: %w", err)
	}
	s.Leases = describe(s.AsOf, rows, refused, r.jobs)
	s.Replicas = stand(s.AsOf, s.Replicas, s.Leases)
	return nil
}

func collect[T any](res pgx.BatchResults, scan pgx.RowToFunc[T]) ([]T, error) {
	rows, err := res.Query()
	if err != nil {
		return nil, err
	}
	return pgx.CollectRows(rows, scan)
}

// tag is the same for two snapshots that say the same, whenever and by whichever replica they were
// read.
func tag(s *Snapshot) (string, error) {
	h := sha256.New()
	err := json.NewEncoder(h).Encode(struct {
		Leases   []Lease
		Replicas []Replica
	}{s.Leases, s.Replicas})
	if err != nil {
		return "", fmt.Errorf("tag the status: %w", err)
	}
	return hex.EncodeToString(h.Sum(nil)[:12]), nil
}

// instant is a time that Go and JSON can say; zero for NULL, an infinity, and years beyond 9999,
// any of which another program may have written.
func instant(ts pgtype.Timestamptz) time.Time {
	t := ts.Time.UTC()
	if !ts.Valid || ts.InfinityModifier != pgtype.Finite || t.Year() < 1 || t.Year() > 9999 {
		return time.Time{}
	}
	return t
}

// ordered is a time that compares with others as the database would compare it.
func ordered(ts pgtype.Timestamptz) time.Time {
	if ts.InfinityModifier == pgtype.Infinity {
		return time.Unix(1<<40, 0)
	}
	return ts.Time // minus infinity is the zero time
}

func value[T any](p *T) (v T) {
	if p != nil {
		v = *p
	}
	return v
}
