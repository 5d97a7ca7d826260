// Package lease decides who leads each lease, and keeps it so.
//
// A lease is a row of the table leadership: its owner, its expiry by the database's clock, and its
// epoch. An [Elector] competes for many of them over one heartbeat. A [Term] is one owner's unbroken
// leadership of one lease; its context is the life of the work done under it.
//
// # What is promised
//
//   - P1: a lease has at most one unexpired owner, and is not taken before it has expired. The
//     database decides, by its clock, in the statement that writes the row.
//   - P2: every term has an epoch above those of all earlier terms of the lease. Only a renewal
//     before expiry keeps it. A process begins work only under an epoch above all that it has worked
//     under.
//   - P5: a term's context ends no later than its local deadline: the moment at which its last
//     renewal was sent, plus the lease, less a margin. The watchdog that sees to it needs no database.
//     It goes by a clock that runs on while the machine is suspended, and acts as soon as the process
//     runs again.
//   - P6: a lease is renewed until its lead function has returned, and released only then.
//   - P8: what somebody else does to one row costs that lease alone.
//   - P9: once the same members have been seen for a heartbeat, none leads two leases more than another
//     that could lead one of them, and nothing moves without need. A lease is never stolen.
//
// # What is not promised
//
// Two processes may believe that they lead at once: a machine that sleeps notices nothing. Nothing
// here prevents it, and package fence makes it harmless. Local time may only end a term sooner.
//
// # States of a lease, as one replica sees it
//
//	           acquired, epoch+1                asked to give it up
//	standby ----------------------> leading -------------------------> asked
//	   ^                               |  deadline, lost,                |  the lead returns
//	   |                               |  fenced, End                    |
//	   |                               v                                 v
//	   |                             ended ----------------------> releasing
//	   |                               |      the lead returns           |
//	   |  lost: nothing to release     |                                 |
//	   +-------------------------------+---------------------------------+
//
// Leading and asked are renewed. Ended is not: if the lead never returns, the lease runs out, and this
// replica does not compete for it again.
//
// A drained replica ([Elector.Drain]) goes on with its heartbeats, and is a standby for nothing.
//
// # One heartbeat
//
// Every renewal interval a replica sends one round trip: the renewal of all that it leads, then its
// membership and a look at the others. It is five statements, whatever the number of leases. The two
// parts are separate transactions, so that neither undoes the other.
//
// # Spread
//
// What to claim and what to give up is a pure function of what a look shows (spread.go), which every
// member computes alike: the others' part is played through, and only one's own is done. What is
// released is announced for one member, its heir.
//
// # Shards
//
// The leases of a job that is split share a row of job_shards: the count in force, the count whose
// leases were acquired last, and the highest epoch. It is locked before any of them is acquired
// (postgres_shards.go). At most one count is led at a time, and no epoch is granted twice in a job.
//
//	                 a replica registers another count, or
//	                 nobody has this one
//	in force, acting ------------------------------------> not in force, acting: led to its end, not acquired
//	      ^                                                     |
//	      | first acquisition: the former                       | first acquisition under the count in force
//	      | count's leases go out of force                      v
//	in force, not acting <-------------------------------- out of force: nobody's for a hundred years
//	                        a replica registers it again
//
// A crew (crew.go) is a job's leases as one replica counts them. It gives up those that it leads once
// another count is in force that a member has.
//
// # What if
//
// For each statement: what if it executes ten seconds late, what if its answer is lost, what if the
// process sleeps right here? TestSimulation asks it of all of them.
//
//   - A renewal names owner and epoch, and only moves an unexpired lease. Late, it lengthens a lease
//     that nobody works under any more, and the takeover waits for that. Its answer lost, the deadline
//     stays where it was. It never waits behind another statement, and so cannot undo a newer one.
//   - An acquisition takes only what has expired. Late, or its answer lost, it leaves a lease in our
//     name that nobody works under. A look finds it; it is released and acquired anew. To adopt it
//     could give two terms one epoch.
//   - An operator who revokes a term announces it as a release. Its replica asks the database at once,
//     and without the announcement with its next heartbeat. Late, or for a term that lasts, it costs a
//     heartbeat.
//   - An acquisition of a shard checks its count with the job's row locked. Late, or after its count has
//     gone out of force, it takes nothing. Its answer lost, it is as any other.
//   - A count that is put in force late replaces one that was registered after it: those that have the
//     other drain. Its answer lost, it is put in force again. One that is put in force for want of a
//     member names the count that it replaces, and the statement looks for members itself.
//   - A release names owner and epoch. Late, it ends no later term. Its answer lost, it is sent again,
//     and finds nothing to do.
//   - A term that yields is renewed until its lead returns, like any that is asked for. If its heir has
//     died, or never hears of it, the lease goes to anyone after a heartbeat.
//   - A membership that is written late counts a replica that has gone, for less than a lease. The
//     leases that are left to it meanwhile go to anyone after a heartbeat.
//   - A process that sleeps after the database has answered wakes up with a deadline that has passed,
//     since it counts from the sending.
package lease
