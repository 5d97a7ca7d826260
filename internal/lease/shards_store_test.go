package lease

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	"github.com/jackc/pgx/v5"

	"rota/internal/pgtest"
)

func namesOf(job string, of int) (names []string) {
	for _, l := range Leases(job, of, false) {
		names = append(names, l.Name)
	}
	return names
}

func claimsOf(names ...string) (claims []claim) {
	for _, n := range names {
		claims = append(claims, claim{name: n, counted: true})
	}
	return claims
}

// P1, P2: what an acquisition does with the leases of a job under a count that is in force, and under
// one that is not, at each step of two changes of it.
func TestShardsConformance(t *testing.T) {
	t.Parallel()
	eachStore(t, func(t *testing.T, b bench) {
		ctx := t.Context()
		must := func(err error) {
			t.Helper()
			if err != nil {
				t.Fatal(err)
			}
		}
		want := func(what string, got []grant, outcomes ...any) {
			t.Helper()
			var all []any
			for _, g := range got {
				if g.outcome == won {
					all = append(all, g.epoch)
				} else {
					all = append(all, g.outcome)
				}
			}
			if d := cmp.Diff(outcomes, all); d != "" {
				t.Fatalf("%s (-want +got):\n%s", what, d)
			}
		}
		resizes := func(what string, r resize) {
			t.Helper()
			settled, err := b.resize(ctx, []resize{r})
			must(err)
			if !slices.Equal(settled, []string{"s"}) {
				t.Fatalf("%s: %v is settled", what, settled)
			}
		}
		release := func(owner string, held ...holding) {
			t.Helper()
			_, err := b.release(ctx, owner, "test", held, make([]string, len(held)))
			must(err)
		}
		two, three := namesOf("s", 2), namesOf("s", 3)
		must(b.register(ctx, []string{"s"}, *newAbility([]string{"s"})))
		want("before there are shards", mustAcquire(t, b, "old", claim{name: "s"}), int64(1))
		must(b.register(ctx, two, *newAbility([]string{"s.of2"})))
		want("while the whole is led", mustAcquire(t, b, "r1", claimsOf(two...)...), held, held)
		release("old", holding{"s", 1})
		letGo := b.hold("s")
		want("while the whole's writers are under way", mustAcquire(t, b, "r1", claimsOf(two...)...), busy, busy)
		letGo()
		want("shards share one order", mustAcquire(t, b, "r1", claimsOf(two...)...), int64(3), int64(4))
		want("the whole is nobody's", mustAcquire(t, b, "old", claim{name: "s"}), held)
		want("nor by count", mustAcquire(t, b, "old", claimsOf("s")...), held)
		b.expire(two[0])
		want("a takeover", mustAcquire(t, b, "r2", claimsOf(two...)...), int64(5), held)

		must(b.register(ctx, three, *newAbility([]string{"s.of3"})))
		want("a count that is not in force", mustAcquire(t, b, "r3", claimsOf(three...)...), held, held, held)
		_, _, err := b.beat(ctx, member{owner: "r1", host: "h", version: "v", started: time.Unix(0, 0), lease: hour, lasts: hour, ability: newAbility([]string{"s.of2"}).id}, []holding{{two[1], 4}})
		must(err)
		resizes("a member has it", resize{job: "s", count: 3, orphan: 2})
		want("it stays in force", mustAcquire(t, b, "r3", claimsOf(three...)...), held, held, held)
		resizes("by registration", resize{job: "s", count: 3})
		want("the old count is out", mustAcquire(t, b, "r1", claimsOf(two...)...), held, held)
		want("while one of the old is led", mustAcquire(t, b, "r3", claimsOf(three...)...), held, held, held)
		v, err := b.renew(ctx, "r1", hour, []holding{{two[1], 4}})
		must(err)
		if v[0] != renewed {
			t.Fatalf("what is led under the old count is not renewed: %v", v)
		}
		release("r1", holding{two[1], 4})
		b.expire(two[0])
		letGo = b.hold(two[0])
		want("while writers of the old are under way", mustAcquire(t, b, "r3", claimsOf(three[2])...), busy)
		letGo()
		want("the first of the new", mustAcquire(t, b, "r3", claimsOf(three[2])...), int64(7))
		want("and the others", mustAcquire(t, b, "r4", claimsOf(three[:2]...)...), int64(8), int64(9))
		want("a late one of the old", mustAcquire(t, b, "r1", claimsOf(two...)...), held, held)

		resizes("nobody has it any more", resize{job: "s", count: 2, orphan: 3})
		release("r3", holding{three[2], 7})
		release("r4", holding{three[0], 8}, holding{three[1], 9})
		want("leases that were out of force", mustAcquire(t, b, "r1", claimsOf(two...)...), int64(11), int64(12))
		resizes("the whole again", resize{job: "s", count: 1})
		release("r1", holding{two[0], 11}, holding{two[1], 12})
		want("the whole again", mustAcquire(t, b, "old", claimsOf("s")...), int64(14))

		l, err := b.look(ctx, "old")
		must(err)
		if d := cmp.Diff(map[string]int{"s": 1}, l.counts); d != "" || l.all != 6 {
			t.Errorf("%d leases, counts:\n%s", l.all, d)
		}
	})
}

