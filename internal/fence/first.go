package fence

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/jackc/pgx/v5"
)

// raiseRows is the most that one statement raises, so that nobody waits long for its locks.
const raiseRows = 4000

// The first statement of a raise looks at all tables and, if nothing is above the token's epoch,
// moves the watermarks of the large ones and raises those with few rows at once: every round trip is
// a part of the time in which nobody leads, and so is what there is to plan. It is put together from
// these parts; $1 is the epoch, %[1]s the table, %[2]d the parameter that names it, and the rows of a
// shard are told from others by a condition.
const (
	lookSQL = `
at%[2]d AS MATERIALIZED (
    SELECT coalesce(max(epoch), 0) AS highest, count(*) FILTER (WHERE epoch < $1::bigint) AS below,
           (SELECT epoch FROM fence_watermarks WHERE protected = $%[2]d::text::regclass) AS mark, false AS held
      FROM %[1]s WHERE true%[3]s)`

	// Of a large table no row is read; what matters is that its triggers are there.
	lookLargeSQL = `
at%[2]d AS MATERIALIZED (
    SELECT 0::bigint AS highest, 0::bigint AS below,
           (SELECT epoch FROM fence_watermarks WHERE protected = $%[2]d::text::regclass) AS mark,
           (SELECT count(*) = 2 FROM pg_trigger
             WHERE tgrelid = $%[2]d::text::regclass AND tgname IN ('rota_watermark_1', 'rota_watermark_2')
               AND tgfoid = 'rota_watermark'::regproc AND tgenabled IN ('O', 'A')) AS held)`

	// notAboveSQL is a condition of every change, for each table. As an uncorrelated subquery, like the
	// one in waitSQL, it is decided before the first row.
	notAboveSQL = ` AND (SELECT greatest(highest, mark) <= $1::bigint FROM at%[2]d)`

	raiseFewSQL = `
raised%[2]d AS (
    UPDATE %[1]s SET epoch = $1::bigint
     WHERE epoch < $1::bigint%[5]s AND (SELECT below <= %[4]d AND mark IS NULL FROM at%[2]d)%[3]s AND ` + waitSQL + `)`

	moveSQL = `
raised%[2]d AS (
    UPDATE fence_watermarks SET epoch = $1::bigint
     WHERE epoch < $1::bigint AND protected = $%[2]d::text::regclass%[3]s AND ` + waitSQL + `)`

	tellSQL = `
SELECT %[2]d, greatest(highest, mark), below, mark IS NOT NULL, held FROM at%[2]d`
)

// firstParam is the number of the parameter that names the first table.
const firstParam = 2

func firstSQL(tables []raised, s Shard) string {
	var parts, changes, tells []string
	notAbove := ""
	for i, t := range tables {
		look, change := lookSQL, raiseFewSQL
		if t.Large {
			look, change = lookLargeSQL, moveSQL
		}
		n := firstParam + i
		parts = append(parts, fmt.Sprintf(look, t.ident(), n, t.ownSQL(s)))
		changes = append(changes, change)
		tells = append(tells, fmt.Sprintf(tellSQL, "", n))
		notAbove += fmt.Sprintf(notAboveSQL, "", n)
	}
	for i, t := range tables {
		parts = append(parts, fmt.Sprintf(changes[i], t.ident(), firstParam+i, notAbove, raiseRows, t.ownSQL(s)))
	}
	return "WITH" + strings.Join(parts, ",") + strings.Join(tells, " UNION ALL")
}

// first sends the first statement, and reads what it met.
func (r *raise) first(ctx context.Context, tables []raised) error {
	args := []any{r.token.Epoch}
	for _, t := range tables {
		args = append(args, t.ident())
	}
	rows, err := r.db.Query(ctx, firstSQL(tables, r.shard), args...)
	if err != nil {
		return err
	}
	var n int
	var met raised
	if _, err = pgx.ForEachRow(rows, []any{&n, &met.highest, &met.below, &met.marked, &met.held}, func() error {
		t := &tables[n-firstParam]
		met.Table = t.Table
		*t = met
		return nil
	}); err != nil {
		return err
	}
	for _, t := range tables {
		if err := t.check(r.token.Epoch, r.shard); err != nil {
			return err
		}
	}
	return nil
}

// done says whether the first statement has raised all of the table.
func (t *raised) done() bool { return t.Large || t.below <= raiseRows && !t.marked }

// check refuses a table whose fence does not hold.
func (t *raised) check(epoch int64, s Shard) error {
	if t.marked && !s.Whole() {
		return fmt.Errorf("%s has a watermark, which one shard would move for all: SELECT fence_protect('%[1]s', false)", t.ident())
	}
	if t.Large && !(t.marked && t.held) {
		return fmt.Errorf("%s is not protected as a large table, by a watermark and its triggers: SELECT fence_protect('%[1]s', true)", t.ident())
	}
	if t.highest < absurdEpoch {
		return nil
	}
	if t.marked {
		return absurd("fence_watermarks", "the watermark of "+t.ident(), t.highest, epoch)
	}
	return absurd(t.ident(), "a row", t.highest, epoch)
}

func absurd(table, what string, met, epoch int64) error {
	return errors.New(what + fmt.Sprintf(" has epoch %[2]d, which no count of terms comes to: after ALTER TABLE %[1]s DISABLE TRIGGER rota_keep_epoch, correct it by UPDATE %[1]s SET epoch = %[3]d WHERE epoch >= %[4]d, and enable the trigger again",
		table, met, epoch, absurdEpoch))
}
