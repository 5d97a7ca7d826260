package lease

import (
	"cmp"
	"context"
	"errors"
	"sync"
	"time"
)

var errFault = errors.New("scripted fault")

// A fault is what becomes of one call.
type fault struct {
	fail  bool          // it never executes
	how   error         // of what fails; nil: errFault
	delay time.Duration // it executes so much later, whether or not its caller still waits
	slow  time.Duration // its answer takes so much longer
	mute  bool          // it executes, and its answer is lost
}

// faulty is a store whose calls meet the faults that next tells.
type faulty struct {
	store
	next func(call string) fault

	late sync.WaitGroup // calls that nobody waits for any more
}

// through makes a call as a network does: what was sent may execute although its caller gave up.
func through[T any](ctx context.Context, f *faulty, call string, do func(context.Context) (T, error)) (T, error) {
	var none T
	what := f.next(call)
	if what.fail {
		return none, cmp.Or(what.how, errFault)
	}
	type answer struct {
		value T
		err   error
	}
	answers := make(chan answer, 1)
	f.late.Go(func() {
		time.Sleep(what.delay)
		v, err := do(context.WithoutCancel(ctx))
		time.Sleep(what.slow)
		if !what.mute {
			answers <- answer{v, err}
		}
	})
	select {
	case a := <-answers:
		return a.value, a.err
	case <-ctx.Done():
		return none, ctx.Err()
	}
}

type beaten struct {
	verdicts []verdict
	look     look
}

func (f *faulty) register(ctx context.Context, names []string, a ability) error {
	_, err := through(ctx, f, "register", func(ctx context.Context) (int, error) { return 0, f.store.register(ctx, names, a) })
	return err
}

func (f *faulty) beat(ctx context.Context, m member, held []holding) ([]verdict, look, error) {
	b, err := through(ctx, f, "beat", func(ctx context.Context) (beaten, error) {
		v, l, err := f.store.beat(ctx, m, held)
		return beaten{v, l}, err
	})
	return b.verdicts, b.look, err
}

func (f *faulty) look(ctx context.Context, owner string) (look, error) {
	return through(ctx, f, "look", func(ctx context.Context) (look, error) { return f.store.look(ctx, owner) })
}

func (f *faulty) renew(ctx context.Context, owner string, lease time.Duration, held []holding) ([]verdict, error) {
	return through(ctx, f, "renew", func(ctx context.Context) ([]verdict, error) { return f.store.renew(ctx, owner, lease, held) })
}

func (f *faulty) acquire(ctx context.Context, owner string, lease time.Duration, claims []claim, wait bool) ([]grant, error) {
	return through(ctx, f, "acquire", func(ctx context.Context) ([]grant, error) {
		return f.store.acquire(ctx, owner, lease, claims, wait)
	})
}

func (f *faulty) resize(ctx context.Context, asked []resize) ([]string, error) {
	return through(ctx, f, "resize", func(ctx context.Context) ([]string, error) { return f.store.resize(ctx, asked) })
}

func (f *faulty) release(ctx context.Context, owner, reason string, held []holding, to []string) ([]verdict, error) {
	return through(ctx, f, "release", func(ctx context.Context) ([]verdict, error) {
		return f.store.release(ctx, owner, reason, held, to)
	})
}

func (f *faulty) abilities(ctx context.Context, ids []string) ([]ability, error) {
	return through(ctx, f, "abilities", func(ctx context.Context) ([]ability, error) { return f.store.abilities(ctx, ids) })
}

func (f *faulty) mine(ctx context.Context, owner string) ([]holding, error) {
	return through(ctx, f, "mine", func(ctx context.Context) ([]holding, error) { return f.store.mine(ctx, owner) })
}

func (f *faulty) leave(ctx context.Context, owner string) error {
	_, err := through(ctx, f, "leave", func(ctx context.Context) (int, error) { return 0, f.store.leave(ctx, owner) })
	return err
}

// A script is the faults that calls of one kind meet from now on.
type script struct {
	mu    sync.Mutex
	call  string // "": every kind
	what  fault
	times int // how many calls meet it; negative: all
}

func (s *script) set(call string, what fault, times int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.call, s.what, s.times = call, what, times
}

func (s *script) clear() { s.set("", fault{}, 0) }

func (s *script) next(call string) fault {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.times == 0 || s.call != "" && s.call != call {
		return fault{}
	}
	s.times--
	return s.what
}