// The two stores must stay equal in what the conformance test did not think of.
func TestStoresAgreeOnShards(t *testing.T) {
	t.Parallel()
	seed := uint64(time.Now().UnixNano())
	rng := rand.New(rand.NewPCG(seed, 1))
	m, p := memoryBench(), postgresBench(t)
	for _, b := range []bench{m, p} {
		for _, of := range []int{1, 2, 3} {
			if err := b.register(t.Context(), append(namesOf("s", of), "a"), *newAbility([]string{Leases("s", of, false)[0].kin()})); err != nil {
				t.Fatal(err)
			}
		}
	}
	for step := range 400 {
		op := randomShardsOp(rng)
		got, want := op.do(t, p), op.do(t, m)
		if d := cmp.Diff(want, got, cmpopts.EquateEmpty()); d != "" {
			t.Fatalf("seed %d, step %d, %s: postgres differs from memory (-memory +postgres):\n%s", seed, step, op.name, d)
		}
	}
}

func randomShardsOp(rng *rand.Rand) op {
	owner := fmt.Sprintf("r%d", rng.IntN(3))
	of := 1 + rng.IntN(3)
	names := namesOf("s", of)
	name := names[rng.IntN(len(names))]
	var claims []claim
	for _, i := range rng.Perm(len(names))[:1+rng.IntN(len(names))] {
		claims = append(claims, claim{name: names[i], seen: rng.Int64N(2) * rng.Int64N(40), counted: of > 1 || rng.IntN(3) > 0})
	}
	if rng.IntN(4) == 0 {
		claims = append(claims, claim{name: "a"})
	}
	acquire := func(t *testing.T, b bench) string { return fmt.Sprint(mustAcquire(t, b, owner, claims...)) }
	switch rng.IntN(8) {
	case 0:
		return op{"release all of " + owner, func(t *testing.T, b bench) string {
			held, err := b.mine(t.Context(), owner)
			slices.SortFunc(held, func(x, y holding) int { return strings.Compare(x.name, y.name) })
			v, again := b.release(t.Context(), owner, "x", held, make([]string, len(held)))
			return fmt.Sprint(held, err, v, again)
		}}
	case 1:
		r := resize{job: "s", count: of, orphan: rng.IntN(4)}
		return op{fmt.Sprint("resize ", r), func(t *testing.T, b bench) string { return fmt.Sprint(b.resize(t.Context(), []resize{r})) }}
	case 2:
		return op{fmt.Sprint("held ", name, " acquire ", owner, claims), func(t *testing.T, b bench) string {
			defer b.hold(name)()
			return acquire(t, b)
		}}
	case 3:
		return op{"look", func(t *testing.T, b bench) string {
			l, err := b.look(t.Context(), owner)
			slices.Sort(l.free)
			slices.SortFunc(l.owners, func(x, y load) int { return strings.Compare(x.owner, y.owner) })
			s := fmt.Sprint(l.all, l.free, l.counts, err)
			for _, o := range l.owners {
				s += fmt.Sprint(" ", o.owner, o.leases, o.shards)
			}
			return s
		}}
	case 4:
		draining := rng.IntN(3) == 0
		return op{fmt.Sprint("beat ", owner, of, draining), func(t *testing.T, b bench) string {
			s := self(fmt.Sprint(owner, " of ", of))
			s.draining, s.ability = draining, newAbility([]string{Leases("s", of, false)[0].kin()}).id
			_, _, err := b.beat(t.Context(), s, nil)
			return fmt.Sprint(err)
		}}
	default:
		return op{fmt.Sprint("acquire ", owner, claims), acquire}
	}
}

