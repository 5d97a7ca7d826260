package lease

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"rota/internal/pgtest"
)

// A bench is a store with the hands of other programs on its rows.
type bench struct {
	store
	expire func(name string)
	steal  func(name, owner string, epoch int64)
	hold   func(name string) (letGo func())
}

func memoryBench() bench {
	m := newMemory(time.Now)
	return bench{
		store:  m,
		expire: func(name string) { m.set(name, func(r *row) { r.expires = time.Now().Add(-time.Second) }) },
		steal: func(name, owner string, epoch int64) {
			m.set(name, func(r *row) { r.owner, r.epoch, r.expires = owner, epoch, time.Now().Add(time.Hour) })
		},
		hold: func(name string) func() {
			m.set(name, func(r *row) { r.held = true })
			return func() { m.set(name, func(r *row) { r.held = false }) }
		},
	}
}

func postgresBench(t *testing.T) bench {
	db := pgtest.New(t)
	exec := func(sql string, args ...any) {
		t.Helper()
		if _, err := db.Exec(context.Background(), sql, args...); err != nil {
			t.Fatal(err)
		}
	}
	return bench{
		store: newPostgres(db, time.Second),
		expire: func(name string) {
			exec("UPDATE leadership SET expires_at = clock_timestamp() - interval '1 second' WHERE job_name = $1", name)
		},
		steal: func(name, owner string, epoch int64) {
			exec("UPDATE leadership SET owner = $2, epoch = $3, expires_at = clock_timestamp() + interval '1 hour' WHERE job_name = $1", name, owner, epoch)
		},
		hold: func(name string) func() { return holdRow(t, db, name) },
	}
}

// holdRow locks a lease row FOR UPDATE until it is let go.
func holdRow(t *testing.T, db *pgxpool.Pool, name string) (letGo func()) {
	t.Helper()
	tx, err := db.Begin(context.Background())
	if err != nil {
		t.Fatal(err)
	}
	if _, err := tx.Exec(context.Background(), "SELECT 1 FROM leadership WHERE job_name = $1 FOR UPDATE", name); err != nil {
		t.Fatal(err)
	}
	return func() {
		if err := tx.Rollback(context.Background()); err != nil && !errors.Is(err, pgx.ErrTxClosed) {
			t.Error(err)
		}
	}
}

func eachStore(t *testing.T, f func(t *testing.T, b bench)) {
	t.Run("memory", func(t *testing.T) { t.Parallel(); f(t, memoryBench()) })
	t.Run("postgres", func(t *testing.T) { t.Parallel(); f(t, postgresBench(t)) })
}

const hour = time.Hour

func self(owner string) member {
	return member{owner: owner, host: "h", pid: 1, version: "v", started: time.Unix(0, 0), lease: hour, lasts: hour, ability: newAbility([]string{"a", "b", "c"}).id}
}

func mustAcquire(t *testing.T, s store, owner string, claims ...claim) []grant {
	t.Helper()
	g, err := s.acquire(t.Context(), owner, hour, claims, false)
	if err != nil {
		t.Fatal(err)
	}
	for i := range g {
		g[i].idle = 0
	}
	return g
}

