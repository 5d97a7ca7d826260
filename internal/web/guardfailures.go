package web

import (
	"net/netip"
	"sync"
	"time"
)

const (
	// mostFailures is how often within a window somebody at one address may fail to say who they are.
	mostFailures  = 20
	failureWindow = time.Minute
	// mostAddresses bounds what is remembered; the others share what is left.
	mostAddresses = 4096
)

// failures counts failed entries by address.
type failures struct {
	mu      sync.Mutex
	counted map[netip.Prefix]failing
}

type failing struct {
	times int
	until time.Time
}

func newFailures() *failures { return &failures{counted: map[netip.Prefix]failing{}} }

// may reports whether another try may be made from there.
func (f *failures) may(from netip.Addr) bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	c, counted := f.counted[f.place(from)]
	return !counted || c.times < mostFailures || !time.Now().Before(c.until)
}

func (f *failures) add(from netip.Addr) {
	f.mu.Lock()
	defer f.mu.Unlock()
	now, at := time.Now(), f.place(from)
	c := f.counted[at]
	if !now.Before(c.until) {
		c = failing{until: now.Add(failureWindow)}
	}
	c.times++
	f.counted[at] = c
}

// place is the address's, or the one that all share once too many are remembered. Somebody with IPv6
// has a whole network of addresses.
func (f *failures) place(from netip.Addr) netip.Prefix {
	bits := 64
	if from.Is4() {
		bits = 32
	}
	at, err := from.Prefix(bits)
	if _, counted := f.counted[at]; err == nil && counted {
		return at
	}
	if len(f.counted) >= mostAddresses {
		now := time.Now()
		for each, c := range f.counted {
			if !now.Before(c.until) {
				delete(f.counted, each)
			}
		}
	}
	if err != nil || len(f.counted) >= mostAddresses {
		return netip.Prefix{}
	}
	return at
}
