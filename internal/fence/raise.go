package fence

import (
	"context"
	"errors"
	"fmt"

	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgxpool"
)

// absurdEpoch is more than counting by handovers comes to: a row that has it was damaged, and an
// epoch above it would soon be at the end of what a bigint holds.
const absurdEpoch = int64(1) << 62

// raisePages is about how much of a table one statement raises: short enough that nobody waits long
// for its locks, some thousands of rows at most.
const raisePages = 32

// Raise brings the rows of the tables up to the token's epoch, before a new term does any work,
// and returns the highest epoch that it met on them: one above the token's own means that the
// lease row has been reset or restored, and then no row was changed.
//
// It works in batches that commit by themselves, so that after an error, or the end of ctx, some
// rows may be raised and others not; raising again is harmless. A row held by somebody is waited
// for as long as ctx lasts: a former leader's transaction ends by itself after half a second
// without a statement, and its backends are ended, where db's role may do so, after a fifth of a
// second. An epoch of 1<<62 or more on a row is an error.
func Raise(ctx context.Context, db *pgxpool.Pool, t Token, tables ...Table) (highest int64, err error) {
	raises := make([]*raise, len(tables))
	for i, table := range tables {
		raises[i] = &raise{db: db, token: t, table: table}
		if err := raises[i].look(ctx); err != nil {
			return highest, fmt.Errorf("raise %s: %w", table.Name, err)
		}
		highest = max(highest, raises[i].highest)
	}
	if highest > t.Epoch {
		return highest, nil
	}
	for _, r := range raises {
		if err := r.run(ctx); err != nil {
			return highest, fmt.Errorf("raise %s to epoch %d: %w", r.table.Name, t.Epoch, err)
		}
	}
	return highest, nil
}

// A raise is that of one table.
type raise struct {
	db    *pgxpool.Pool
	token Token
	table Table

	highest int64 // epoch of any row
	below   int64 // rows with an epoch under the token's
	pages   int64 // of the largest partition
	parts   int64 // partitions that hold rows; 1 for a plain table
}

// partsSQL lists the tables that hold the rows: the table itself, or its partitions.
const partsSQL = `
    SELECT oid FROM pg_class
     WHERE relkind <> 'p'
       AND (oid = $2::text::regclass OR oid IN (SELECT relid FROM pg_partition_tree($2::text::regclass)))`

const lookSQL = `
SELECT t.highest, t.below, p.pages, p.parts
  FROM (SELECT coalesce(max(epoch), 0) AS highest, count(*) FILTER (WHERE epoch < $1::bigint) AS below FROM %s) AS t,
       (SELECT coalesce(max(pg_relation_size(oid)) / current_setting('block_size')::bigint, 0) AS pages,
               greatest(count(*), 1) AS parts
          FROM (` + partsSQL + `) AS part) AS p`

// look reads the table's epochs and its size.
func (r *raise) look(ctx context.Context) error {
	ident := r.table.ident()
	row := r.db.QueryRow(ctx, fmt.Sprintf(lookSQL, ident), r.token.Epoch, ident)
	if err := row.Scan(&r.highest, &r.below, &r.pages, &r.parts); err != nil {
		return fmt.Errorf("read its epochs: %w", err)
	}
	if r.highest >= absurdEpoch {
		return fmt.Errorf("a row has epoch %[2]d, which no count of terms comes to: after ALTER TABLE %[1]s DISABLE TRIGGER rota_keep_epoch, correct it by UPDATE %[1]s SET epoch = %[3]d WHERE epoch >= %[4]d, and enable the trigger again",
			ident, r.highest, r.token.Epoch, absurdEpoch)
	}
	return nil
}

