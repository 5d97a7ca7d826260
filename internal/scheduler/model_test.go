package scheduler

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"os"
	"slices"
	"strconv"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"rota/internal/control"
	"rota/internal/fence"
	"rota/internal/lease"
	"rota/internal/registry"
)

// P7: whatever becomes of calls, locks, terms, replicas and clocks, each tick of a schedule between the
// first sight of its job and the end is on record, and no attempt is run twice.
func TestEachTickIsOnRecordAndNoneIsRunTwice(t *testing.T) {
	t.Parallel()
	playModels(t, 25)
}

// playModels plays some at random, or the one of ROTA_TEST_SEED.
func playModels(t *testing.T, n uint64) {
	first := rand.Uint64N(1 << 32)
	if given := os.Getenv("ROTA_TEST_SEED"); given != "" {
		var err error
		if first, err = strconv.ParseUint(given, 10, 64); err != nil {
			t.Fatal(err)
		}
		n = 1
	}
	for seed := first; seed < first+n; seed++ {
		playModel(t, seed)
	}
}

// playModel plays ten minutes of two replicas that lead a job in turn, and checks what came of it.
func playModel(t *testing.T, seed uint64) {
	t.Run(fmt.Sprint("seed ", seed), func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			m := newModel(t, seed)
			for end := time.Now().Add(10 * time.Minute); time.Now().Before(end); {
				m.wait(15 * time.Second)
				m.act()
			}
			m.end()
			m.check()
		})
	})
}

// A model is two replicas on one database, at which everything fails at times.
type model struct {
	t     *testing.T
	job   registry.Job
	store *fakeStore
	two   [2]*bench
	terms [2]*fakeTerm // the last of each
	leads [2]<-chan struct{}
	epoch int64
	first time.Time // what the ticks count from
	asked []control.Request
	twin  bool // they lead another lease beside it, with the same ticks and claims of its own

	mu      sync.Mutex
	rand    *rand.Rand
	calm    bool // nothing fails any more
	away    bool // every call fails
	running map[int64]int
	calls   map[string]int      // by tick and attempt
	flying  map[fence.Token]int // claims under way
	sent    sync.WaitGroup      // what executes late
}

func newModel(t *testing.T, seed uint64) *model {
	m := &model{
		t: t, store: newFakeStore(), rand: rand.New(rand.NewPCG(seed, seed)),
		running: map[int64]int{}, calls: map[string]int{}, flying: map[fence.Token]int{},
	}
	m.job = registry.Job{
		Name: "job", Schedule: registry.Every(m.upTo(9*time.Second).Truncate(time.Second) + time.Second), Run: m.run,
		Missed: registry.Missed(m.rand.IntN(3)), Overlap: registry.Overlap(m.rand.IntN(2)), IfLost: registry.IfLost(m.rand.IntN(2)),
	}
	if m.chance(3) {
		m.job.Schedule = registry.Cron("*/7 * * * * *")
	}
	if m.chance(2) {
		m.job.Retry = registry.Retry{Attempts: 1 + m.rand.IntN(4), Pause: m.upTo(3 * time.Second)}
	}
	if m.chance(3) {
		m.job.Jitter = max(0, m.upTo(m.job.Schedule.Period()))
	}
	twin := m.job
	twin.Name, twin.Run, m.twin = "twin", idle, m.chance(3)
	for i := range m.two {
		m.two[i] = newBenchOf(t, fmt.Sprint("replica ", i), m.store, slog.DiscardHandler, m.job, twin)
		m.two[i].ticker.size = 1
		wild := &wildStore{fakeStore: m.store, model: m}
		m.two[i].ticker.store, m.two[i].opener.store, m.two[i].recorder.store = wild, wild, wild
	}
	return m
}

func (m *model) upTo(d time.Duration) time.Duration {
	m.mu.Lock()
	defer m.mu.Unlock()
	return time.Duration(m.rand.Int64N(int64(d) + 1))
}

// chance is true once in so many times.
func (m *model) chance(n int) bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.rand.IntN(n) == 0
}

func (m *model) wait(longest time.Duration) { time.Sleep(m.upTo(longest)) }

func (m *model) isCalm() bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.calm
}

