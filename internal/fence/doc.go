// Package fence refuses writes from a term of leadership that has passed.
//
// A leader that slept through its lease's expiry does not know it, and no code can tell it in time.
// So it is not asked to know: what it writes carries its fencing token, and the database refuses it.
//
// # What is promised
//
// P3: once a takeover has committed, no write through a [Writer] of an earlier term takes effect,
// not on a row that the new leader has written, not on one that it has not, not as a new row.
//
// P4: [Raise] brings the protected rows up to the new term's epoch before it does any work, so that
// the article's own upsert, sent by hand with an old epoch, changes nothing either.
//
// P5: a refused write ends the term at once, and the end of the term cuts short what is under way.
//
// P8: what a former leader left behind holds its successor up briefly: half a second in a paused
// transaction or in a wait for a lock, less where its backends may be ended.
//
// # The guard
//
// Every fenced write locks its lease's epoch, a row of lease_epochs, FOR KEY SHARE until it commits,
// and looks at the lease's owner and expiry beside it: [Writer.Upsert] inside the statement, before
// any row; [Writer.Tx] as the last statement, in the round trip that carries COMMIT and with no Sync
// in between, so that COMMIT is skipped if the guard raises. A guard that finds no row raises SQLSTATE
// RF001; one that merely returned no row would let COMMIT through.
//
// The row of lease_epochs says whose term it is as well. By that, the upsert of a single row on a
// connection on which one has looked at the lease within the second does not look again, but asks whether
// what was seen then still lasts: half of what the guard takes is the look. A takeover refuses it as ever, for
// the lock is the same; so does an end by expiry; a release by hand with no takeover after it is seen a
// second late at most.
//
// Whoever changes the epoch of a lease, in whatever way, changes that row too, by a trigger, in the
// same transaction. What else happens to a lease does not touch it:
//
//	                       FOR KEY SHARE (a fenced write)
//	another fenced write   goes on     they are many, for one job
//	a renewal              goes on     it rewrites the lease's own row, which the write does not lock
//	a release              goes on     as a renewal; the takeover after it waits
//	a change of epoch      waits       it changes a key, by the unique index on (job_name, epoch, owner)
//	a change of owner      waits       likewise; it comes alone only where somebody resets a lease by hand
//
// The lease's own row would not do, though renewals change no key of it either. An update that finds
// its page full lets go of the page while it looks for another. It has counted the row's locks by then,
// and writes that count back: whoever locked the row FOR KEY SHARE meanwhile, which an update that
// changes no key allows, is forgotten, and a takeover does not wait for it. A test shows it on a row
// that is large, where it is certain; on one that fits its page it came to pass in some of
// many stresses. So what fenced writes lock, lease_epochs and fence_watermarks, has no column outside a
// key and is updated by changes of key alone, which let nobody in.
//
// The lock decides, and not the comparison alone, because a statement sees the rows as they were
// when it began:
//
//	former leader         successor                     what refuses the former leader
//	-------------         ---------                     ------------------------------
//	snapshot, lock
//	                      takeover waits
//	insert, commit
//	                      takeover, raise               (nothing: it came first, and is raised)
//
//	snapshot (epoch 7)
//	                      takeover to 8, raise
//	lock                                                the epoch's newest version: the key has changed
//
//	BEGIN, insert
//	                      takeover to 8
//	                      raise                         (does not see the row, nor has to)
//	guard, COMMIT                                       the guard; COMMIT is never executed
//
//	BEGIN, update, pause
//	                      takeover to 8
//	                      raise waits for the row       (200 ms, then it ends the paused backend)
//	thaw                                                the connection is gone
//
//	                      takeover, raise, its work
//	upsert by hand                                      the row: 8 > 7
//
// In the second case a trigger that merely locks the new row is not enough. To an older
// snapshot the former version then looks unchanged in its key, FOR KEY SHARE is granted on it as it
// was, and a stale row goes in after the raise; a test shows it. PostgreSQL follows a row to its
// newest version only where a key has changed, which is what the index is for.
//
// The lock order is epoch, then rows in the order of their keys; in Tx, rows, then epoch. Neither the
// takeover, which locks the lease's row and then its epoch, nor the raise, which locks rows or a
// watermark alone, can close a circle with them: a fenced write locks no row of leadership. A watermark
// comes after the epoch and before rows; by hand also after them, which closes none either, for fenced
// writes share it.
//
// # Large tables
//
// Rewriting a million rows takes seconds, in which nobody works. The raise of a [Table] that is Large
// moves its row of fence_watermarks instead: each row counts as raised to it. The same lock decides,
// by an index of the same kind on (protected, epoch). A fenced write takes FOR KEY SHARE on the
// watermark after its lease's epoch, and is refused where it is above its token; fence_protect(table,
// true) adds triggers that do so for every row that is written in another way:
//
//	in term 7, after the raise to 8     what happens, though term 8 has written nothing
//	-------------------------------     -----------------------------------------------
//	Upsert, Tx                          refused by the lease's epoch, as ever
//	by hand: an insert with epoch 7     refused by the trigger, a new row or the article's upsert
//	by hand: an update to epoch 7       refused by the trigger, on rows of term 8 and of term 7
//	by hand: an update without epoch    goes on, and has epoch 8, as if the row had been raised
//	by hand: an insert without epoch    refused: its epoch is the column's default
//	a raise of term 7 that comes late   changes nothing, and is told 8
//	a write by hand under way           the raise waits for it
//	a snapshot older than the raise     does not matter: the row's newest version counts
//
// No row is ever above its watermark: fence_protect begins with the highest epoch of a row, a raise
// that calls the table plain moves the watermark too, and the trigger moves it where a program
// writes under a higher epoch. So the watermark alone says whether the lease row was reset, and a
// table may turn large and back while both versions of its job run.
//
// # Shards
//
// The writer of a [Shard] is bound to the shard's own lease, and its raise to the shard's own rows:
// those whose key has this shard by rota_shard, which is [ShardOf] in SQL. Others may write and raise
// the rest of the table at the same time, under epochs of their own. The leases of one job share one
// order of epochs, so that a row which has another shard, since the job was split in another way, is
// below its new leader's epoch too. [Writer.Upsert] refuses rows of other shards; what SQL in
// [Writer.Tx] writes is for its author to keep to [Shard.Owns].
//
// Where a table has millions of rows, CREATE INDEX ON table (rota_shard(column, N)) keeps the raise
// from looking at those of the others. A watermark is that of a whole table, and shards have none.
//
// Other places where order matters: the guard asks for expires_at > clock_timestamp(), so that a
// late leader cannot hold up its successor, but nothing rests on that clock. Tx is READ COMMITTED,
// whatever the session's default, for its guard must see what committed since it began. Settings
// last for one transaction and travel in its first round trip, which suits a transaction pooler.
//
// # What is not promised
//
// Effects outside this database: an e-mail, a third party's API.
//
// Programs that write around the fence. fence_protect(table) adds a trigger that refuses an update
// which lowers an epoch; it cannot tell a stale insert, nor an update that leaves the epoch alone.
// Those of a large table tell the former and not the latter, nor a delete, and believe whoever sets
// rota.raised as [Writer.Upsert] does.
//
// That every error means that nothing was written: [ErrUnknown] says where an answer was lost.
//
// Any number of small writes. Several transactions that hold one lease's epoch at once make it a
// multixact, and tens of connections that write one row at a time for one job can use up its member
// space within hours (11,000 writes a second on 32 connections): write in batches. Upserts of one
// writer do so by themselves, for those that come at the same time share statements; transactions do not.
//
// Statements of a former leader that take long. The timeouts bound its pauses and its waits; one
// long statement in a Tx is ended only where its backend may be, by a role that may signal it, on a
// connection that carries the replica's application_name.
package fence
