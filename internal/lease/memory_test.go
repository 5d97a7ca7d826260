package lease

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"

	"rota/internal/fence"
)

// memory is the store of tests whose time is simulated. It does what the statements of postgres do,
// each call at one instant; TestStoresAgree holds the two equal.
type memory struct {
	now func() time.Time

	mu      sync.Mutex
	rows    map[string]*row
	terms   map[string]int64 // the highest epoch in the history
	members map[string]memberRow
	skilled map[string]ability
	shards  map[string]*shardsRow
	ears    map[int]chan []string
	ear     int
	deaf    bool // announcements do not arrive

	watch func(*memory) // called after each change, with mu held
}

type row struct {
	owner   string
	expires time.Time
	epoch   int64
	held    bool // somebody has locked it
	since   time.Time
}

type memberRow struct {
	expires  time.Time
	draining bool
	ability  string
}

// A shardsRow is a row of job_shards.
type shardsRow struct {
	n, acting  int
	generation int64
	high       int64
	held       bool
}

func newMemory(now func() time.Time) *memory {
	return &memory{now: now, rows: map[string]*row{}, terms: map[string]int64{}, members: map[string]memberRow{}, skilled: map[string]ability{}, shards: map[string]*shardsRow{}, ears: map[int]chan []string{}}
}

func (m *memory) changed() {
	if m.watch != nil {
		m.watch(m)
	}
}

func (m *memory) register(_ context.Context, names []string, a ability) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.skilled[a.id] = a
	jobs, counts, whole := shardsIn(names)
	for _, n := range slices.Concat(names, whole) {
		if m.rows[n] == nil {
			m.rows[n] = &row{expires: m.now().Add(-time.Second)}
		}
	}
	for i, job := range jobs {
		if m.shards[job] == nil {
			m.shards[job] = &shardsRow{n: int(counts[i]), acting: 1, high: m.rows[job].epoch}
		}
	}
	return nil
}

func (m *memory) resize(_ context.Context, asked []resize) (settled []string, err error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	for _, a := range asked {
		s := m.shards[a.job]
		if s == nil || s.held {
			continue
		}
		settled = append(settled, a.job)
		if a.orphan == 0 || s.n == a.orphan && !m.has(Leases(a.job, a.orphan, false)[0].kin()) {
			s.n = a.count
		}
	}
	m.changed()
	return settled, nil
}

// has reports whether a member can lead leases of a kin.
func (m *memory) has(kin string) bool {
	for _, r := range m.members {
		if a := m.skilled[r.ability]; r.expires.After(m.now()) && !r.draining && a.lead(kin) {
			return true
		}
	}
	return false
}

func (m *memory) beat(ctx context.Context, self member, held []holding) ([]verdict, look, error) {
	verdicts, err := m.renew(ctx, self.owner, self.lease, held)
	if err != nil {
		return nil, look{}, err
	}
	m.mu.Lock()
	m.members[self.owner] = memberRow{expires: m.now().Add(self.lasts), draining: self.draining, ability: self.ability}
	m.mu.Unlock()
	l, err := m.look(ctx, self.owner)
	return verdicts, l, err
}

func (m *memory) abilities(_ context.Context, ids []string) (found []ability, err error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	for _, id := range ids {
		if a, ok := m.skilled[id]; ok {
			found = append(found, a)
		}
	}
	return found, nil
}

func (m *memory) look(_ context.Context, owner string) (look, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	l := look{now: m.now(), received: m.now(), answered: m.now(), all: len(m.rows)}
	for job, s := range m.shards {
		if l.counts == nil {
			l.counts = map[string]int{}
		}
		l.counts[job] = s.n
	}
	for id, r := range m.members {
		if id != owner && r.expires.After(l.now) && !r.draining {
			l.peers = append(l.peers, peer{id, r.ability})
		}
	}
	loads := map[string]*load{}
	for _, name := range slices.Sorted(maps.Keys(m.rows)) {
		r := m.rows[name]
		if !r.expires.After(l.now) || r.owner == nobody {
			l.free = append(l.free, name)
			continue
		}
		o := loadOf(loads, r.owner)
		if o.leases++; o.leases == 1 || r.expires.Before(o.earliest) {
			o.earliest = r.expires
		}
		if leases := leasesOf([]string{name}); !leases[0].Shard.Whole() {
			o.split(leases[0].kin(), 1)
		}
	}
	for _, owner := range slices.Sorted(maps.Keys(loads)) {
		l.owners = append(l.owners, *loads[owner])
	}
	return l, nil
}

// judge is what every statement over holdings asks of a row first.
func (m *memory) judge(owner string, h holding) (*row, verdict) {
	r := m.rows[h.name]
	switch {
	case r == nil || r.owner != owner || r.epoch != h.epoch || !r.expires.After(m.now()):
		return nil, lost
	case r.held:
		return nil, locked
	}
	return r, renewed
}

func (m *memory) renew(_ context.Context, owner string, lease time.Duration, held []holding) ([]verdict, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	verdicts := make([]verdict, len(held))
	for i, h := range held {
		r, v := m.judge(owner, h)
		if v == renewed {
			r.expires = m.now().Add(lease)
		}
		verdicts[i] = v
	}
	m.changed()
	return verdicts, nil
}