// run is the job: it takes its time, goes wrong, and looks at its context late.
func (m *model) run(ctx context.Context, r *registry.Run) error {
	epoch := r.Fence.Epoch()
	m.mu.Lock()
	m.calls[fmt.Sprint(r.Tick.UTC(), " ", r.Attempt)]++
	if m.running[epoch]++; m.running[epoch] > 1 {
		m.t.Error("it overlaps itself")
	}
	m.mu.Unlock()
	defer func() {
		m.mu.Lock()
		defer m.mu.Unlock()
		m.running[epoch]--
	}()
	switch {
	case m.isCalm() || m.chance(3):
		return nil
	case m.chance(8):
		panic("no")
	case m.chance(4):
		return errors.New("no")
	case m.chance(4):
		m.wait(4 * time.Second) // without a look
		return context.Cause(ctx)
	}
	return pause(ctx, m.upTo(12*time.Second))
}

// act is one thing that happens.
func (m *model) act() {
	m.mu.Lock()
	what := m.rand.IntN(11)
	m.mu.Unlock()
	switch what {
	case 0, 1, 2:
		m.handOver()
	case 3: // the clock is set, and the replicas notice later
		step := m.upTo(20*time.Minute) - 10*time.Minute
		m.store.set(func() { m.store.off += step })
		for _, b := range m.two {
			m.wait(3 * time.Second)
			b.elector.off.Store(int64(m.store.off))
		}
	case 4:
		m.store.set(func() { m.store.locked["job"] = true })
		m.wait(10 * time.Second)
		m.store.set(func() { m.store.locked["job"] = false })
	case 5:
		m.setAway(true)
		m.wait(30 * time.Second)
		m.setAway(false)
	case 6:
		m.store.set(func() { m.store.paused["job"] = !m.store.paused["job"] })
	case 7:
		m.asked = append(m.asked, control.Request{
			ID: int64(len(m.asked)) + 1, Kind: control.Run, Job: "job", Lease: "job", Made: m.store.now().Add(time.Nanosecond).UTC(),
		})
		m.steer()
	default:
		m.steer()
	}
}

func (m *model) setAway(away bool) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.away = away
}

// steer has both see all requests that were ever made.
func (m *model) steer() {
	for _, b := range m.two {
		b.Steer(control.State{Requests: m.asked})
	}
}

// handOver ends the term, in one of the ways in which terms end, and begins the next; it may be long
// until then.
func (m *model) handOver() {
	last := int(m.epoch+1) % 2
	if term := m.terms[last]; term != nil {
		switch {
		case m.chance(2): // given back
			close(term.asked)
			<-m.leads[last]
		case m.chance(2): // its replica notices in time
			term.End(lease.ErrDeadline)
		default: // it does not, and is fenced; or notices later
			m.sent.Go(func() {
				m.wait(20 * time.Second)
				term.End(lease.ErrDeadline)
			})
		}
		m.terms[last] = nil
	}
	if m.chance(4) {
		m.wait(4 * time.Minute)
	}
	m.epoch++
	next := int(m.epoch+1) % 2
	if m.leads[next] != nil {
		<-m.leads[next] // a replica does not lead a lease twice at once
	}
	m.terms[next] = newFakeTerm()
	token := fence.Token{Lease: "job", Owner: m.two[next].cfg.Owner, Epoch: m.epoch}
	m.store.set(func() { m.store.holder["job"] = token })
	m.leads[next] = m.lead(next)
	if m.first.IsZero() {
		synctest.Wait()
		m.wait(time.Second)
		m.store.set(func() { m.first = m.store.last["job"] })
	}
}

// lead has a replica lead what there is; the channel is closed once that is over.
func (m *model) lead(replica int) <-chan struct{} {
	returned := m.two[replica].leads(m.terms[replica], "job", m.epoch)
	if !m.twin {
		return returned
	}
	twin, all := m.two[replica].leads(m.terms[replica], "twin", m.epoch), make(chan struct{})
	go func() {
		<-returned
		<-twin
		close(all)
	}()
	return all
}

// flies notes that claims of some terms are under way, or are no longer. One of an earlier term of the
// same lease may still be on its way: it is refused wherever it comes from.
func (m *model) flies(asked []claim, by int) {
	m.mu.Lock()
	defer m.mu.Unlock()
	for _, c := range asked {
		if m.flying[c.token] += by; m.flying[c.token] > 1 {
			m.t.Errorf("%v is in two claims at once", c.token)
		}
	}
}

// end lets everything come to rest under one more term.
func (m *model) end() {
	m.mu.Lock()
	m.calm = true
	m.mu.Unlock()
	m.store.set(func() { m.store.paused["job"] = false })
	m.handOver()
	for range 5 {
		m.steer()
		time.Sleep(time.Minute)
	}
	m.sent.Wait()
	m.steer()
	time.Sleep(time.Minute)
	close(m.terms[int(m.epoch+1)%2].asked)
	for i, b := range m.two {
		if m.leads[i] != nil {
			<-m.leads[i]
		}
		b.stop()
		<-b.ended
	}
}

