// Package jobs holds the jobs that this scheduler runs: one file each.
//
// To add one, add its file and touch no other:
//
//  1. Register it in the file's init: a name, a schedule, what it is about, and the function.
//     The name is the key of its lease and of its history, so it outlives the file's name.
//  2. Does it leave a mark outside? Then write through run.Fence, and name every table that it
//     writes in Protects. A job that only looks names none, and has no need of the fence.
//  3. Give its tables a migration in jobs/migrations, with SELECT fence_protect('the_table') for
//     each protected one. What it works on (hosts, accounts, venues) are rows too: then a new
//     one needs no release. Args holds limits, which the deploy file may override.
//  4. Test its parts as plain functions, and the whole with jobtest: lead it, do it once, let a
//     successor take over, and see that the superseded leader is refused and changes no row.
//
// A job's function must end soon after its context does: the lease is released only once it has
// returned. It must not mistake that end for a finding either: before it writes what failed
// calls have told it, it looks whether it was itself cut short.
//
// All jobs share this package, so what a file declares carries its job's name.
// bridge_health.go is the one to copy.
package jobs
