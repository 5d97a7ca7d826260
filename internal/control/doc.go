// Package control is what operators ask of the jobs and their leases, and the record of it.
//
// It has two sides. A [Desk] is the operators': each of its methods commits a request, or an effect,
// together with a line of the audit. A [Watch] is a replica's: it reads what is asked, hands it to
// whoever carries it out, and writes down what became of it, with the audit's second line.
//
//	operator --> Desk --> requests, pauses, audit --> Watch --> scheduler, elector
//	                 \--> leadership (revoke)           ^            |
//	                                                    +--- Done ---+
//
// # What is promised
//
//   - What is asked for, or done, is in the audit, or it is not asked for, or not done: they share a
//     transaction. The audit is append-only.
//   - A request is carried out by the replica that it concerns, within a second while that one has
//     connections to spare, by a hint (NOTIFY), and without hints by polling. It is settled once: the first word
//     on what became of it is the one that stays.
//   - What nobody can carry out any more is settled too, by whoever sees it: a cancel whose run has
//     ended, a step down whose term is over, a drain of a replica that has gone.
//   - P2, P3: a revoke ends a term by its owner and epoch, and no other one. From its first commit on
//     the term's writes are refused; from its second on every later term is above the epoch that it
//     left.
//   - P8: a look waits for no lock, and has a connection that nothing else uses.
//   - P10: what a pause's time means, and which term leads, goes by the database's clock and rows.
//
// # What is not promised
//
// That a request to run a job is carried out at all: where nobody leads the job, it waits. That a
// run ends because it is cancelled: its job must return. That a request is settled the moment it is
// carried out: up to an Interval may pass.
//
// # What if
//
// For each statement: what if it executes ten seconds late, what if its answer is lost?
//
//   - An order has two seconds. It commits behind a statement that looks at the clock, with no Sync in
//     between: what a server that hung executes later is not done. So without an answer nothing was
//     done as long as no COMMIT was sent ([ErrSilent]); else it is not known ([ErrUnknown]), and not
//     done later.
//   - A look that is late settles only what can never be carried out any more.
//   - A settlement changes a request that is open, and nothing else. Its answer lost, it is sent
//     again, and finds nothing to do.
//   - A request names what it is about: the run, the term by its epoch, the replica by its owner.
//     Late, it asks nothing of a later one. Its answer lost, the error is [ErrUnknown]; asked again,
//     it is found again, a run under its key, the others by what they are about.
//   - The first commit of a revoke names the term by its owner and epoch, and ends it only while it
//     lasts. Late, it ends no later term. Its answer lost, revoking again finds a term that was
//     revoked and goes on with the second commit.
//   - The second commit names the same term, and raises its epoch only while it is over. Late, it
//     finds another term, and does nothing. Its answer lost, revoking again says that it was revoked.
package control
