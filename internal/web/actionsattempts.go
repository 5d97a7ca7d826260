package web

import (
	"context"
	"errors"
	"log/slog"
	"net/http"
	"strings"
	"sync"
	"time"

	"rota/internal/control"
)

const (
	// attemptBurst and attemptEvery are how many lines of the audit one name's refused attempts make:
	// so many at once, and one more in each such time. All who have no name share one. What there is
	// no line for is counted in the next, so that each attempt is in the audit, and nobody can make it
	// grow as they please.
	attemptBurst = 30
	attemptEvery = 2 * time.Minute
	// attemptNames bounds the names that are told apart; the others share what is left.
	attemptNames = 1000
	// attemptPatience bounds the writing of a line, for which the one who is refused waits.
	attemptPatience = time.Second
)

// attempts writes down what was refused.
type attempts struct {
	write func(ctx context.Context, at attempt, more int)

	mu    sync.Mutex
	names map[string]*tries
}

// tries are the attempts of one name.
type tries struct {
	full    time.Time // when as many lines may be written as at first
	held    int       // attempts since the last line
	newest  attempt   // of those
	pending bool      // a line for them will be written
}

// An attempt is one line.
type attempt struct {
	order control.Order
	what  control.Tried
}

func newAttempts(desk *control.Desk, log *slog.Logger) *attempts {
	return &attempts{
		write: func(ctx context.Context, at attempt, more int) { record(ctx, desk, log, at, more) },
		names: map[string]*tries{},
	}
}

// note writes down that an action was refused with err, now or with those that follow.
func (as *attempts) note(r *http.Request, a action, in wanted, err error) {
	v := visitOf(r)
	what := in.Tried
	what.Action, what.Why = a.name, err.Error()
	if a.role == Admin && what.Job == "" && what.Lease == "" {
		what.Job = control.AllJobs
	}
	via := control.Page
	if strings.HasPrefix(r.URL.Path, apiPath+"/") {
		via = control.API
	}
	at := attempt{control.Order{By: v.who.Name, Via: via, From: v.from.String(), Reason: in.Reason}, what}
	more, now := as.may(at)
	var told refusal
	switch {
	case !now:
	case errors.As(err, &told) && told.code >= http.StatusInternalServerError:
		go as.write(context.WithoutCancel(r.Context()), at, more) // nobody is to wait for the database once more
	default:
		as.write(context.WithoutCancel(r.Context()), at, more)
	}
}

// may reports whether a line may be written now, and for how many attempts before it; if none may,
// one will be.
func (as *attempts) may(at attempt) (more int, now bool) {
	as.mu.Lock()
	defer as.mu.Unlock()
	t := as.of(at.order.By)
	wait := t.take(time.Now())
	if wait <= 0 {
		more, t.held = t.held, 0
		return more, true
	}
	t.held++
	t.newest = at
	if !t.pending {
		t.pending = true
		time.AfterFunc(wait, func() { as.catchUp(t) })
	}
	return 0, false
}

// take is how long it is until a line may be written; zero: it may be now.
func (t *tries) take(now time.Time) time.Duration {
	if t.full.Before(now) {
		t.full = now
	}
	if wait := t.full.Add(attemptEvery).Sub(now) - attemptBurst*attemptEvery; wait > 0 {
		return wait
	}
	t.full = t.full.Add(attemptEvery)
	return 0
}

// catchUp writes the line for what was held back.
func (as *attempts) catchUp(t *tries) {
	as.mu.Lock()
	t.pending = false
	at, more := t.newest, t.held-1
	if more >= 0 {
		t.held = 0
		t.take(time.Now())
	}
	as.mu.Unlock()
	if more >= 0 {
		as.write(context.Background(), at, more)
	}
}

func (as *attempts) of(name string) *tries {
	t := as.names[name]
	if t == nil && len(as.names) >= attemptNames {
		now := time.Now()
		for each, t := range as.names {
			if t.full.Before(now) && t.held == 0 {
				delete(as.names, each)
			}
		}
		if len(as.names) >= attemptNames {
			name = ""
			t = as.names[name]
		}
	}
	if t == nil {
		t = new(tries)
		as.names[name] = t
	}
	return t
}

// record adds the line, to the log too. Where the database does not take it, the log alone has it.
func record(ctx context.Context, desk *control.Desk, log *slog.Logger, at attempt, more int) {
	ctx, cancel := context.WithTimeout(ctx, attemptPatience)
	defer cancel()
	o, w := at.order, at.what
	log.Warn("order refused",
		"action", w.Action, "actor", o.By, "via", o.Via, "from", o.From, "job", w.Job, "lease", w.Lease, "replica", w.Replica,
		"run_id", w.Run, "request_id", w.Request, "why", w.Why, "more", more)
	w.More = more
	if err := desk.Refused(ctx, o, w); err != nil {
		log.Warn("a refused order is not in the audit", "action", w.Action, "actor", o.By, "more", more, "error", err)
	}
}
