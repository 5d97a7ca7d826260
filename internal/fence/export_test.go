package fence

import (
	"reflect"
	"time"
)

// Occupy has statements under way, as it seems, of the upsert of such rows, which must have been sent
// once: who comes now waits, no longer than that. waiting counts these callers; leave lets them go.
func (w *Writer) Occupy(t Table, row any, longest time.Duration) (waiting func() int, leave func()) {
	s, ok := w.statement(t.Name, reflect.TypeOf(row))
	if !ok {
		panic("that statement has not been sent yet")
	}
	s.turns.mu.Lock()
	defer s.turns.mu.Unlock()
	s.turns.under, s.turns.longest = atOnce, longest
	waiting = func() (n int) {
		s.turns.mu.Lock()
		defer s.turns.mu.Unlock()
		for _, b := range s.turns.waiting {
			n += b.left
		}
		return n
	}
	return waiting, func() {
		for range atOnce {
			w.next(s)
		}
	}
}
