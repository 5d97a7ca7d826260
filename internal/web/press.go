package web

import (
	"errors"
	"sync"
)

// A press keeps the pages that were made lately, so that each is made once, however many look at it.
type press struct {
	mu     sync.Mutex
	sheets map[imprint]*sheet
}

type sheet struct {
	once sync.Once
	body []byte
	err  error
}

var errMaking = errors.New("making the page panicked")

// mostSheets bounds the memory: a page of 100 jobs has about 200 kB.
const mostSheets = 48

func (p *press) sheet(i imprint, make func() ([]byte, error)) ([]byte, error) {
	p.mu.Lock()
	s := p.sheets[i]
	if s == nil {
		if len(p.sheets) >= mostSheets || p.sheets == nil {
			p.sheets = map[imprint]*sheet{}
		}
		s = new(sheet)
		p.sheets[i] = s
	}
	p.mu.Unlock()
	s.once.Do(func() {
		s.err = errMaking // should it panic
		s.body, s.err = make()
	})
	return s.body, s.err
}
