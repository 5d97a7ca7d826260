package fence

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgxpool"
)

// absurdEpoch is more than counting by handovers comes to: a row that has it was damaged, and an
// epoch above it would soon be at the end of what a bigint holds.
const absurdEpoch = int64(1) << 62

// Raise brings the tables up to the token's epoch, before a new term does any work: the rows of a
// plain table, those of the shard where there is one, or the watermark of a large one. It returns the highest epoch that it met: one above the
// token's own means that the lease row has been reset or restored, and then nothing was changed.
//
// It is one statement where all tables are large or have few rows. Others are raised in batches that commit
// by themselves, so that after an error, or the end of ctx, some rows may be raised and others not;
// raising again is harmless. A row held by somebody is waited for as long as ctx lasts: a former
// leader's transaction ends by itself after half a second without a statement, and its backends are
// ended, where db's role may do so, after a fifth of a second. An epoch of 1<<62 or more is an error.
func Raise(ctx context.Context, db *pgxpool.Pool, t Token, s Shard, tables ...Table) (highest int64, err error) {
	if len(tables) == 0 {
		return 0, nil
	}
	r := &raise{db: db, token: t, shard: s, tables: make([]raised, len(tables))}
	for i, table := range tables {
		if err := table.CheckShard(); err != nil && !s.Whole() {
			return 0, err
		}
		r.tables[i].Table = table
	}
	err = r.run(ctx)
	return r.highest, err
}

// A raise is that of all tables of a term.
type raise struct {
	db     *pgxpool.Pool
	token  Token
	shard  Shard
	tables []raised

	highest int64 // epoch that was met before anything was changed
}

// raised is how far a table's raise has come.
type raised struct {
	Table
	highest int64 // epoch of any row, and of the watermark
	below   int64 // rows with an epoch under the token's
	marked  bool  // it has a watermark
	held    bool  // a large table's triggers compare with its watermark
}

func (r *raise) run(ctx context.Context) error {
	err := r.retry(ctx, r.tables, func(ctx context.Context) error { return r.first(ctx, r.tables) })
	for _, table := range r.tables {
		r.highest = max(r.highest, table.highest)
	}
	if err != nil {
		return fmt.Errorf("raise %s to epoch %d: %w", names(r.tables), r.token.Epoch, err)
	}
	if r.highest > r.token.Epoch {
		return nil
	}
	for i := range r.tables {
		if err := r.rest(ctx, r.tables[i:i+1]); err != nil {
			return fmt.Errorf("raise %s to epoch %d: %w", r.tables[i].Name, r.token.Epoch, err)
		}
	}
	return nil
}

func names(tables []raised) string {
	all := make([]string, len(tables))
	for i, t := range tables {
		all[i] = t.Name
	}
	return strings.Join(all, ", ")
}

// rest raises what the first statement has left: many rows.
// Writes of earlier terms cannot add to it: a guard refuses them since the takeover.
func (r *raise) rest(ctx context.Context, one []raised) error {
	t := &one[0]
	if t.done() {
		return nil
	}
	if err := r.retry(ctx, one, func(ctx context.Context) error { return r.mark(ctx, t) }); err != nil {
		return err
	}
	for t.below > 0 {
		pages, step, err := r.size(ctx, t)
		if err != nil {
			return err
		}
		for from := int64(0); from < pages; from += step {
			to := from + step
			if to >= pages {
				to = endOfTable // it may have grown
			}
			if err := r.retry(ctx, one, func(ctx context.Context) error { return r.some(ctx, t, from, to) }); err != nil {
				return err
			}
		}
		// A row that somebody's update moved from a range to come into one that is done is found here.
		if err := r.retry(ctx, one, func(ctx context.Context) error { return r.first(ctx, one) }); err != nil {
			return err
		}
	}
	return nil
}

// markSQL moves the watermark of a table that its job no longer calls large, so that it is not
// below the rows. It has committed before the first row is raised, whose trigger looks at it.
const markSQL = `UPDATE fence_watermarks SET epoch = $1::bigint WHERE protected = $2::text::regclass AND epoch < $1::bigint AND ` + waitSQL

func (r *raise) mark(ctx context.Context, t *raised) error {
	if !t.marked {
		return nil
	}
	_, err := r.db.Exec(ctx, markSQL, r.token.Epoch, t.ident())
	return err
}

