package scheduler

import (
	"sync"
	"time"
)

// A rush is when more is due at once than one statement claims. Meanwhile the ends of runs wait, for
// they would take from the claims what these need of the machine, and no run waits for its record.
type rush struct {
	mu   sync.Mutex
	over chan struct{} // closed once it is; nil: there is none
}

// longestWay bounds how long ends wait, for there may be no end of what is due.
const longestWay = 500 * time.Millisecond

// rush says that more is due.
func (r *rush) rush() {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.over == nil {
		r.over = make(chan struct{})
	}
}

// calm says that nothing is.
func (r *rush) calm() {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.over != nil {
		close(r.over)
		r.over = nil
	}
}

// give returns once there is no rush, or after longestWay, or once one of the channels is closed.
func (r *rush) give(stop, giveUp <-chan struct{}) {
	r.mu.Lock()
	over := r.over
	r.mu.Unlock()
	if over == nil {
		return
	}
	late := time.NewTimer(longestWay)
	defer late.Stop()
	select {
	case <-over:
	case <-late.C:
	case <-stop:
	case <-giveUp:
	}
}
