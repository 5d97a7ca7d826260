package main

import (
	"slices"

	"github.com/jackc/pgx/v5/pgxpool"

	"rota/internal/registry"
	"rota/internal/scheduler"
)

// The product's own job is one of the registered ones, so that every command knows it, a jobs file
// may change it, and another of its name is refused.
func init() { registry.Register(scheduler.History(nil, scheduler.Keep{})) }

// withHistory gives the job that prunes history its settings, and what it deletes with.
func withHistory(jobs []registry.Job, db *pgxpool.Pool, cfg Config) []registry.Job {
	jobs = slices.Clone(jobs)
	for i := range jobs {
		if jobs[i].Name == scheduler.HistoryName {
			jobs[i].Run = scheduler.History(db, scheduler.Keep{Age: cfg.KeepHistory, Runs: cfg.KeepRuns}).Run
		}
	}
	return jobs
}