// check holds the record against the schedule, and the calls of the job against the record.
func (m *model) check() {
	said := m.job.Schedule.String() + fmt.Sprint(", ", m.job.Missed, ", ", m.job.Overlap, ", ", m.job.IfLost, ", ", m.job.Retry, ", jitter ", m.job.Jitter)
	recorded := map[string]*fakeRun{}
	requests := map[int64]bool{}
	rows := slices.DeleteFunc(slices.Clone(m.store.rows), func(r *fakeRun) bool { return r.lease != "job" })
	for _, r := range rows {
		key := fmt.Sprint(r.tick.UTC(), " ", r.attempt)
		calls := m.calls[key]
		delete(m.calls, key)
		before := recorded[fmt.Sprint(r.tick.UTC(), " ", r.attempt-1)]
		switch {
		case recorded[key] != nil:
			m.t.Errorf("%s: %s has two rows", said, key)
		case r.outcome == "":
			m.t.Errorf("%s: %s is open", said, key)
		case calls > 1:
			m.t.Errorf("%s: %s was run %d times", said, key, calls)
		case calls > 0 && (r.outcome == skipped || r.outcome == missed):
			m.t.Errorf("%s: %s is %s, and was run", said, key, r.outcome)
		case calls == 0 && !slices.Contains([]outcome{skipped, missed, lost}, r.outcome):
			m.t.Errorf("%s: %s is %s, and was not run", said, key, r.outcome)
		case r.attempt > 1 && (before == nil || before.outcome == success || before.outcome == skipped):
			m.t.Errorf("%s: %s follows %+v", said, key, before)
		case r.request == 0 && !m.job.Schedule.Next(r.tick.Add(-time.Second)).Equal(r.tick):
			m.t.Errorf("%s: %s is no tick", said, key)
		}
		recorded[key] = r
		requests[r.request] = true
	}
	for key, n := range m.calls {
		m.t.Errorf("%s: %s was run %d times, and is not on record", said, key, n)
	}
	for _, r := range m.asked {
		if !requests[r.ID] {
			m.t.Errorf("%s: request %d was not run", said, r.ID)
		}
	}
	until := m.store.now().Add(-2*m.job.Jitter - time.Second)
	for tick := m.job.Schedule.Next(m.first); tick.Before(until); tick = m.job.Schedule.Next(tick) {
		if recorded[fmt.Sprint(tick.UTC(), " 1")] == nil && !slices.ContainsFunc(rows, func(r *fakeRun) bool {
			return r.ticks > 1 && !tick.Before(r.first) && !tick.After(r.tick)
		}) {
			m.t.Errorf("%s: the tick at %v is not on record", said, tick)
		}
	}
}

// A wildStore is a database whose calls fail, are slow, have their answers lost, or execute late.
type wildStore struct {
	*fakeStore
	model *model
}

var errWild = errors.New("the connection broke")

// wild makes a call, or something else.
func wild[T any](ctx context.Context, s *wildStore, call func(context.Context) (T, error)) (T, error) {
	var none T
	m := s.model
	m.mu.Lock()
	away, calm, fate := m.away, m.calm, m.rand.IntN(20)
	m.mu.Unlock()
	if calm {
		return call(ctx)
	}
	m.wait(30 * time.Millisecond)
	switch {
	case away || fate == 0:
		return none, errWild
	case fate == 1:
		_, _ = call(ctx)
		return none, errWild
	case fate == 2:
		m.sent.Go(func() {
			m.wait(6 * time.Second)
			_, _ = call(context.WithoutCancel(ctx))
		})
		m.wait(4 * time.Second)
		return none, errWild
	case fate == 3:
		m.wait(3 * time.Second)
	}
	return call(ctx)
}

func (s *wildStore) begin(ctx context.Context, asked []opening) (map[fence.Token]opened, error) {
	return wild(ctx, s, func(ctx context.Context) (map[fence.Token]opened, error) { return s.fakeStore.begin(ctx, asked) })
}

func (s *wildStore) claim(ctx context.Context, asked []claim) (map[fence.Token]claimed, error) {
	s.model.flies(asked, 1)
	defer s.model.flies(asked, -1)
	return wild(ctx, s, func(ctx context.Context) (map[fence.Token]claimed, error) { return s.fakeStore.claim(ctx, asked) })
}

func (s *wildStore) record(ctx context.Context, ends []end) (map[int64]bool, error) {
	return wild(ctx, s, func(ctx context.Context) (map[int64]bool, error) { return s.fakeStore.record(ctx, ends) })
}
