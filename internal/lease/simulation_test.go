package lease

import (
	"fmt"
	"math/rand/v2"
	"os"
	"slices"
	"strconv"
	"sync"
	"testing"
	"testing/synctest"
	"time"
)

// A simulation is three replicas, four leases, a job whose shards each replica counts in its own way,
// and a competitor that speaks the article's SQL, under random faults: calls that fail, hang, execute
// late or lose their answers, locked rows, suspended machines, drains and restarts, and with them
// changes of the count in force. What P1, P2, P5 and P6 promise is checked after every change of a
// row, and every few milliseconds in between.
type simulation struct {
	*world
	rng         *rand.Rand
	rngMu       sync.Mutex
	mu          sync.Mutex
	all         []*replica
	rough       bool
	woke        time.Time // when the last suspension ended
	epochs      map[string]int64
	shardEpochs map[string]int64 // the newest of each lease of the job with shards
}

// sharded is the job whose shards the replicas count differently.
const sharded = "s"

// TestSimulation runs seeds from a random one on; ROTA_SEED=n runs that one alone, and
// ROTA_SEEDS=n that many.
func TestSimulation(t *testing.T) {
	t.Parallel()
	simulate(t, 60)
}

func simulate(t *testing.T, seeds int) {
	first := rand.Uint64N(1e9)
	if s := os.Getenv("ROTA_SEED"); s != "" {
		n, err := strconv.ParseUint(s, 10, 64)
		if err != nil {
			t.Fatal(err)
		}
		first, seeds = n, 1
	}
	for seed := first; seed < first+uint64(seeds); seed++ {
		synctest.Test(t, func(t *testing.T) {
			defer func() { // synctest.Test does not return after a failure
				if t.Failed() {
					t.Logf("run it again with ROTA_SEED=%d", seed)
				}
			}()
			simulateOnce(t, seed)
		})
	}
}

func simulateOnce(t *testing.T, seed uint64) {
	s := &simulation{world: newWorld(t), rng: rand.New(rand.NewPCG(seed, 7)), epochs: map[string]int64{}, shardEpochs: map[string]int64{}}
	s.db.watch = s.check
	leases := leasesNamed("a", "b", "c", "d")
	if err := s.db.register(t.Context(), []string{"a", "b", "c", "d"}, *newAbility([]string{"a", "b", "c", "d"})); err != nil {
		t.Fatal(err)
	}
	for i := range 3 {
		s.join(fmt.Sprintf("r/%d", i), leases)
	}
	s.mu.Lock()
	s.rough = true
	s.mu.Unlock()
	next := 3
	for range 60 {
		pass(time.Duration(s.draw(3000)) * time.Millisecond)
		s.db.mu.Lock()
		s.check(s.db)
		s.db.mu.Unlock()
		switch s.draw(16) {
		case 0:
			s.restart(fmt.Sprintf("r/%d", next), leases)
			next++
		case 1:
			s.suspend(time.Duration(s.draw(30)) * time.Second)
			s.mu.Lock()
			s.woke = time.Now()
			s.mu.Unlock()
		case 2, 3:
			name := leases[s.draw(4)].Name
			if s.draw(3) == 0 {
				of := 1 + s.draw(3)
				name = Leases(sharded, of, false)[s.draw(of)].Name
			}
			if s.db.get(name).expires.IsZero() {
				continue // nobody has that count
			}
			s.db.set(name, func(r *row) { r.held = !r.held })
		case 4:
			s.article(leases[s.draw(4)].Name)
		case 5:
			s.all[s.draw(len(s.all))].GiveUp(leases[s.draw(4)].Name, Reason("step down"))
		case 6:
			s.drain(fmt.Sprintf("r/%d", next), leases)
			next++
		case 7:
			s.all[s.draw(len(s.all))].GiveUp(Leases(sharded, 3, false)[s.draw(3)].Name, Reason("step down"))
		case 8:
			s.db.mu.Lock()
			if row := s.db.shards[sharded]; row != nil {
				row.held = !row.held
			}
			s.db.mu.Unlock()
		}
	}
	s.calm(leases)
}

func (s *simulation) draw(n int) int {
	s.rngMu.Lock()
	defer s.rngMu.Unlock()
	return s.rng.IntN(n)
}

func (s *simulation) join(name string, leases []Lease) {
	of := 1 + s.draw(3)
	r := s.start(name, s.next, append(slices.Clone(leases), Leases(sharded, of, false)...)...)
	r.linger = time.Duration(s.draw(3000)) * time.Millisecond
	s.mu.Lock()
	s.all = append(s.all, r)
	s.mu.Unlock()
}

// restart drains one replica, and starts another without waiting.
func (s *simulation) restart(name string, leases []Lease) {
	s.all[s.draw(len(s.all))].stop()
	s.join(name, leases)
}

// drain has one replica give up everything and stay, and starts another beside it.
func (s *simulation) drain(name string, leases []Lease) {
	r := s.all[s.draw(len(s.all))]
	r.Drain()
	r.mu.Lock()
	if r.most == 0 {
		r.most = len(r.terms) + 1
	}
	r.mu.Unlock()
	s.join(name, leases)
}

