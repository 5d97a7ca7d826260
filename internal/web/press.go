package web

import (
	"fmt"
	"runtime/debug"
	"sync"
	"time"

	"rota/internal/status"
)

// A press makes each page once of a snapshot, however many look at it, and keeps it until there is the
// next. While that is made, those who have the page already, and ask what is new of it, get the one
// before: nobody who looks all the time waits for it.
type press struct {
	mu     sync.Mutex
	plates map[uint64]*plate
	turn   sync.Mutex // held where nobody waits for a page, so that those leave the other cores alone
}

// A plate is the page at one address, as all who have the same rights see it.
type plate struct {
	last *sheet // nil: none is made yet
	next *sheet // being made, or failed; nil: none
}

type sheet struct {
	imprint
	snap status.Snapshot
	read time.Time     // when the snapshot was
	made chan struct{} // closed once what follows is there
	body []byte
	err  error
}

const (
	// mostPlates bounds the memory: a page of 100 jobs has about 200 kB.
	mostPlates = 48
	// mostBehind is how old a snapshot may be of which a page is given out while the next is made. One
	// who asks every two seconds, and is the only one, has what is new.
	mostBehind = 1800 * time.Millisecond
)

// sheet is the page of snap, or, where behind allows it and it is still to be made, the one before.
func (p *press) sheet(address uint64, i imprint, snap status.Snapshot, behind bool, make func() ([]byte, error)) *sheet {
	read := time.Now().Add(-snap.Age)
	p.mu.Lock()
	at := p.plate(address)
	last, s := at.last, at.next
	if last != nil && (last.imprint == i || last.asOf.After(i.asOf)) {
		p.mu.Unlock()
		return last
	}
	mine := s == nil || s.imprint != i
	if mine {
		s = &sheet{imprint: i, snap: snap, read: read, made: newGate()}
		at.next = s
	}
	p.mu.Unlock()
	behind = behind && last != nil && !last.snap.Stale && !snap.Stale && time.Since(last.read) < mostBehind
	switch {
	case mine && behind:
		go func() {
			p.turn.Lock()
			defer p.turn.Unlock()
			p.make(at, s, make)
		}()
	case mine:
		p.make(at, s, make)
	}
	if behind {
		return last
	}
	<-s.made
	return s
}

func newGate() chan struct{} { return make(chan struct{}) }

// plate is called with mu held.
func (p *press) plate(address uint64) *plate {
	at := p.plates[address]
	if at == nil {
		if p.plates == nil || len(p.plates) >= mostPlates {
			p.plates = map[uint64]*plate{}
		}
		at = new(plate)
		p.plates[address] = at
	}
	return at
}

// make keeps what was made as the last, unless a later one is there by now.
func (p *press) make(at *plate, s *sheet, make func() ([]byte, error)) {
	defer close(s.made)
	defer func() {
		if panicked := recover(); panicked != nil { // or it would end the replica where nobody waits
			s.err = fmt.Errorf("making the page panicked: %v\n%s", panicked, debug.Stack())
		}
		p.mu.Lock()
		defer p.mu.Unlock()
		if s.err == nil && (at.last == nil || !at.last.asOf.After(s.asOf)) {
			at.last = s
		}
		if at.next == s && s.err == nil {
			at.next = nil
		}
	}()
	s.body, s.err = make()
}
