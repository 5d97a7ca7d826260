// Package scheduler decides when led work runs, and keeps its record.
//
// A Scheduler does the work of the terms that the elector of its replica wins. It is three loops,
// each with one statement under way at a time for however many leases: the opener begins terms, the
// ticker claims ticks, the recorder writes the ends of runs. Beside them each term has its lead.
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
// statement that holds the lease's row FOR KEY SHARE and its progress. A takeover changes the row's
// key and waits for that, so that a successor sees every claim of its predecessors. Each claim has a
// verdict: won, taken, locked, fenced, early. A claim whose answer was lost is made again for the
// same tick, and a run that is open, of this owner and of this epoch, is then taken for ours: a lead
// asks for a tick only while it knows of no run for it, and another process has another owner.
//
// Ticks are computed on the database's clock, as the elector estimates it, from progress.last_tick;
// the database itself decides whether one is due. A job seen for the first time counts from that
// moment, and so does one whose schedule has changed. Of several ticks that passed unclaimed the
// newest is run. A tick that falls due during a run is recorded as skipped, unless the term is being
// given up: then it is the successor's.
//
// P8: whatever row somebody holds, each statement skips it, and its lease alone is tried again, every
// 250 to 500 ms. A run that never returns keeps its own lead and nothing else.
//
// # What becomes of a run
//
// The outcome is read from refused writes first, the cause of the context's end second, what the
// function did third: fenced; timed_out, cancelled (after the drain), lost (its term ended); panicked,
// failed, success. A run whose process died stays open until the next term of its lease closes it as
// lost; if its process lives and had writes refused, it amends that to fenced, with the count.
//
// Ends are recorded until the database takes them. At shutdown that is bounded by Grace: what is left
// then is closed as lost by the next term.
//
// # What it does not promise
//
// A run is started at most once for a tick, not at least once: a process that dies between the claim
// and the end leaves a lost run, which is not tried again yet. Older ticks that passed while nobody
// led are not recorded one by one yet. A database clock that is set back leaves a silence until it is
// where it was.
package scheduler