// inForce is the count that the job has in the end, whoever was the latest to have his say.
func (s *simulation) inForce() int {
	s.db.mu.Lock()
	defer s.db.mu.Unlock()
	if row := s.db.shards[sharded]; row != nil {
		return row.n
	}
	return 1
}

func (s *simulation) next(string) fault {
	s.mu.Lock()
	rough := s.rough
	s.mu.Unlock()
	if !rough {
		return fault{}
	}
	switch s.draw(12) {
	case 0:
		return fault{fail: true}
	case 1:
		return fault{mute: true}
	case 2:
		return fault{delay: time.Duration(s.draw(9000)) * time.Millisecond}
	case 3:
		return fault{slow: time.Duration(s.draw(5000)) * time.Millisecond}
	case 4:
		return fault{delay: time.Duration(s.draw(9000)) * time.Millisecond, mute: true}
	}
	return fault{delay: time.Duration(s.draw(20)) * time.Millisecond}
}

// article is the article's upsert by another program: it renews what is its own, and takes over
// what has expired.
func (s *simulation) article(name string) {
	s.db.set(name, func(r *row) {
		now := s.now()
		switch {
		case r.held:
		case r.owner == "article" && !r.expires.Before(now):
			r.expires = now.Add(testLease)
		case r.expires.Before(now):
			r.owner, r.epoch, r.expires, r.since = "article", r.epoch+1, now.Add(testLease), now
		}
	})
}

// check holds the promises against the rows. The database's lock is held.
func (s *simulation) check(db *memory) {
	s.mu.Lock()
	defer s.mu.Unlock()
	now := db.now()
	for name, r := range db.rows {
		if r.epoch < s.epochs[name] {
			s.t.Errorf("P2: the epoch of %s fell from %d to %d", name, s.epochs[name], r.epoch)
		}
		s.epochs[name] = r.epoch
	}
	s.checkShards(db, now)
	asleep := time.Since(s.woke) <= testLease/15/4
	workedUnder := map[string]string{}
	for _, replica := range s.all {
		replica.mu.Lock()
		if replica.most > 0 && len(replica.terms) >= replica.most {
			s.t.Errorf("P6: %s has begun a term after it was drained", replica.cfg.Owner)
		}
		for _, t := range replica.terms {
			key := fmt.Sprint(t.Token.Lease, "@", t.Token.Epoch)
			if t.Job == sharded {
				key = fmt.Sprint(t.Job, "@", t.Token.Epoch)
			}
			if who, twice := workedUnder[key]; twice {
				s.t.Errorf("P2: %s was worked under by %s and %s", key, who, t.Token.Owner)
			}
			workedUnder[key] = t.Token.Owner
			if t.Context().Err() != nil || asleep {
				continue
			}
			r := db.rows[t.Token.Lease]
			if r.owner != t.Token.Owner || r.epoch != t.Token.Epoch {
				s.t.Errorf("P1, P5: %s of %s lives although the row is %v", key, t.Token.Owner, r)
			}
			if !r.expires.After(now) {
				s.t.Errorf("P5, P6: %s of %s lives at %s although the lease has run out or was released: %v", key, t.Token.Owner, now, r)
			}
		}
		replica.mu.Unlock()
	}
}

// checkShards holds the shards against each other: they share one order of epochs, and are led by one
// count at a time.
func (s *simulation) checkShards(db *memory, now time.Time) {
	live := map[int]bool{}
	for name, r := range db.rows {
		l := leasesOf([]string{name})[0]
		if l.Job != sharded || r.owner == nobody {
			continue
		}
		if r.epoch > s.shardEpochs[name] {
			for other, epoch := range s.shardEpochs {
				if epoch == r.epoch {
					s.t.Errorf("P2: %s and %s have both had epoch %d", name, other, r.epoch)
				}
			}
			s.shardEpochs[name] = r.epoch
		}
		if r.expires.After(now) {
			live[l.count()] = true
		}
	}
	if len(live) > 1 {
		s.t.Errorf("P1: leases of several counts are led: %v", live)
	}
}

// calm ends the faults: every lease must be led, by one, and then everybody must be able to leave.
func (s *simulation) calm(leases []Lease) {
	s.mu.Lock()
	s.rough = false
	s.mu.Unlock()
	for name := range s.db.rowNames() {
		s.db.set(name, func(r *row) { r.held = false })
	}
	s.db.mu.Lock()
	if row := s.db.shards[sharded]; row != nil {
		row.held = false
	}
	s.db.mu.Unlock()
	s.join("last", leases)
	pass(10 * testLease)
	for _, l := range append(leases, Leases(sharded, s.inForce(), false)...) {
		n := 0
		for _, r := range s.all {
			if r.leads(l.Name) != nil {
				n++
			}
		}
		if n != 1 {
			s.t.Errorf("%s is led by %d replicas in calm: row %v", l.Name, n, s.db.get(l.Name))
		}
	}
	for _, r := range s.all {
		r.end()
	}
}
