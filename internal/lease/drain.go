package lease

// Drain gives up all that this replica leads, as GiveUp does, and keeps it from leading anything
// again. It does not wait for that. The replica stays a member, which the others do not count with,
// and Run goes on until its context ends. Drain may be called from any goroutine, at any time, before
// Run too, and any number of times.
func (e *Elector) Drain() { e.drain.Do(func() { close(e.drained) }) }
