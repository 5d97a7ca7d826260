package cron

import (
	"crypto/sha256"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"runtime"
	"strconv"
	"sync"
	"testing"
	"time"
)

// P7: Next is what the oracle says, around changes of the clock of any zone and for any spec. It
// is a sample, from a random seed on; ROTA_SEED=n takes that one.
func TestNextIsWhatTheOracleSays(t *testing.T) {
	t.Parallel()
	seed := seedOf(t)
	rng := rand.New(rand.NewPCG(seed, 7))
	zones := distinctZones(t)
	work := make([]change, 60)
	for i := range work {
		zone := zones[rng.IntN(len(zones))]
		changes := changesOf(t, zone)
		work[i] = changes[rng.IntN(len(changes))]
	}
	compare(t, seed, work, 20, 2)
}

func seedOf(t *testing.T) uint64 {
	t.Helper()
	if s := os.Getenv("ROTA_SEED"); s != "" {
		seed, err := strconv.ParseUint(s, 10, 64)
		if err != nil {
			t.Fatalf("ROTA_SEED=%q: it must be a number", s)
		}
		return seed
	}
	return rand.Uint64N(1e9)
}

// distinctZones are the zones without those that have another's data.
func distinctZones(t *testing.T) []string {
	t.Helper()
	files, err := zoneFiles()
	if err != nil {
		t.Fatal(err)
	}
	known := map[[sha256.Size]byte]bool{}
	var distinct []string
	for _, name := range zoneNames(t) {
		file, err := files[name].Open()
		if err != nil {
			t.Fatal(err)
		}
		data, err := io.ReadAll(file)
		if err != nil {
			t.Fatal(err)
		}
		if sum := sha256.Sum256(data); !known[sum] {
			known[sum] = true
			distinct = append(distinct, name)
		}
	}
	return distinct
}

// A change is an instant at which a zone's offset changes.
type change struct {
	zone string
	at   int64
}

// changesOf are a zone's changes in the years 2000 to 2040, or a new year's night where there is none.
func changesOf(t *testing.T, zone string) []change {
	t.Helper()
	in, err := location(zone)
	if err != nil {
		t.Fatal(err)
	}
	var changes []change
	at, last := time.Date(2000, 1, 1, 0, 0, 0, 0, time.UTC).Unix(), time.Date(2041, 1, 1, 0, 0, 0, 0, time.UTC).Unix()
	for before, end := span(in, at); end < last; {
		var offset int64
		at = end
		if offset, end = span(in, at); offset != before {
			changes = append(changes, change{zone, at})
		}
		before = offset
	}
	if changes == nil {
		changes = []change{{zone, time.Date(2028, 1, 1, 0, 0, 0, 0, in).Unix()}}
	}
	return changes
}

// compare takes the changes in turn, with so many specs of five fields for each, and so many of six
// for some of them.
func compare(t *testing.T, seed uint64, work []change, five, six int) *timing {
	t.Helper()
	var all timing
	var wg sync.WaitGroup
	queue := make(chan change)
	for range runtime.GOMAXPROCS(0) {
		wg.Go(func() {
			var mine timing
			for c := range queue {
				if !t.Failed() { // one is enough to look at
					compareOne(t, &mine, seed, c, five, six)
				}
			}
			all.add(&mine)
		})
	}
	for _, c := range work {
		queue <- c
	}
	close(queue)
	wg.Wait()
	if t.Failed() {
		t.Logf("run it again with ROTA_SEED=%d", seed)
	}
	return &all
}

func compareOne(t *testing.T, spent *timing, seed uint64, c change, five, six int) {
	w := watchClock(t, c.zone, c.at, 60, 24*60, 6*60, 30*60)
	g := newGenerator(seed, w)
	for range five {
		if err := spent.check(g.Rand, w, g.entry(false)); err != nil {
			t.Error(err)
			return
		}
	}
	if g.IntN(10) != 0 {
		return // a watch by seconds takes long
	}
	w = watchClock(t, c.zone, c.at, 1, 4*3600, 600, 4*3600)
	for range six {
		if err := spent.check(g.Rand, w, g.entry(true)); err != nil {
			t.Error(err)
			return
		}
	}
}

// A timing is how long Next took.
type timing struct {
	mu             sync.Mutex
	specs, calls   int
	total, slowest time.Duration
	slow           string
}

func (spent *timing) add(other *timing) {
	spent.mu.Lock()
	defer spent.mu.Unlock()
	spent.specs, spent.calls, spent.total = spent.specs+other.specs, spent.calls+other.calls, spent.total+other.total
	if other.slowest > spent.slowest {
		spent.slowest, spent.slow = other.slowest, other.slow
	}
}

func (spent *timing) next(s Schedule, after time.Time) time.Time {
	start := time.Now()
	next := s.Next(after)
	took := time.Since(start)
	// The machine's own pauses are not Next's: what is slow must be so again and again.
	for try := 0; took > spent.slowest && try < 5; try++ {
		start = time.Now()
		s.Next(after)
		took = min(took, time.Since(start))
	}
	spent.calls, spent.total = spent.calls+1, spent.total+took
	if took > spent.slowest {
		spent.slowest, spent.slow = took, fmt.Sprintf("%s in %v after %v", s.text, s.zone, after.UTC())
	}
	return next
}

// check goes from each instant at which an entry is due to the next one.
func (spent *timing) check(rng *rand.Rand, w *watch, e entry) error {
	spec := e.String()
	s, err := Parse(spec, w.zone)
	if err != nil {
		if e.allowsSomeDate() {
			return fmt.Errorf("%q has dates, but: %w", spec, err)
		}
		return nil
	}
	spent.specs++
	due := w.due(e)
	last := time.Unix(w.from, 0)
	for _, at := range due {
		want := time.Unix(at, 0).UTC()
		if len(due) > 200 && (at < w.change-3600 || at > w.change+4*3600) && rng.IntN(10) != 0 {
			last = want // what is due every few minutes is due so many times far from the change
			continue
		}
		if got := spent.next(s, last); got != want {
			return fmt.Errorf("%q in %s after %v: %v, want %v (the clock changes at %v)", spec, w.zone, last.UTC(), got, want, time.Unix(w.change, 0).UTC())
		}
		between := last.Add(time.Duration(rng.Int64N(int64(want.Sub(last)))))
		if got := s.Next(between); got != want {
			return fmt.Errorf("%q in %s: after %v comes %v, but after %v, which is between, %v", spec, w.zone, last.UTC(), want, between.UTC(), got)
		}
		last = want
	}
	if got := spent.next(s, last); got.Unix() < w.ends() {
		return fmt.Errorf("%q in %s after %v: %v, want none before %v", spec, w.zone, last.UTC(), got, time.Unix(w.ends(), 0).UTC())
	}
	if spent.slowest > 50*time.Millisecond {
		return fmt.Errorf("it took %v: %s", spent.slowest, spent.slow)
	}
	return nil
}
