package web

import (
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"rota/internal/status"
)

// Who asks what is new of a page gets the one before while it is made, and none that is too old, stale, or
// older than one that is there; who opens it waits. Each is made once.
func TestNobodyWhoLooksAllTheTimeWaitsForAPageToBeMade(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var p press
		made := map[string]int{}
		slow := func(name string, err error) func() ([]byte, error) {
			return func() ([]byte, error) {
				made[name]++
				time.Sleep(100 * time.Millisecond)
				if err == nil && name == "panics" {
					panic(name)
				}
				return []byte(name), err
			}
		}
		begun := time.Now()
		at := func(name string, stale bool) (imprint, status.Snapshot) {
			snap := status.Snapshot{AsOf: time.Now(), Stale: stale}
			return imprint{tag: name, asOf: snap.AsOf}, snap
		}
		ask := func(name string, i imprint, snap status.Snapshot, behind bool, err error, want string) {
			t.Helper()
			snap.Age = time.Since(i.asOf)
			if got := p.sheet(7, i, snap, behind, slow(name, err)); string(got.body) != want {
				t.Errorf("%v: asked for %s, got %q, %v", time.Since(begun), name, got.body, got.err)
			}
		}
		a, snapA := at("a", false)
		ask("a", a, snapA, true, nil, "a") // there is none before it
		time.Sleep(time.Second)
		b, snapB := at("b", false)
		ask("b", b, snapB, true, nil, "a")
		ask("b", b, snapB, true, nil, "a") // it is being made
		ask("b", b, snapB, false, nil, "b")
		ask("b", b, snapB, true, nil, "b")
		ask("a", a, snapA, true, nil, "b") // a later one is there
		time.Sleep(2 * time.Second)
		c, snapC := at("c", false)
		ask("c", c, snapC, true, nil, "c") // the one before is too old
		failing, snapF := at("failing", false)
		ask("failing", failing, snapF, true, errors.New("x"), "c")
		synctest.Wait()
		time.Sleep(time.Second)
		panics, snapP := at("panics", false)
		ask("panics", panics, snapP, true, nil, "c") // it ends no replica
		time.Sleep(500 * time.Millisecond)
		stale, snapS := at("stale", true)
		ask("stale", stale, snapS, true, nil, "stale") // nobody takes what is current for stale
		current, snapD := at("current", false)
		ask("current", current, snapD, true, nil, "current") // nor the other way round
		for name, n := range made {
			if n != 1 {
				t.Errorf("%s was made %d times", name, n)
			}
		}
	})
}