// sizeSQL asks for the pages of the largest partition, and for how many partitions there are.
const sizeSQL = `
SELECT max(pg_relation_size(part)) / current_setting('block_size')::bigint, count(*)
  FROM (SELECT $1::text::regclass UNION SELECT relid FROM pg_partition_tree($1::text::regclass) WHERE isleaf) AS parts (part)`

// raisePages is about how much of a table one statement raises where there is much: as raiseRows.
const raisePages = 32

func (r *raise) size(ctx context.Context, t *raised) (pages, step int64, err error) {
	var parts int64
	if err := r.db.QueryRow(ctx, sizeSQL, t.ident()).Scan(&pages, &parts); err != nil {
		return 0, 0, fmt.Errorf("ask for its size: %w", err)
	}
	return pages, max(1, raisePages/parts), nil
}

// waitSQL keeps a raise from waiting long without looking who holds it up. As an uncorrelated
// subquery it takes effect before the first row is locked, in the same round trip.
const waitSQL = `(SELECT set_config('lock_timeout', '200ms', true)) IS NOT NULL`

// endOfTable is the page after the last one that a table can have.
const endOfTable = int64(1)<<32 - 1

// raiseSomeSQL walks the table by its pages, those with one number in all partitions at once: each
// page is read once, whatever index there is, and rights on the partitions themselves are not needed.
const raiseSomeSQL = `
UPDATE %s SET epoch = $1::bigint WHERE ctid >= $2::tid AND ctid < $3::tid AND epoch < $1::bigint%s AND ` + waitSQL

func (r *raise) some(ctx context.Context, t *raised, from, to int64) error {
	_, err := r.db.Exec(ctx, fmt.Sprintf(raiseSomeSQL, t.ident(), t.ownSQL(r.shard)), r.token.Epoch, firstRow(from), firstRow(to))
	return err
}

func firstRow(page int64) string { return fmt.Sprintf("(%d,0)", page) }

// retry makes a statement until nobody holds it up, and ends the backends that do where it may.
func (r *raise) retry(ctx context.Context, tables []raised, do func(context.Context) error) error {
	var held, cannotEnd error
	for {
		err := do(ctx)
		if heldUp(err) {
			held, cannotEnd = err, r.endFormer(ctx, tables)
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

// endFormerSQL ends the backends of other replicas that have written to the tables or locked rows of
// them: only the tables' job does, so that they are a former leader's. Those of a replica that leads
// a shard of the job are left alone, and end by themselves. A raise that is itself late, its lease
// being another's by now, ends nobody. Behind a pooler, or where db's connections do not
// carry the replica's application_name, it may find nobody either.
const endFormerSQL = `
SELECT pg_terminate_backend(a.pid) FROM pg_stat_activity a
 WHERE a.datname = current_database() AND a.pid <> pg_backend_pid()
   AND a.application_name LIKE 'rota %' AND a.application_name <> current_setting('application_name')
   AND a.pid IN (SELECT l.pid FROM pg_locks l
                  WHERE l.locktype = 'relation' AND l.granted AND l.mode <> 'AccessShareLock'
                    AND l.database = (SELECT oid FROM pg_database WHERE datname = current_database())
                    AND l.relation IN (SELECT part FROM unnest($2::text[]) AS name,
                                              LATERAL (SELECT name::regclass UNION ALL
                                                       SELECT relid FROM pg_partition_tree(name::regclass)) AS parts (part)))
   AND EXISTS (SELECT FROM leadership WHERE epoch = $1::bigint AND job_name = $3::text AND owner = $4::text)
   AND a.application_name NOT IN (
       SELECT 'rota ' || regexp_replace(owner, '^.*/', '') FROM leadership
        WHERE job_name = ANY ($5::text[]) AND expires_at > clock_timestamp())`

func (r *raise) endFormer(ctx context.Context, tables []raised) error {
	idents := make([]string, len(tables))
	for i, t := range tables {
		idents[i] = t.ident()
	}
	var kin []string
	if !r.shard.Whole() {
		job, _ := SplitLease(r.token.Lease)
		for _, s := range Shards(r.shard.Of) {
			kin = append(kin, s.Lease(job))
		}
	}
	_, err := r.db.Exec(ctx, endFormerSQL, r.token.Epoch, idents, r.token.Lease, r.token.Owner, kin)
	return err
}
