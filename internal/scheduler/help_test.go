package scheduler

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"rota/internal/fence"
	"rota/internal/registry"
)

// P7, P8: while more is due than one claim takes, two are under way, and no lease is in both; what is due
// alone has one.
func TestTwoClaimsAreUnderWayInARush(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		const leases = 7
		var jobs []registry.Job
		for n := range leases {
			jobs = append(jobs, job(fmt.Sprint("job-", n), idle))
		}
		b := newBench(t, jobs...)
		store := &slowStore{fakeStore: b.store, flying: map[string]bool{}, t: t}
		b.ticker.store, b.ticker.size = store, 2
		var terms []*fakeTerm
		for n := range leases {
			terms = append(terms, newFakeTerm())
			b.leads(terms[n], fmt.Sprint("job-", n), 1)
		}
		after(8 * time.Second)
		if sizes, most := store.seen(); !slices.Equal(sizes, []int{2, 2, 2, 1}) || most != 2 {
			t.Errorf("claims of %d leases, of which %d were under way at once", sizes, most)
		}
		if n := b.sample("rota_runs_total", "outcome=success"); n != 1 {
			t.Errorf("the first job was run %v times", n)
		}
		for _, term := range terms[1:] {
			close(term.asked)
		}
		after(time.Second)
		store.seen()
		after(5 * time.Second)
		if _, most := store.seen(); most != 1 {
			t.Errorf("of what is due alone %d claims were under way at once", most)
		}
		b.closes(terms[0])
	})
}

// P7: at shutdown, both are waited for.
func TestShutdownWaitsForBothClaims(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		store := &slowStore{fakeStore: newFakeStore(), flying: map[string]bool{}, t: t}
		k := newTicker(store, time.Now, newRecorder(nil, nil), func(int64, string) {}, nil)
		k.size = 1
		j := job("job", idle)
		for n := range 3 {
			token := fence.Token{Lease: fmt.Sprint("job-", n), Owner: "me", Epoch: 1}
			k.plan(newEntry(token, &j, new(counts), nil), opened{last: bubble, now: bubble})
		}
		time.Sleep(5 * time.Second)
		ctx, stop := context.WithCancel(t.Context())
		time.AfterFunc(100*time.Millisecond, stop)
		began := time.Now()
		k.run(ctx)
		if sizes, most := store.seen(); time.Since(began) != time.Second || len(sizes) != 2 || most != 2 {
			t.Errorf("it returned after %v, with claims of %d leases", time.Since(began), sizes)
		}
	})
}

// A slowStore takes a second for each claim, and watches which are under way at once.
type slowStore struct {
	*fakeStore
	t *testing.T

	mu     sync.Mutex
	flying map[string]bool
	claims int
	most   int
	sizes  []int
}

func (s *slowStore) claim(ctx context.Context, asked []claim) (map[fence.Token]claimed, error) {
	s.fly(asked, true)
	defer s.fly(asked, false)
	time.Sleep(time.Second)
	return s.fakeStore.claim(context.WithoutCancel(ctx), asked)
}

// seen is of how many leases each claim was since it was asked last, and how many were under way at once.
func (s *slowStore) seen() (sizes []int, most int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	sizes, most = s.sizes, s.most
	s.sizes, s.most = nil, 0
	return sizes, most
}

func (s *slowStore) fly(asked []claim, flies bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, c := range asked {
		if flies && s.flying[c.token.Lease] {
			s.t.Errorf("%s is in two claims at once", c.token.Lease)
		}
		s.flying[c.token.Lease] = flies
	}
	if !flies {
		s.claims--
		return
	}
	s.claims++
	s.most, s.sizes = max(s.most, s.claims), append(s.sizes, len(asked))
}
