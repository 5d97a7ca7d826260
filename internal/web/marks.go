package web

import "rota/internal/status"

// A mark is a word with an icon, so that nothing is said by colour alone.
type mark struct{ Class, Icon, Word, Title string }

var states = map[status.State]mark{
	status.Held:  {"good", "●", "held", "its lease runs out in the future"},
	status.Free:  {"warn", "○", "free", "nobody leads it: its lease has run out or was released"},
	status.Never: {"idle", "◌", "never held", "nobody has led it yet"},
}

var outcomes = map[string]mark{
	"":          {"busy", "▸", "running", "it has not ended"},
	"success":   {"good", "✓", "success", ""},
	"failed":    {"bad", "✗", "failed", "it returned an error"},
	"panicked":  {"bad", "✗", "panicked", "it panicked; the replica went on"},
	"timed_out": {"bad", "✗", "timed out", "it took longer than the job's timeout"},
	"cancelled": {"idle", "–", "cancelled", "an operator or a draining replica cancelled it"},
	"fenced":    {"warn", "⊘", "fenced", "its term was over: a late write was refused"},
	"lost":      {"warn", "⊘", "lost", "its term ended before it did"},
	"skipped":   {"idle", "↷", "skipped", "the tick was due and not run, on purpose"},
	"missed":    {"warn", "↷", "missed", "the tick fell due while nobody led"},
}

// foreign is a mark with a word that is not ours, which may be of any length.
func foreign(class, icon, word, title string) mark {
	if len(word) > 24 {
		class += " long"
	}
	return mark{class, icon, clip(word, 60), title}
}

// outcomeMark is a mark for any outcome, one that a later version writes too.
func outcomeMark(outcome string) mark {
	m, known := outcomes[outcome]
	if !known {
		m = foreign("idle", "?", outcome, "")
	}
	return m
}

var standings = map[status.Standing]mark{
	status.Member:   {"good", "●", "member", "its heartbeat is current"},
	status.Draining: {"warn", "◐", "draining", "it is giving up all it leads"},
	status.Gone:     {"idle", "○", "gone", "its heartbeat stopped; shown for an hour"},
	status.Outside:  {"warn", "?", "not a member", "it holds a lease and sends no heartbeat: another program, or a replica that has just lost its row"},
}

// oddities are what is out of the ordinary about a lease.
func oddities(l status.Lease) []mark {
	var all []mark
	if !l.CompiledIn {
		all = append(all, mark{"warn", "?", "unknown here", "a lease in the database that no job of this binary has: an older or a newer version's, or another program's"})
	}
	if !l.Registered {
		all = append(all, mark{"warn", "?", "not registered yet", "a job of this binary without a lease in the database: no replica that may lead it has started here"})
	}
	if l.Disabled {
		all = append(all, mark{"idle", "–", "disabled here", "the jobs file of the replica that shows this page takes it out of its work"})
	}
	if l.Stranded {
		all = append(all, mark{"bad", "!", "no replica can lead it", "no live replica has this job, or each one is told not to lead it"})
	}
	return all
}
