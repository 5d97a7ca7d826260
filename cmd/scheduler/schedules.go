package main

import (
	"context"
	"fmt"
	"time"

	"rota/internal/registry"
	"rota/internal/status"
)

// countedBy is the schedule that is kept beside the progress of a job's leases.
func countedBy(job registry.Job, counted map[string]string) string {
	for _, lease := range job.Leases() {
		if schedule := counted[lease]; schedule != "" {
			return schedule
		}
	}
	return ""
}

// differing is the schedule that the replicas count a job's ticks by, where there is one and it is
// another than the one here; else it is empty.
func differing(job registry.Job, counted string) string {
	if counted == job.Schedule.String() {
		return ""
	}
	return counted
}

// differs says it in one line.
func differs(counted string) string {
	return fmt.Sprintf("replicas use %s: a jobs file changes it, or another version; give the file here too by --jobs-file", plain(counted, 200))
}

// glance reads the schedules that the replicas use, by lease, for a command that needs no database: it
// looks only where one is named, for a second at most, and what it cannot read it does not tell.
func glance(ctx context.Context, cfg Config, env []string) map[string]string {
	if requireDatabase(cfg, env) != nil || cfg.validateDatabase() != nil {
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, time.Second)
	defer cancel()
	db, err := openPool(ctx, cfg.DatabaseURL, "rota cli", 1)
	if err != nil {
		return nil
	}
	defer db.Close()
	counted, err := status.NewPatient(db, nil, time.Second).Schedules(ctx)
	if err != nil {
		return nil
	}
	return counted
}