func (m *memory) acquire(_ context.Context, owner string, lease time.Duration, claims []claim, wait bool) ([]grant, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	grants := make([]grant, len(claims))
	now := m.now()
	counted := map[string][]int{}
	for i, c := range claims {
		if c.counted {
			job, _ := fence.SplitLease(c.name)
			counted[job] = append(counted[job], i)
			continue
		}
		r := m.rows[c.name]
		switch {
		case r == nil || r.expires.After(now):
			continue
		case r.held && wait:
			return nil, context.DeadlineExceeded
		case r.held:
			grants[i].outcome = busy
			continue
		}
		known := max(r.epoch, c.seen, m.terms[c.name])
		if known >= absurdEpoch {
			grants[i] = grant{outcome: absurd, epoch: known}
			continue
		}
		grants[i] = grant{outcome: won, epoch: known + 1, first: r.epoch == 0, idle: now.Sub(r.expires)}
		r.owner, r.epoch, r.expires, r.since = owner, known+1, now.Add(lease), now
		m.terms[c.name] = known + 1
	}
	for job, places := range counted {
		slices.SortFunc(places, func(a, b int) int { return strings.Compare(claims[a].name, claims[b].name) })
		if m.acquireShards(job, owner, lease, claims, places, grants) && wait {
			return nil, context.DeadlineExceeded
		}
	}
	m.changed()
	return grants, nil
}

// acquireShards acquires leases of one job that has a count. It reports whether a row is locked.
func (m *memory) acquireShards(job, owner string, lease time.Duration, claims []claim, places []int, grants []grant) (locked bool) {
	s, now := m.shards[job], m.now()
	count := func(name string) int { _, s := fence.SplitLease(name); return max(1, s.Of) }
	if s == nil || s.n != count(claims[places[0]].name) {
		return false
	}
	free := func(r *row) bool { return r != nil && (!r.expires.After(now) || r.owner == nobody) }
	all := func(what outcome) {
		for _, i := range places {
			if r := m.rows[claims[i].name]; r != nil && (what == held || free(r)) {
				grants[i].outcome = what
			}
		}
	}
	if s.held {
		all(busy)
		return true
	}
	var former []*row
	known := s.high
	if s.acting != s.n {
		led := false
		for _, l := range Leases(job, s.acting, false) {
			if r := m.rows[l.Name]; r != nil {
				former = append(former, r)
				led = led || !r.held && r.owner != nobody && r.expires.After(now)
				locked = locked || r.held
				known = max(known, r.epoch)
			}
		}
		switch {
		case led:
			all(held)
			return false
		case locked:
			for _, i := range places {
				if m.rows[claims[i].name] != nil {
					grants[i].outcome = busy
				}
			}
			return true
		}
	}
	for _, l := range Leases(job, s.n, false) {
		if r := m.rows[l.Name]; r != nil {
			known = max(known, r.epoch)
		}
	}
	for _, i := range places {
		known = max(known, claims[i].seen, m.terms[claims[i].name])
	}
	next, out, any := known, known+1, false
	if s.acting != s.n {
		next++
	}
	for _, i := range places {
		r := m.rows[claims[i].name]
		switch {
		case !free(r):
		case r.held:
			locked, grants[i].outcome = true, busy
		case known >= absurdEpoch:
			grants[i] = grant{outcome: absurd, epoch: known}
		default:
			next++
			g := grant{outcome: won, epoch: next, first: r.epoch == 0 || r.owner == nobody}
			if !g.first {
				g.idle = now.Sub(r.expires)
			}
			grants[i], any = g, true
			r.owner, r.epoch, r.expires, r.since = owner, next, now.Add(lease), now
			m.terms[claims[i].name] = next
		}
	}
	if !any {
		return locked
	}
	for _, r := range former {
		r.owner, r.epoch, r.expires = nobody, out, now.Add(100*365*24*time.Hour)
	}
	if s.acting != s.n {
		s.acting, s.generation = s.n, s.generation+1
	}
	s.high = next
	return locked
}

func (m *memory) release(_ context.Context, owner, _ string, held []holding, to []string) ([]verdict, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	verdicts := make([]verdict, len(held))
	var names []string
	for i, h := range held {
		r, v := m.judge(owner, h)
		if v == renewed {
			r.expires = m.now()
			if to[i] == "" {
				names = append([]string{h.name}, names...)
			} else {
				names = append(names, to[i], h.name)
			}
		}
		verdicts[i] = v
	}
	m.changed()
	if len(names) > 0 && !m.deaf {
		for _, c := range m.ears {
			select {
			case c <- names:
			default:
			}
		}
	}
	return verdicts, nil
}

func (m *memory) mine(_ context.Context, owner string) (held []holding, err error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	for _, name := range slices.Sorted(maps.Keys(m.rows)) {
		if r := m.rows[name]; r.owner == owner && r.expires.After(m.now()) {
			held = append(held, holding{name, r.epoch})
		}
	}
	return held, nil
}

func (m *memory) leave(_ context.Context, owner string) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	delete(m.members, owner)
	return nil
}

func (m *memory) listen(ctx context.Context, _ string, hint func([]string), reaches func(bool, error)) {
	c := make(chan []string, 16)
	m.mu.Lock()
	m.ear++
	me := m.ear
	m.ears[me] = c
	m.mu.Unlock()
	reaches(true, nil)
	for {
		select {
		case names := <-c:
			hint(names)
		case <-ctx.Done():
			m.mu.Lock()
			delete(m.ears, me)
			m.mu.Unlock()
			return
		}
	}
}

// Further hands for tests: what other programs might do to a row.

func (m *memory) set(name string, f func(*row)) {
	m.mu.Lock()
	defer m.mu.Unlock()
	f(m.rows[name])
	m.terms[name] = max(m.terms[name], m.rows[name].epoch)
	m.changed()
}

func (m *memory) get(name string) row {
	m.mu.Lock()
	defer m.mu.Unlock()
	if r := m.rows[name]; r != nil {
		return *r
	}
	return row{}
}

func (m *memory) rowNames() map[string]bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	names := map[string]bool{}
	for name := range m.rows {
		names[name] = true
	}
	return names
}

func (r row) String() string { return fmt.Sprintf("%s@%d until %s", r.owner, r.epoch, r.expires) }