// P1, P2: what every statement does with a lease that is mine, another's, expired, or held by a lock.
func TestStoreConformance(t *testing.T) {
	t.Parallel()
	eachStore(t, func(t *testing.T, b bench) {
		ctx := t.Context()
		must := func(err error) {
			t.Helper()
			if err != nil {
				t.Fatal(err)
			}
		}
		want := func(what string, got, want any) {
			t.Helper()
			if d := cmp.Diff(want, got, cmp.AllowUnexported(peer{}, ability{}, grant{}, holding{})); d != "" {
				t.Fatalf("%s (-want +got):\n%s", what, d)
			}
		}
		renew := func(owner string, h ...holding) []verdict {
			t.Helper()
			v, err := b.renew(ctx, owner, hour, h)
			must(err)
			return v
		}
		must(b.register(ctx, []string{"a", "b", "c"}, *newAbility([]string{"a", "b", "c"})))
		must(b.register(ctx, []string{"a", "b", "c"}, *newAbility([]string{"a", "b", "c"})))

		want("first terms", mustAcquire(t, b, "r1", claim{name: "a", seen: 0}, claim{name: "b", seen: 41}),
			[]grant{{outcome: won, epoch: 1, first: true}, {outcome: won, epoch: 42, first: true}})
		want("an unexpired lease is held", mustAcquire(t, b, "r2", claim{name: "a", seen: 0}), []grant{{outcome: held}})
		want("an unknown lease is held by nobody that we may follow", mustAcquire(t, b, "r2", claim{name: "zzz", seen: 0}), []grant{{outcome: held}})

		want("renewals: right, wrong epoch, wrong owner",
			[][]verdict{renew("r1", holding{"a", 1}, holding{"b", 41}), renew("r2", holding{"a", 1})},
			[][]verdict{{renewed, lost}, {lost}})

		b.expire("a")
		want("an expired lease is not renewed", renew("r1", holding{"a", 1}), []verdict{lost})
		want("the same owner gets a new epoch for it", mustAcquire(t, b, "r1", claim{name: "a", seen: 0}), []grant{{outcome: won, epoch: 2}})

		letGo := b.hold("a")
		want("a locked row costs its own lease alone", renew("r1", holding{"a", 2}, holding{"b", 42}), []verdict{locked, renewed})
		v, err := b.release(ctx, "r1", "test", []holding{{"a", 2}}, make([]string, len([]holding{{"a", 2}})))
		must(err)
		want("a locked row is not released", v, []verdict{locked})
		letGo()
		b.expire("b")
		letGo = b.hold("b")
		want("a locked free row is busy", mustAcquire(t, b, "r2", claim{name: "b", seen: 0}), []grant{{outcome: busy}})
		letGo()

		v, err = b.release(ctx, "r1", "test", []holding{{"a", 1}, {"a", 2}}, make([]string, len([]holding{{"a", 1}, {"a", 2}})))
		must(err)
		want("a release of an earlier term ends nothing", v, []verdict{lost, renewed})
		want("a renewal queued behind the release does not revive it", renew("r1", holding{"a", 2}), []verdict{lost})
		want("a released lease is free at once", mustAcquire(t, b, "r2", claim{name: "a", seen: 0}), []grant{{outcome: won, epoch: 3}})
		v, err = b.release(ctx, "r1", "test", []holding{{"a", 2}}, make([]string, len([]holding{{"a", 2}})))
		must(err)
		want("a late release ends no later term", v, []verdict{lost})

		b.steal("b", "stranger", 50)
		want("a stolen lease is lost", renew("r1", holding{"b", 42}), []verdict{lost})
		b.expire("b")
		want("the history's epoch counts too", mustAcquire(t, b, "r1", claim{name: "b", seen: 7}), []grant{{outcome: won, epoch: 51}})
		want("absurd epochs are refused", mustAcquire(t, b, "r1", claim{name: "c", seen: absurdEpoch}), []grant{{outcome: absurd, epoch: absurdEpoch}})

		mine, err := b.mine(ctx, "r1")
		must(err)
		want("mine", mine, []holding{{"b", 51}})

		_, l, err := b.beat(ctx, self("r1"), []holding{{"b", 51}})
		must(err)
		_, l2, err := b.beat(ctx, self("r2"), nil)
		must(err)
		drained := self("r3")
		drained.draining = true
		_, l3, err := b.beat(ctx, drained, nil)
		must(err)
		want("other members", []int{len(l.peers), len(l2.peers), len(l3.peers)}, []int{0, 1, 2})
		want("what another can lead", l2.peers[0], peer{"r1", self("r1").ability})
		nothing := newAbility(nil)
		must(b.register(ctx, nil, *nothing))
		if idle, err := b.abilities(ctx, []string{nothing.id}); err != nil || len(idle) != 1 || len(idle[0].jobs) != 0 {
			t.Fatalf("a member that can lead nothing is known as %v: %v", idle, err)
		}
		known, err := b.abilities(ctx, []string{l2.peers[0].ability, "unknown"})
		must(err)
		want("an ability", known, []ability{*newAbility([]string{"a", "b", "c"})})
		want("free", l3.free, []string{"c"})
		must(b.leave(ctx, "r2"))
		l, err = b.look(ctx, "r1")
		must(err)
		want("other members after one has left", len(l.peers), 0)
	})
}

