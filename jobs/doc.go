// Package jobs holds the jobs that this scheduler runs: one file each.
//
// To add one, let `go run ./cmd/scheduler new job NAME` write its file, its migration and its test,
// and fill them in; touch no other file. By hand:
//
//  1. Register it in the file's init: a name, a schedule, what it is about, and the function.
//     The name is the key of its lease and of its history, so it outlives the file's name.
//  2. Does it leave a mark outside? Then write through run.Fence, and name every table that it
//     writes in Protects. A job that only looks names none, and has no need of the fence.
//  3. Give its tables a migration in jobs/migrations, which begins with -- +goose Up and has
//     SELECT fence_protect('the_table') for each protected one. What it works on (hosts, accounts,
//     venues) are rows too: then a new one needs no release.
//  4. Test its parts as plain functions, and the whole with jobtest: lead it, do it once, let a
//     successor take over, and see that the superseded leader is refused and changes no row.
//
// # The fields of a job
//
//   - Name, About, Runbook: what it is called, what it is for in a sentence, and the URL of what to
//     do when it fails.
//   - Schedule: Every(5*time.Second), Cron("0 8 * * 1-5").In("Europe/Berlin"), which is in UTC without
//     In, Continuous for a function that runs for the whole term, or OnDemand.
//   - Run: func(ctx context.Context, run *registry.Run) error. Run has the tick, the attempt, the
//     arguments, DB to read, Fence to write, Log, and Draining, which is closed when a run that can
//     end early should. Pass run.DB on as a registry.Reader.
//   - Protects: the tables that it writes through the fence, by name and unique key.
//   - Args: a struct with its limits, for a jobs file and an operator's "run now" to change.
//   - Shards: 4 splits the job by the keys of its work, on as many replicas as there are: each shard is
//     led, and runs at each tick, by itself, and does those keys for which run.Owns(key). Each table in
//     Protects then names the key column that decides whose a row is in Shard, and none is Large. SQL in
//     a Tx must keep to the shard's rows by itself: WHERE rota_shard(venue, of) = shard. The number is
//     changed by a release; in a tick that spans the change a key may be done twice, and none is left out.
//   - Timeout: what a run may take; 0: as long as the term lasts.
//   - Retry: {Attempts: 3, Pause: time.Second, Longest: time.Minute} tries a run that failed, panicked
//     or took too long again, at most so often in all, with a pause that doubles up to the longest.
//     By default never.
//   - Missed: of the ticks that fell due while nobody led, run the newest (RunLatest, the default),
//     each in turn (RunAll, the newest 100), or none (RunNone). All are on record.
//   - Overlap: a tick that falls due during a run is skipped (Skip, the default) or run after it
//     (Queue).
//   - IfLost: a tick whose run was lost with its replica is run again by the next leader (RunAgain, the
//     default) or left (LeaveIt), which is for work that must not be done twice.
//   - Jitter: delays each start by a part of it, always the same for the job, so that many jobs of one
//     schedule do not start at once.
//
// A jobs file (scheduler serve --jobs-file) changes most of them for an installation.
//
// A job's function must end soon after its context does: the lease is released only once it has
// returned. It must not mistake that end for a finding either: before it writes what failed
// calls have told it, it looks whether it was itself cut short.
//
// All jobs share this package, so what a file declares carries its job's name.
// bridge_health.go is the one to copy.
package jobs
