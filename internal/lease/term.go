package lease

import (
	"context"
	"errors"
	"sync"
	"sync/atomic"
	"time"

	"rota/internal/fence"
)

// Why a term ended, as its context's cause.
var (
	// ErrLost: the database says that the lease has another owner or epoch, or has expired.
	ErrLost = errors.New("the lease was lost")
	// ErrDeadline: no renewal was answered in time, whatever the reason.
	ErrDeadline = errors.New("the lease was not renewed before its local deadline")
	// ErrReturned: the lead function returned.
	ErrReturned = errors.New("the lead returned")
)

// A Reason is why a term should be given up; its text becomes the term's end_reason.
type Reason string

func (r Reason) Error() string { return string(r) }

// Yield is the reason when a term is given up so that leadership spreads.
const Yield Reason = "yield"

// Drain is the reason when the replica gives up all that it leads.
const Drain Reason = "drain"

// Resize is the reason when another count of the job's shards is in force.
const Resize Reason = "resize"

// A Term is one owner's unbroken leadership of one lease.
type Term struct {
	// Token is the fencing token of the term.
	Token fence.Token
	// Job is the job whose lease it is.
	Job string

	ctx    context.Context
	cancel context.CancelCauseFunc
	asked  chan struct{}
	yields chan struct{}
	ready  func()      // counts the handover, once; nil: there is none to count, or none any more
	tied   atomic.Bool // a run is under way
	long   bool        // its work ends only when it is asked to

	mu       sync.Mutex
	deadline time.Duration // by sinceBoot
	why      error         // why it was asked for, if it was
	yielded  bool
	ended    bool
	onEnd    func(cause error)
}

func newTerm(token fence.Token, job string, deadline time.Duration) *Term {
	t := &Term{Token: token, Job: job, asked: make(chan struct{}), yields: make(chan struct{}), deadline: deadline}
	t.ctx, t.cancel = context.WithCancelCause(context.Background())
	return t
}

// Context ends with the term, no later than its local deadline, and with the reason as its cause
// (see context.Cause): ErrLost, ErrDeadline, ErrReturned, or what was given to End.
func (t *Term) Context() context.Context { return t.ctx }

// End ends the term now; a second call changes nothing. The term is not renewed from here on: if
// its lead returns in time, the lease is released, else it is left to expire.
func (t *Term) End(cause error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.ended {
		return
	}
	t.ended = true
	t.cancel(cause)
	t.onEnd(cause)
}

// Asked is closed when the term should be given up by returning from the lead function. It is
// renewed meanwhile.
func (t *Term) Asked() <-chan struct{} { return t.asked }

// Yielding is closed when the term should be given up once no work is under way: another member
// leads less. What is under way is not to be hurried for it.
func (t *Term) Yielding() <-chan struct{} { return t.yields }

// Tie says whether work is under way that a move would have to wait for.
func (t *Term) Tie(tied bool) { t.tied.Store(tied) }

// Ready says that the term has raised its epoch and begins to work. It ends the handover that
// rota_handover_seconds measures.
func (t *Term) Ready() {
	t.mu.Lock()
	ready := t.ready
	t.ready = nil
	t.mu.Unlock()
	if ready != nil {
		ready()
	}
}

func (t *Term) ask(why error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.why == nil {
		t.why = why
		close(t.asked)
	}
}

// yield asks for the term, without haste. It is called once.
func (t *Term) yield() {
	if t.long {
		t.ask(Yield)
		return
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	t.yielded = true
	close(t.yields)
}

// over reports whether the term has ended.
func (t *Term) over() bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.ended
}

// due is when the term ends by itself unless it is renewed; false once it has ended.
func (t *Term) due() (time.Duration, bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.deadline, !t.ended
}

// extend moves the deadline on, unless it has passed at now: what was renewed after that may have
// had another owner in between in the eyes of the job.
func (t *Term) extend(now, deadline time.Duration) {
	t.mu.Lock()
	passed := now >= t.deadline
	if !passed && deadline > t.deadline {
		t.deadline = deadline
	}
	t.mu.Unlock()
	if passed {
		t.End(ErrDeadline)
	}
}

// reason is the end_reason for the term's row in terms.
func (t *Term) reason() string {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.why != nil {
		return t.why.Error()
	}
	switch cause := context.Cause(t.ctx); {
	case t.yielded && errors.Is(cause, ErrReturned):
		return Yield.Error()
	case cause == nil, errors.Is(cause, ErrReturned):
		return "released"
	case errors.Is(cause, fence.ErrFenced):
		return "fenced"
	case errors.Is(cause, ErrDeadline):
		return "not renewed"
	default:
		return cause.Error()
	}
}