// run raises until no row is left below. Writes of earlier terms cannot add any: a guard refuses
// them since the takeover.
func (r *raise) run(ctx context.Context) error {
	for r.below > 0 {
		step := max(1, raisePages/r.parts)
		if r.pages <= step {
			return r.retry(ctx, r.all)
		}
		for from := int64(0); from < r.pages; from += step {
			to := from + step
			if to >= r.pages {
				to = endOfTable // it may have grown
			}
			if err := r.retry(ctx, func(ctx context.Context) error { return r.some(ctx, from, to) }); err != nil {
				return err
			}
		}
		// A row that somebody's update moved from a range to come into one that is done is found here.
		if err := r.look(ctx); err != nil {
			return err
		}
	}
	return nil
}

// waitSQL keeps a raise from waiting long without looking who holds it up. As an uncorrelated
// subquery it takes effect before the first row is locked, in the same round trip.
const waitSQL = `(SELECT set_config('lock_timeout', '200ms', true)) IS NOT NULL`

const raiseAllSQL = `UPDATE %s SET epoch = $1::bigint WHERE epoch < $1::bigint AND ` + waitSQL

func (r *raise) all(ctx context.Context) error {
	_, err := r.db.Exec(ctx, fmt.Sprintf(raiseAllSQL, r.table.ident()), r.token.Epoch)
	return err
}

// endOfTable is the page after the last one that a table can have.
const endOfTable = int64(1)<<32 - 1

// raiseSomeSQL walks the table by its pages, those with one number in all partitions at once: each
// page is read once, whatever index there is, and rights on the partitions themselves are not needed.
const raiseSomeSQL = `
UPDATE %s SET epoch = $1::bigint WHERE ctid >= $2::tid AND ctid < $3::tid AND epoch < $1::bigint AND ` + waitSQL

func (r *raise) some(ctx context.Context, from, to int64) error {
	_, err := r.db.Exec(ctx, fmt.Sprintf(raiseSomeSQL, r.table.ident()), r.token.Epoch, firstRow(from), firstRow(to))
	return err
}

func firstRow(page int64) string { return fmt.Sprintf("(%d,0)", page) }

// retry makes a statement until nobody holds it up, and ends the backends that do where it may.
func (r *raise) retry(ctx context.Context, do func(context.Context) error) error {
	var held, cannotEnd error
	for {
		err := do(ctx)
		if heldUp(err) {
			held, cannotEnd = err, r.endFormer(ctx)
			continue
		}
		if err == nil || held == nil {
			return err
		}
		if cannotEnd != nil {
			held = fmt.Errorf("%w; the backends of a former leader could not be ended: %w", held, cannotEnd)
		}
		return fmt.Errorf("%w: another transaction holds its rows: %w", err, held)
	}
}

func heldUp(err error) bool {
	var pg *pgconn.PgError
	return errors.As(err, &pg) && (pg.Code == "40P01" || pg.Code == "55P03") // deadlock, lock timeout
}

// endFormerSQL ends the backends of other replicas that have written to the table or locked rows of
// it: only the table's job does, so that they are a former leader's. A raise that is itself late,
// its lease being another's by now, ends nobody. Behind a pooler, or where db's connections do not
// carry the replica's application_name, it may find nobody either.
const endFormerSQL = `
SELECT pg_terminate_backend(a.pid) FROM pg_stat_activity a
 WHERE a.datname = current_database() AND a.pid <> pg_backend_pid()
   AND a.application_name LIKE 'rota %' AND a.application_name <> current_setting('application_name')
   AND a.pid IN (SELECT l.pid FROM pg_locks l
                  WHERE l.locktype = 'relation' AND l.granted AND l.mode <> 'AccessShareLock'
                    AND l.database = (SELECT oid FROM pg_database WHERE datname = current_database())
                    AND l.relation IN (` + partsSQL + `))
   AND EXISTS (SELECT FROM leadership WHERE epoch = $1::bigint AND job_name = $3::text AND owner = $4::text)`

func (r *raise) endFormer(ctx context.Context) error {
	_, err := r.db.Exec(ctx, endFormerSQL, r.token.Epoch, r.table.ident(), r.token.Lease, r.token.Owner)
	return err
}
