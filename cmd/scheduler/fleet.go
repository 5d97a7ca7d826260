package main

import (
	"context"
	"fmt"
	"net/url"
	"slices"
	"strings"
	"sync"
	"time"
)

// How dev's replicas keep their leases: shorter than usual, so that a takeover can be watched.
const (
	devLease = 6 * time.Second
	devRenew = 2 * time.Second
	devDrain = 5 * time.Second
	devGrace = 2 * time.Second
)

// A fleet is dev's replicas, each by its name.
type fleet struct {
	exe   string
	env   []string
	url   string // of the database
	far   string // where wires to the database lead; empty: replicas connect to it themselves
	heard func(*child, entry)

	mu      sync.Mutex
	members map[string]*child
	wires   map[string]*wire
	over    bool
	awaited []expectation
}

// An expectation is of an entry in a replica's log.
type expectation struct {
	of    *child
	is    func(entry) bool
	given chan entry
}

// newFleet makes one without replicas. far is the address at which url's database listens, for wires
// that can be cut; empty: there are none.
func newFleet(url, far string, env []string, heard func(*child, entry)) (*fleet, error) {
	exe, err := ourselves()
	if err != nil {
		return nil, err
	}
	f := &fleet{exe: exe, env: childEnvironment(env), url: url, far: far, members: map[string]*child{}, wires: map[string]*wire{}}
	f.heard = func(c *child, e entry) {
		f.meet(c, e)
		heard(c, e)
	}
	return f, nil
}

// expect returns the first entry of the replica's log, from now on, for which is says so.
func (f *fleet) expect(c *child, is func(entry) bool) <-chan entry {
	x := expectation{c, is, make(chan entry, 1)}
	f.mu.Lock()
	defer f.mu.Unlock()
	f.awaited = append(f.awaited, x)
	return x.given
}

func (f *fleet) meet(c *child, e entry) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.awaited = slices.DeleteFunc(f.awaited, func(x expectation) bool {
		met := x.of == c && x.is(e)
		if met {
			x.given <- e
		}
		return met
	})
}

// start starts the replicas of these names, all at once, and returns when they serve.
func (f *fleet) start(names ...string) error {
	var begun []*child
	for _, name := range names {
		c, err := f.launch(name)
		if err != nil {
			return err
		}
		begun = append(begun, c)
	}
	for _, c := range begun {
		if err := c.await(30 * time.Second); err != nil {
			return err
		}
	}
	return nil
}

func (f *fleet) launch(name string) (*child, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.over {
		return nil, fmt.Errorf("start %s: dev is ending", name)
	}
	database, err := f.reach(name)
	if err != nil {
		return nil, err
	}
	c, err := startChild(name, f.exe, []string{
		"serve", "--witness", "off", "--name", name, "--listen", "127.0.0.1:0", "--log", "json", "--environment", "dev",
		"--lease", devLease.String(), "--renew", devRenew.String(),
		"--drain", devDrain.String(), "--grace", devGrace.String(),
	}, append(slices.Clip(f.env), "DATABASE_URL="+database), f.heard)
	if err != nil {
		return nil, err
	}
	f.members[name] = c
	return c, nil
}

// reach is the address under which the replica of this name finds the database: its wire's, which stays
// from one start to the next.
func (f *fleet) reach(name string) (string, error) {
	if f.far == "" {
		return f.url, nil
	}
	if f.wires[name] == nil {
		w, err := newWire(f.far)
		if err != nil {
			return "", err
		}
		f.wires[name] = w
	}
	u, err := url.Parse(f.url)
	if err != nil {
		return "", fmt.Errorf("lead %s to the database: %w", name, err)
	}
	u.Host = f.wires[name].near()
	return u.String(), nil
}

// wire is the replica's way to the database; nil: it has none that could be cut.
func (f *fleet) wire(name string) *wire {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.wires[name]
}

// of returns the living replica with this owner id, or nil.
func (f *fleet) of(owner string) *child {
	for _, c := range f.all() {
		if c.id() == owner && c.alive() {
			return c
		}
	}
	return nil
}

// all is every replica, by name.
func (f *fleet) all() []*child {
	f.mu.Lock()
	defer f.mu.Unlock()
	var all []*child
	for _, c := range f.members {
		all = append(all, c)
	}
	slices.SortFunc(all, func(a, b *child) int { return strings.Compare(a.name, b.name) })
	return all
}

// frozen is the replica that stands still, or nil.
func (f *fleet) frozen() *child {
	for _, c := range f.all() {
		if c.isFrozen() && c.alive() {
			return c
		}
	}
	return nil
}

// restart starts a replica that has ended anew, after the pause, unless somebody has done so meanwhile.
func (f *fleet) restart(ctx context.Context, c *child, pause time.Duration) error {
	select {
	case <-ctx.Done():
		return context.Cause(ctx)
	case <-time.After(pause):
	}
	<-c.gone
	if f.named(c.name) != c {
		return nil
	}
	return f.start(c.name)
}

// stop ends every replica, all at once, and starts no more.
func (f *fleet) stop() {
	f.mu.Lock()
	f.over = true
	f.mu.Unlock()
	var ending sync.WaitGroup
	for _, c := range f.all() {
		ending.Go(func() { c.end(devDrain + devGrace + 2*slack) })
	}
	ending.Wait()
	for _, w := range f.wires {
		w.close()
	}
}

// named is the replica that was started last under the name.
func (f *fleet) named(name string) *child {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.members[name]
}
