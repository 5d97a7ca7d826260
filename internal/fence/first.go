package fence

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/jackc/pgx/v5"
)

// The first statement of a raise looks at all tables and, if nothing is above the token's epoch,
// moves the watermarks of the large ones and raises the rows of the small ones at once: every round
// trip is a part of the time in which nobody leads. It is put together from these parts; $1 is the
// epoch, and %[2]d the parameter that names the table %[1]s.
const (
	marksSQL = `
mark AS MATERIALIZED (SELECT protected, epoch FROM fence_watermarks WHERE protected = ANY (ARRAY[%s]::regclass[]))`

	lookSQL = `,
rows%[2]d AS MATERIALIZED (
    SELECT coalesce(max(epoch), 0) AS highest, count(*) FILTER (WHERE epoch < $1::bigint) AS below FROM %[1]s
), size%[2]d AS MATERIALIZED (
    SELECT pages, greatest(1, %[3]d / greatest(1, parts)) AS step
      FROM (SELECT max(pg_relation_size(oid)) / current_setting('block_size')::bigint AS pages, count(*) - 1 AS parts
              FROM (SELECT $%[2]d::text::regclass AS oid UNION ALL
                    SELECT relid FROM pg_partition_tree($%[2]d::text::regclass) WHERE isleaf) AS part) AS parts
)`

	// A large table's row count is of no interest; what matters is that its triggers are there.
	largeSQL = `,
rows%[2]d AS MATERIALIZED (
    SELECT 0::bigint AS highest, 0::bigint AS below
), size%[2]d AS MATERIALIZED (
    SELECT 0::bigint AS pages, count(*) AS step FROM pg_trigger
     WHERE tgrelid = $%[2]d::text::regclass AND tgname IN ('rota_watermark_1', 'rota_watermark_2')
       AND tgfoid = 'rota_watermark'::regproc AND tgenabled IN ('O', 'A')
)`

	topSQL = `,
top AS MATERIALIZED (SELECT max(highest) AS highest FROM (SELECT max(epoch) AS highest FROM mark%s) AS each)`

	moveSQL = `,
moved AS (
    UPDATE fence_watermarks SET epoch = $1::bigint
     WHERE protected = ANY (ARRAY[%s]::regclass[]) AND epoch < $1::bigint
       AND coalesce((SELECT highest FROM top), 0) <= $1::bigint AND ` + waitSQL + `
)`

	raiseAllSQL = `,
raised%[2]d AS (
    UPDATE %[1]s SET epoch = $1::bigint
     WHERE epoch < $1::bigint AND (SELECT highest FROM top) <= $1::bigint AND (SELECT pages <= step FROM size%[2]d)
       AND NOT EXISTS (SELECT FROM mark WHERE protected = $%[2]d::text::regclass) AND ` + waitSQL + `
)`

	tellSQL = `
SELECT %[2]d AS i, greatest(highest, epoch), below, pages, step, epoch IS NOT NULL
  FROM rows%[2]d, size%[2]d LEFT JOIN mark ON protected = $%[2]d::text::regclass`
)

// firstParam is the number of the parameter that names the first table.
const firstParam = 2

func firstSQL(tables []raised) string {
	var looks, raises, above, tells, all, large []string
	for i, t := range tables {
		n := i + firstParam
		param := fmt.Sprintf("$%d::text", n)
		all = append(all, param)
		if t.Large {
			large = append(large, param)
			looks = append(looks, fmt.Sprintf(largeSQL, t.ident(), n))
		} else {
			looks = append(looks, fmt.Sprintf(lookSQL, t.ident(), n, raisePages))
			raises = append(raises, fmt.Sprintf(raiseAllSQL, t.ident(), n))
			above = append(above, fmt.Sprintf(" UNION ALL SELECT highest FROM rows%d", n))
		}
		tells = append(tells, fmt.Sprintf(tellSQL, t.ident(), n))
	}
	if len(large) > 0 {
		raises = append(raises, fmt.Sprintf(moveSQL, list(large)))
	}
	return "WITH" + fmt.Sprintf(marksSQL, list(all)) + strings.Join(looks, "") +
		fmt.Sprintf(topSQL, strings.Join(above, "")) + strings.Join(raises, "") +
		strings.Join(tells, " UNION ALL") + " ORDER BY i"
}

// first sends the first statement, and reads what it met.
func (r *raise) first(ctx context.Context, tables []raised) error {
	args := []any{r.token.Epoch}
	for _, t := range tables {
		args = append(args, t.ident())
	}
	rows, err := r.db.Query(ctx, firstSQL(tables), args...)
	if err != nil {
		return err
	}
	var n int
	var met raised
	if _, err = pgx.ForEachRow(rows, []any{&n, &met.highest, &met.below, &met.pages, &met.step, &met.large}, func() error {
		t := &tables[n-firstParam]
		met.Table = t.Table
		*t = met
		return nil
	}); err != nil {
		return err
	}
	for _, t := range tables {
		if err := t.check(r.token.Epoch); err != nil {
			return err
		}
	}
	return nil
}

// small says whether the first statement has raised all rows of a plain table.
func (t *raised) small() bool { return t.pages <= t.step }

// check refuses a table whose fence does not hold.
func (t *raised) check(epoch int64) error {
	if t.Large && (!t.large || t.step != 2) {
		return fmt.Errorf("%s is not protected as a large table, by a watermark and its triggers: SELECT fence_protect('%[1]s', true)", t.ident())
	}
	if t.highest < absurdEpoch {
		return nil
	}
	if t.large {
		return absurd("fence_watermarks", "the watermark of "+t.ident(), t.highest, epoch)
	}
	return absurd(t.ident(), "a row", t.highest, epoch)
}

func absurd(table, what string, met, epoch int64) error {
	return errors.New(what + fmt.Sprintf(" has epoch %[2]d, which no count of terms comes to: after ALTER TABLE %[1]s DISABLE TRIGGER rota_keep_epoch, correct it by UPDATE %[1]s SET epoch = %[3]d WHERE epoch >= %[4]d, and enable the trigger again",
		table, met, epoch, absurdEpoch))
}