// P1, P2: twelve replicas acquire and release the leases of two counts while the count in force
// changes. No epoch is granted twice, and no lease while one of the other count is led.
func TestCountsAreNeverLedAtOnce(t *testing.T) {
	t.Parallel()
	db := pgtest.New(t)
	s := newPostgres(db, 5*time.Second)
	ctx, stop := context.WithTimeout(t.Context(), time.Minute)
	defer stop()
	for _, of := range []int{4, 6} {
		must(t, s.register(ctx, namesOf("s", of), *newAbility([]string{"s"})))
	}
	var mu sync.Mutex
	epochs, live, granted := map[int64]string{}, map[int]int{}, map[int]int{}
	var wg sync.WaitGroup
	for i := range 12 {
		wg.Go(func() {
			rng := rand.New(rand.NewPCG(uint64(i), uint64(time.Now().UnixNano())))
			of := []int{4, 6}[i%2]
			owner := fmt.Sprintf("h/%d", i)
			for ctx.Err() == nil {
				if i < 2 && rng.IntN(4) == 0 {
					_, _ = s.resize(ctx, []resize{{job: "s", count: of}})
				}
				names := namesOf("s", of)
				rng.Shuffle(len(names), func(a, b int) { names[a], names[b] = names[b], names[a] })
				g, err := s.acquire(ctx, owner, hour, claimsOf(names[:1+rng.IntN(3)]...), rng.IntN(8) == 0)
				if err != nil {
					continue // unknown: it is found below, where all that is ours is released
				}
				mu.Lock()
				for k, one := range g {
					if one.outcome != won {
						continue
					}
					if other := epochs[one.epoch]; other != "" {
						t.Errorf("P2: epoch %d was granted to %s and %s", one.epoch, other, names[k])
					}
					epochs[one.epoch] = names[k]
					granted[of]++
					live[of]++
				}
				if live[4] > 0 && live[6] > 0 {
					t.Errorf("P1: leases of two counts are led: %v", live)
				}
				mu.Unlock()
				held, err := s.mine(ctx, owner)
				mu.Lock() // from here on they are not counted on
				for _, one := range g {
					if one.outcome == won {
						live[of]--
					}
				}
				mu.Unlock()
				if err == nil {
					_, err = s.release(ctx, owner, "test", held, make([]string, len(held)))
				}
				if err != nil && !errors.Is(err, context.DeadlineExceeded) && ctx.Err() == nil {
					t.Error(err)
				}
			}
		})
	}
	const liveSQL = `SELECT count(DISTINCT substring(job_name FROM 'of(\d+)$')), count(*) - count(DISTINCT epoch) FROM leadership WHERE owner <> '' AND expires_at > clock_timestamp()`
	for began := time.Now(); ctx.Err() == nil; {
		mu.Lock()
		if time.Since(began) > 3*time.Second && min(granted[4], granted[6]) > 5 {
			stop()
		}
		mu.Unlock()
		var counts, twins int
		if err := db.QueryRow(t.Context(), liveSQL, pgx.QueryExecModeExec).Scan(&counts, &twins); err != nil {
			t.Fatal(err)
		}
		if counts > 1 || twins > 0 {
			t.Errorf("P1, P2: leases of %d counts are led at once, and %d have another's epoch", counts, twins)
		}
	}
	wg.Wait()
	if granted[4] == 0 || granted[6] == 0 {
		t.Errorf("it has shown nothing: granted were %v", granted)
	}
	t.Logf("granted: %v", granted)
}
