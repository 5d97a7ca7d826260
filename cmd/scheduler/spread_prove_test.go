//go:build prove

package main

import (
	"fmt"
	"syscall"
	"testing"
	"time"

	"rota/internal/pgtest"
	"rota/internal/registry"
)

func init() {
	for i := range 30 {
		testJobs["thirty"] = append(testJobs["thirty"], registry.Job{
			Name: fmt.Sprintf("thirty_%02d", i), Schedule: registry.Every(2 * time.Second), Run: brief,
		})
	}
	testJobs["twelve"] = testJobs["thirty"][:12]
}

// P9: through a rolling restart every lease is handed over, none is led twice, and in the end
// leadership is spread.
func TestProveRollingRestartHandsEveryLeaseOver(t *testing.T) {
	url, args := pgtest.URL(t), withoutOurs(t)
	db := lookAt(t, url)
	start := func() *proc { return launch(t, url, "thirty", args...).serving() }
	replicas := []*proc{start(), start(), start()}
	even := func(patience time.Duration) {
		t.Helper()
		eventually(t, patience, "thirty leases are spread over three", func() bool {
			most, least, all := db.spread()
			return all == 31 && most-least <= 1 // the product's own job is the thirty-first
		})
	}
	db.members(3)
	even(10 * time.Second)
	before := db.now()
	for i, p := range replicas {
		replicas[i] = start()
		db.members(4)
		p.send(syscall.SIGTERM)
		if code := p.code(30 * time.Second); code != exitOK {
			t.Errorf("exit code %d", code)
		}
	}
	even(10 * time.Second)

	rows, err := db.Query(t.Context(), `SELECT extract(epoch FROM b.acquired_at - a.ended_at)::float8
		FROM terms a JOIN terms b ON b.job_name = a.job_name AND b.epoch = a.epoch + 1 WHERE a.ended_at >= $1`, before)
	if err != nil {
		t.Fatal(err)
	}
	var gaps []time.Duration
	for rows.Next() {
		var gap float64
		if err := rows.Scan(&gap); err != nil {
			t.Fatal(err)
		}
		gaps = append(gaps, time.Duration(gap*float64(time.Second)))
		if gap < 0 {
			t.Errorf("a term began %v before the one before it had ended", -gap)
		}
	}
	if err := rows.Err(); err != nil {
		t.Fatal(err)
	}
	if n := db.number(`SELECT count(*) FROM terms WHERE ended_at >= $1 AND end_reason NOT IN ('drain', 'yield')`, before); n > 0 {
		t.Errorf("%d terms ended otherwise than by a drain or a move", n)
	}
	p50, p99, longest := quantiles(gaps)
	t.Logf("%d handovers: gap p50 %v p99 %v max %v", len(gaps), p50, p99, longest)
	if longest > time.Second {
		t.Errorf("the longest gap is %v", longest)
	}
}

// P9: replicas that are started one after another, one that is killed and one that comes back: within
// three heartbeats leadership is even, no run was interrupted by a move, and then nothing moves.
func TestProveLeadershipIsEvenWithinThreeHeartbeats(t *testing.T) {
	url, args := pgtest.URL(t), withoutOurs(t)
	db := lookAt(t, url)
	start := func() *proc { return launch(t, url, "twelve", args...).serving() }
	terms := func() int { return db.number(`SELECT count(*) FROM terms`) }
	settled := func(what string, since time.Time, needed, before int) {
		t.Helper()
		eventually(t, 20*time.Second, what+": leadership is even", func() bool {
			most, least, all := db.spread()
			return all == 13 && most-least <= 1 // the product's own job is the thirteenth
		})
		t.Logf("%s: even after %.1f heartbeats, %d terms begun where %d had to", what, float64(time.Since(since))/float64(testRenew), terms()-before, needed)
		if late := time.Since(since); late > 15*testRenew {
			t.Errorf("%s: it took %v", what, late)
		}
		if n := terms() - before; n > needed+1 {
			t.Errorf("%s: %d terms have begun, where %d had to", what, n, needed)
		}
	}
	var replicas []*proc
	for i, needed := range []int{13, 6, 4, 3} {
		before := 0
		if i > 0 {
			before = terms()
		}
		replicas = append(replicas, start())
		since := time.Now()
		db.members(i + 1)
		settled(fmt.Sprintf("replica %d joins", i+1), since, needed, before)
	}
	before := terms()
	replicas[0].send(syscall.SIGKILL)
	<-replicas[0].gone
	eventually(t, 20*time.Second, "its leases have run out", func() bool {
		return db.number(`SELECT count(*) FROM leadership WHERE owner = $1`, replicas[0].id()) == 0
	})
	settled("one is lost", time.Now(), 3, before)
	before = terms()
	replicas[0] = start()
	db.members(4)
	settled("it comes back", time.Now(), 3, before)
	if n := db.number(`SELECT count(*) FROM runs WHERE outcome = 'cancelled'`); n > 0 {
		t.Errorf("%d runs were interrupted", n)
	}
	before = terms()
	quiet := time.Now()
	eventually(t, 60*time.Second, "fifty heartbeats have passed", func() bool { return time.Since(quiet) > 50*testRenew })
	if n := terms() - before; n > 0 {
		t.Errorf("%d terms began in fifty quiet heartbeats", n)
	}
}
