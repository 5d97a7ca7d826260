package lease

import (
	"context"
	"fmt"

	"github.com/jackc/pgx/v5"
)

const abilitiesSQL = `SELECT id, jobs FROM abilities WHERE id = ANY ($1::text[])`

func (p *postgres) abilities(ctx context.Context, ids []string) (found []ability, err error) {
	err = run(ctx, p.db, segment{{sql: abilitiesSQL, args: []any{ids}, read: func(rows pgx.Rows) error {
		var id string
		var jobs []string
		_, err := pgx.ForEachRow(rows, []any{&id, &jobs}, func() error {
			a := newAbility(jobs)
			a.id = id
			found = append(found, *a)
			return nil
		})
		return err
	}}})
	if err != nil {
		return nil, fmt.Errorf("ask what members can lead: %w", err)
	}
	return found, nil
}
