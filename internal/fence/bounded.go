package fence

import (
	"context"
	"reflect"
)

// A bounded is a context that is cut short by the end of the term.
type bounded struct {
	context.Context
	from context.Context
	end  func()
}

// bound returns ctx cut short by the end of the term. The caller must give it back to unbound.
//
// One that is not in use is kept for whoever comes next with the same ctx, as one after another of a
// run's upserts does: to make one costs a fortieth of a small upsert.
func (w *Writer) bound(ctx context.Context) *bounded {
	w.mu.Lock()
	b := w.idle
	w.idle = nil
	w.mu.Unlock()
	if b != nil && b.serves(ctx) {
		return b
	}
	if b != nil {
		b.end()
	}
	inner, cancel := context.WithCancelCause(ctx)
	unwatch := context.AfterFunc(w.term, func() { cancel(context.Cause(w.term)) })
	return &bounded{Context: inner, from: ctx, end: func() {
		unwatch()
		cancel(nil)
	}}
}

func (w *Writer) unbound(b *bounded) {
	w.mu.Lock()
	b, w.idle = w.idle, b
	w.mu.Unlock()
	if b != nil {
		b.end()
	}
}

// serves says whether b is made of ctx; of one that cannot be compared, it does not.
func (b *bounded) serves(ctx context.Context) bool {
	return reflect.ValueOf(ctx).Comparable() && b.from == ctx
}
