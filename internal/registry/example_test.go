package registry_test

import (
	"context"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"

	"rota/internal/fence"
	"rota/internal/registry"
)

// A job is a name, a schedule, and a function. What it writes goes through the fence, and the
// tables are named, so that a leader that wakes up late cannot overwrite its successor's work.
func ExampleRegister() {
	prices := fence.Table{Name: "prices", Key: []string{"symbol"}, Stamp: "priced_at"}
	type price struct {
		Symbol string  `db:"symbol"`
		Bid    float64 `db:"bid"`
	}
	type limits struct{ MaxSymbols int }

	registry.Register(registry.Job{
		Name:     "price_check",
		About:    "Keeps the last bid of every symbol.",
		Schedule: registry.Every(5 * time.Second),
		Timeout:  4 * time.Second,
		Protects: []fence.Table{prices},
		Args:     limits{MaxSymbols: 500},
		Run: func(ctx context.Context, run *registry.Run) error {
			rows, err := run.DB.Query(ctx, `SELECT symbol, bid FROM quotes LIMIT $1`, run.Args.(limits).MaxSymbols)
			if err != nil {
				return fmt.Errorf("read the quotes: %w", err)
			}
			found, err := pgx.CollectRows(rows, pgx.RowToStructByName[price])
			if err != nil {
				return fmt.Errorf("read the quotes: %w", err)
			}
			return run.Fence.Upsert(ctx, prices, found)
		},
	})

	jobs, err := registry.Jobs()
	fmt.Println(len(jobs), "job:", jobs[0].Name, jobs[0].Schedule.Words(), err)
	// Output: 1 job: price_check every 5 s <nil>
}

func ExampleCron() {
	daily := registry.Cron("0 8 * * *").In("Europe/Berlin")
	fmt.Println(daily.Words())
	fmt.Println(daily.Next(time.Date(2026, 7, 1, 12, 0, 0, 0, time.UTC)))
	// Output:
	// daily at 08:00 Europe/Berlin
	// 2026-07-02 06:00:00 +0000 UTC
}
