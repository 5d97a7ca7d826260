// Package scheduler decides when led work runs, and keeps its record.
//
// A Scheduler does the work of the terms that the elector of its replica wins. It is three loops,
// each with one statement under way at a time for however many leases: the opener begins terms, the
// ticker claims ticks, with a second one in a rush, the recorder writes the ends of runs. Beside them each
// term has its lead.
//
// # A lease on this replica
//
//	     Lead
//	       │
//	       ▼
//	  ┌─────────┐  a row has a higher epoch, or the database
//	  │ raising │  says that the lease is another's
//	  │    +    ├──────────────────────────────┐
//	  │beginning│  term over, or asked for     │
//	  └────┬────┘                              │
//	       │ Ready                             │
//	       ▼      tick won                     │
//	  ┌─────────┐ ───────────► ┌─────────┐     │
//	  │ waiting │              │ running │     │
//	  └────┬────┘ ◄─────────── └────┬────┘     │
//	       │      returned         │ context ended, and it
//	       │                       │ does not return for Grace
//	       │ asked for, or         ▼           │
//	       │ the term is over ┌───────────┐    │
//	       │                  │ abandoned │    │ the term is ended, and
//	       │                  └────┬──────┘    │ the lease left to expire
//	       ▼                       │ returned  │
//	the run is on record ◄─────────┘           │
//	       │                                   │
//	       ▼                                   │
//	 Lead returns ◄────────────────────────────┘
//
// An operator may ask for the term at any point of this, and for the end of a run; see Steer.
//
// When a term is asked for, no further tick is claimed, the run's Draining is closed, and the run
// may finish; after Drain its context ends, after Grace it is abandoned.
//
// # What it promises
//
// P4: no function is called before the protected rows have the term's epoch. Raises take turns on
// the engine pool, so that those that wait for somebody's rows hold up no other job's.
//
// P5: a run's context is a child of the term's, and its cause tells why it ended. The fence writer
// is bound to the term's, so that a run that timed out may still write its last state.
//
// P6: Lead returns only once the job's function has, and the elector releases only then. While the
// term lasts, Lead also waits until the end of its run is on record.
//
// P7: a tick is claimed by inserting attempt 1 of its run, unique on (lease, tick, attempt), in a
// statement that holds the lease's epoch FOR KEY SHARE, as a fenced write does, and its progress. A
// takeover waits for that, so that a successor sees every claim of its predecessors. Each claim has a
// verdict: won, taken, paused, locked, fenced, early. A claim whose answer was lost is made again for the
// same tick, and a run that is open, of this owner and of this epoch, is then taken for ours: a lead
// begins no run that it knows, and another process has another owner.
//
// What most claims ask for, the next tick of a lease and nothing else, is won by a statement of its own
// (claim_plain.go), which leaves to the other whatever it does not win. Ends of runs give way to claims
// while more is due than one statement takes (rush.go).
//
// Ticks are computed on the database's clock, as the elector estimates it, from progress.last_tick;
// the database itself decides whether one is due. If one tick of a claim is not, the whole is refused:
// row by row, ticks would be lost. A job seen for the first time counts from that moment, and so does
// one whose schedule has changed. A jitter moves the start of a lease's runs, and never their ticks.
//
// What is open of a lease stands in its progress, whence the next term takes what to close: each claim
// adds its run there, and takes out those whose ends are on record, of which it keeps the newest success.
// No index has to change for the end of a run that succeeded.
//
// Where a job's count of shards has changed, the first of the new leases that begins hands all of them
// the progress of the former ones (inherit.go): from the last tick that each of those has claimed and
// has not left unfinished. What some of them did after that is done again, by whoever has the key now.
//
// P8: whatever row somebody holds, each statement skips it, and its lease alone is tried again, every
// 250 to 500 ms. A run that never returns keeps its own lead and nothing else. A long gap in the ticks of
// one lease is walked beside the claims of the others.
//
// # What becomes of a tick
//
// Each tick is run, or on record as missed or skipped, with the reason. What is not run is written off
// by the claim of the run that follows it; of a gap of more than some thousand ticks, all but the newest
// share one row.
//
//   - Ticks that fell due while nobody led are handled by the job's Missed: the newest is run, or the
//     newest hundred in turn, or none. Those that are due while a job catches up are caught up with too.
//   - A tick that falls due during a run is skipped at once, or waits for its end, by Overlap; of
//     several that wait the newest is run. Once the term is asked for they are the successor's.
//   - The ticks of a paused job are skipped. That is asked in the claim's own statement, so that a pause
//     holds from the moment it is committed. A Continuous run is cancelled by Steer, which also has it
//     started once the job is resumed; without being told it is asked for every half minute.
//   - A run that failed, panicked or took too long is tried again under the same term, by Retry, until
//     a newer tick falls due.
//   - A run that was cut short by what became of its replica (lost, fenced, or cancelled by the drain)
//     is marked in runs.again. The next term begins with its next attempt, unless IfLost says otherwise
//     or it had as many as its bound. The mark is cleared by the claim of that attempt.
//
// An entry is one lease of this in memory: what was cut short goes first, then what operators asked
// for, in order, then the schedule, then a further attempt at what failed. A request is run once, unique
// on (request_id, attempt), whoever claims it; pauses do not concern it.
//
// # Clocks that are set
//
// Where the database's clock goes forward, the ticks between were missed. Where it is set back, the
// ticker follows it: what was noted by the old clock moves along, and each lease's progress is brought
// back to now (rebase; a begin does the same). A tick that comes again is not run twice, for its row is
// there; one that was only missed is run now, as its attempt 2. As a run of this term that is open would
// be won again, an entry knows the runs that it has begun until their ends are on record.
//
// # What becomes of a run
//
// The outcome is read from refused writes first, the cause of the context's end second, what the
// function did third: fenced; timed_out, cancelled (by an operator, or after the drain), lost (its term
// ended); panicked, failed, success. An error that says fenced while the term goes on is that of another
// term's writer, which a job has kept, and a failure: no further term would come to run the tick again. A run whose process died stays open until the next term of its
// lease closes it as lost; if its process lives and had writes refused, it amends that to fenced, with
// the count. The last 64 KiB that a run logged are kept with its end.
//
// Ends are recorded until the database takes them, in statements that are bounded in number and in
// bytes. At shutdown that is bounded by Grace: what is left then is closed as lost by the next term.
//
// # What it does not promise
//
// Each attempt is run once at most. A process that dies between the claim and the end leaves a run of
// which nobody knows how far it came, and whose tick is then run again: what a job does outside its
// fence may be done twice. With LeaveIt it may be done not at all.
//
// Within the second or so in which a replica learns that the clock was set back, ticks that were written
// off before stay so.
package scheduler