// The two stores must stay equal in what the conformance test did not think of.
func TestStoresAgree(t *testing.T) {
	t.Parallel()
	seed := uint64(time.Now().UnixNano())
	rng := rand.New(rand.NewPCG(seed, 1))
	names := []string{"a", "b", "c", "d", "e"}
	m, p := memoryBench(), postgresBench(t)
	for _, b := range []bench{m, p} {
		if err := b.register(t.Context(), names, *newAbility(names)); err != nil {
			t.Fatal(err)
		}
	}
	for step := range 400 {
		op := randomOp(rng, names)
		got, want := op.do(t, p), op.do(t, m)
		if d := cmp.Diff(want, got, cmpopts.EquateEmpty()); d != "" {
			t.Fatalf("seed %d, step %d, %s: postgres differs from memory (-memory +postgres):\n%s", seed, step, op.name, d)
		}
	}
}

type op struct {
	name string
	do   func(*testing.T, bench) string
}

func randomOp(rng *rand.Rand, names []string) op {
	owner := fmt.Sprintf("r%d", rng.IntN(3))
	name := names[rng.IntN(len(names))]
	var held []holding
	var claims []claim
	for _, i := range rng.Perm(len(names))[:1+rng.IntN(len(names))] {
		held = append(held, holding{names[i], 1 + rng.Int64N(12)})
		claims = append(claims, claim{name: names[i], seen: rng.Int64N(8)})
	}
	say := func(v any, err error) string { return fmt.Sprint(v, err) }
	switch rng.IntN(8) {
	case 0:
		return op{"expire " + name, func(_ *testing.T, b bench) string { b.expire(name); return "" }}
	case 1:
		epoch := 1 + rng.Int64N(12)
		return op{"mine and steal", func(t *testing.T, b bench) string {
			v, err := b.mine(t.Context(), owner)
			slices.SortFunc(v, func(x, y holding) int { return strings.Compare(x.name, y.name) })
			if len(v) > 0 {
				b.steal(v[0].name, owner, epoch+v[0].epoch)
			}
			return say(v, err)
		}}
	case 2:
		return op{fmt.Sprint("release ", owner, held), func(t *testing.T, b bench) string {
			return say(b.release(t.Context(), owner, "x", held, make([]string, len(held))))
		}}
	case 3:
		return op{fmt.Sprint("held ", name, " renew ", owner, held), func(t *testing.T, b bench) string {
			defer b.hold(name)()
			return say(b.renew(t.Context(), owner, hour, held))
		}}
	case 4:
		return op{fmt.Sprint("held ", name, " acquire ", owner, claims), func(t *testing.T, b bench) string {
			defer b.hold(name)()
			return fmt.Sprint(mustAcquire(t, b, owner, claims...))
		}}
	case 5:
		return op{"look " + owner, func(t *testing.T, b bench) string {
			l, err := b.look(t.Context(), owner)
			slices.Sort(l.free)
			s := fmt.Sprint(said(l.peers), l.free)
			slices.SortFunc(l.owners, func(x, y load) int { return strings.Compare(x.owner, y.owner) })
			for _, o := range l.owners {
				s += fmt.Sprint(" ", o.owner, o.leases)
			}
			return say(s, err)
		}}
	case 6:
		draining := rng.IntN(3) == 0
		return op{"beat " + owner, func(t *testing.T, b bench) string {
			s := self(owner)
			s.draining = draining
			v, l, err := b.beat(t.Context(), s, held)
			return say(fmt.Sprint(v, said(l.peers)), err)
		}}
	default:
		return op{fmt.Sprint("acquire ", owner, claims), func(t *testing.T, b bench) string {
			return fmt.Sprint(mustAcquire(t, b, owner, claims...))
		}}
	}
}

// said are peers in an order of their own.
func said(peers []peer) string {
	slices.SortFunc(peers, func(x, y peer) int { return strings.Compare(x.owner, y.owner) })
	return fmt.Sprint(peers)
}
