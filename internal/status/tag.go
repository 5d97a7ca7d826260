package status

import (
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"time"
)

// tag is the same for two snapshots that say the same, whenever and by whichever replica they were
// read. It is written by hand: as JSON, 10,000 leases take a core ten times as long, every second.
func tag(s *Snapshot) string {
	h := sha256.New()
	var w words
	for i := range s.Leases {
		w = w[:0]
		w.lease(&s.Leases[i])
		h.Write(w)
	}
	w = w[:0]
	w.number(int64(len(s.Leases)))
	for i := range s.Replicas {
		w.replica(&s.Replicas[i])
	}
	w.number(int64(len(s.Replicas)))
	for i := range s.Pauses {
		w.pause(&s.Pauses[i])
	}
	h.Write(w)
	return hex.EncodeToString(h.Sum(nil)[:12])
}

// words are what a tag is made of, each told apart from the next. What only time moves is left out.
type words []byte

func (w *words) text(all ...string) {
	for _, s := range all {
		*w = append(binary.AppendUvarint(*w, uint64(len(s))), s...)
	}
}

func (w *words) number(all ...int64) {
	for _, n := range all {
		*w = binary.AppendVarint(*w, n)
	}
}

func (w *words) moment(all ...time.Time) {
	for _, t := range all {
		w.number(t.Unix(), int64(t.Nanosecond()))
	}
}

func (w *words) whether(all ...bool) {
	for _, is := range all {
		b := byte(0)
		if is {
			b = 1
		}
		*w = append(*w, b)
	}
}

func (w *words) lease(l *Lease) {
	w.text(l.Name, l.Job, string(l.State), l.Owner, l.About, l.Runbook, l.Schedule, l.Words)
	w.number(int64(l.Shard), int64(l.Of), l.Epoch, int64(l.Length), l.Refused)
	w.moment(l.ExpiresAt, l.AcquiredAt, l.NextTick, l.DueSince, l.LastSuccess)
	w.whether(l.Stranded, l.Disabled, l.CompiledIn, l.Registered, l.LastEnd != nil, l.Paused != nil, l.Last != nil)
	if t := l.LastEnd; t != nil {
		w.text(t.Owner, t.Reason)
		w.number(t.Epoch)
		w.moment(t.EndedAt)
	}
	if l.Paused != nil {
		w.pause(l.Paused)
	}
	if l.Last != nil {
		w.run(l.Last)
	}
}

func (w *words) run(r *Run) {
	w.text(r.Lease, r.Job, r.Owner, r.Outcome, r.Error)
	w.number(r.ID, int64(r.Attempt), r.Epoch, r.Refused, r.Request, r.Ticks)
	w.moment(r.Tick, r.StartedAt, r.EndedAt, r.FirstTick)
}

func (w *words) pause(p *Pause) {
	w.text(p.Job, p.Reason, p.By)
	w.moment(p.At, p.Until)
}

func (w *words) replica(r *Replica) {
	w.text(r.ID, string(r.Standing), r.Host, r.Version, r.Ability)
	w.number(int64(r.PID), int64(r.ClockOffset), int64(r.Leases))
	w.moment(r.StartedAt, r.SeenAt, r.ExpiresAt)
	w.whether(r.Hints)
}
