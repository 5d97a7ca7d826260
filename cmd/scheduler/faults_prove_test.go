//go:build prove

package main

import (
	"context"
	"encoding/json"
	"math/rand/v2"
	"net/http"
	"os/exec"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"rota/internal/pgtest"
)

// P1, P2: a killed leader's lease is taken when it has run out, soon after and never before.
func TestProveKilledLeaderIsReplacedOnceItsLeaseHasRunOut(t *testing.T) {
	url := pgtest.URL(t)
	db := lookAt(t, url)
	replicas := []*proc{launchBuilt(t, url).serving(), launchBuilt(t, url).serving()}
	var after []time.Duration
	for range 20 {
		db.members(2)
		leader := leading(t, db, "bridge_health", replicas...)
		leader.send(syscall.SIGKILL)
		<-leader.gone
		old := db.lease("bridge_health")
		took := db.after("bridge_health", old.Epoch)
		late := took.AcquiredAt.Sub(old.ExpiresAt)
		after = append(after, late)
		if late < 0 || late > 500*time.Millisecond || took.Epoch != old.Epoch+1 {
			t.Errorf("epoch %d was taken %v after the expiry of epoch %d", took.Epoch, late, old.Epoch)
		}
		replicas = replace(t, replicas, leader, url)
	}
	figures(t, "takeover after expiry", after)
}

// P6, P7: whenever a leader is told to stop, its jobs are handed over, and not left to expire.
func TestProveLeaderToldToStopAtAnyMomentIsFollowedAtOnce(t *testing.T) {
	url := pgtest.URL(t)
	db := lookAt(t, url)
	replicas := []*proc{launchBuilt(t, url).serving(), launchBuilt(t, url).serving()}
	var idle []time.Duration
	for range 50 {
		db.members(2)
		time.Sleep(rand.N(testLease)) // any moment of a heartbeat and of a run
		leader := leading(t, db, "bridge_health", replicas...)
		old := db.lease("bridge_health")
		leader.send(syscall.SIGTERM)
		took := db.after("bridge_health", old.Epoch)
		// Told to stop between winning a lease and beginning on it, a replica gives it back as not begun.
		if took.PrevEnded == nil || took.PrevReason == nil || !slices.Contains([]string{"drain", "yield", "not begun"}, *took.PrevReason) || took.Epoch != old.Epoch+1 {
			t.Fatalf("epoch %d was not handed over: %+v", old.Epoch, took)
		}
		idle = append(idle, took.AcquiredAt.Sub(*took.PrevEnded))
		if code := leader.code(10 * time.Second); code != exitOK {
			t.Errorf("exit code %d", code)
		}
		replicas = replace(t, replicas, leader, url)
	}
	figures(t, "from release to the next term", idle)
	for _, d := range idle {
		if d > 5*time.Second {
			t.Errorf("led again only after %v", d)
		}
	}
}

// replace starts a replica in the place of one that has ended.
func replace(t *testing.T, replicas []*proc, ended *proc, url string) []*proc {
	t.Helper()
	others := slices.DeleteFunc(replicas, func(r *proc) bool { return r == ended })
	return append(others, launchBuilt(t, url).serving())
}

// leads is how many terms the replica believes to lead.
func (p *proc) leads() int {
	_, body := p.probe("/metrics")
	n := 0
	for line := range strings.Lines(body) {
		if strings.HasPrefix(line, "rota_is_leader{") && strings.HasSuffix(strings.TrimSpace(line), " 1") {
			n++
		}
	}
	return n
}

// P5, P10: without a database every term ends by its deadline, and the page says how old it is.
func TestProveReplicasOutliveTheirDatabase(t *testing.T) {
	t.Parallel() // it mostly waits
	cluster := pgtest.Cluster(t)
	url := cluster.URL("postgres")
	pgtest.Migrate(t, url)
	replicas := []*proc{launchBuilt(t, url).serving(), launchBuilt(t, url).serving(), launchBuilt(t, url).serving()}
	func() {
		db := lookAt(t, url)
		db.members(3)
		db.allLed()
	}()
	for _, r := range replicas {
		if code, _ := r.probe("/api/v1/leases"); code != http.StatusOK {
			t.Fatalf("%s: the page answers %d", r.name, code)
		}
	}
	before := logged(replicas)

	halting := time.Now()
	if err := cluster.Halt(); err != nil {
		t.Fatal(err)
	}
	halted := time.Now()
	eventually(t, 2*testLease, "no term is left", func() bool {
		n := 0
		for _, r := range replicas {
			n += r.leads()
		}
		return n == 0
	})
	t.Logf("the last term had ended %v after the database was gone (deadline: %v)", time.Since(halted).Round(time.Millisecond), testLease-testLease/15)
	if late := time.Since(halted); late > testLease {
		t.Errorf("a term was alive %v after the database was gone", late)
	}

	var slowest time.Duration
	for over := halting.Add(30 * time.Second); time.Now().Before(over); {
		for _, r := range replicas {
			asked := time.Now()
			code, body := r.probe("/api/v1/leases")
			slowest = max(slowest, time.Since(asked))
			var page struct {
				Stale bool    `json:"stale"`
				Age   float64 `json:"age_seconds"`
			}
			if err := json.Unmarshal([]byte(body), &page); err != nil || code != http.StatusOK {
				t.Fatalf("%s without a database: %d %s", r.name, code, body)
			}
			if sinceHalt := time.Since(halted).Seconds(); sinceHalt > 3 && (!page.Stale || page.Age < sinceHalt-3) {
				t.Fatalf("%s says that it is %.1f s old (stale: %v), %.1f s after the database was gone", r.name, page.Age, page.Stale, sinceHalt)
			}
			if code, _ := r.probe("/livez"); code != http.StatusOK {
				t.Fatalf("%s: /livez %d without a database", r.name, code)
			}
			if code, _ := r.probe("/readyz"); code != http.StatusServiceUnavailable {
				t.Fatalf("%s: /readyz %d without a database", r.name, code)
			}
		}
		time.Sleep(200 * time.Millisecond) // the pace of somebody who watches
	}
	t.Logf("the page answered within %v", slowest.Round(time.Millisecond))
	if slowest > 5*time.Second {
		t.Errorf("the page took %v", slowest)
	}

	if err := cluster.Resume(t.Context()); err != nil {
		t.Fatal(err)
	}
	back := time.Now()
	lookAt(t, url).allLed()
	t.Logf("all jobs were led again %v after the database was back", time.Since(back).Round(time.Millisecond))
	if late := time.Since(back); late > 5*testLease {
		t.Errorf("all jobs were led again only after %v", late)
	}
	for _, r := range replicas {
		if !r.alive() {
			t.Errorf("%s has ended: %v", r.name, r.err)
		}
	}
	if lines := logged(replicas) - before; lines >= 100 {
		t.Errorf("%d lines were logged", lines)
	} else {
		t.Logf("%d lines were logged", lines)
	}
}

func logged(replicas []*proc) (lines int) {
	for _, r := range replicas {
		lines += len(r.heard())
	}
	return lines
}

// The article's statements, as they stand there.
const (
	articleLease = `INSERT INTO leadership (job_name, owner, expires_at, epoch)
VALUES ('bridge_health', :me, now() + interval '15 seconds', 1)
ON CONFLICT (job_name) DO UPDATE
   SET owner      = :me,
       expires_at = now() + interval '15 seconds',
       -- epoch: unchanged on renewal, +1 when the leader changes OR the lease expired
       epoch      = leadership.epoch
                  + CASE WHEN leadership.owner = :me
                          AND leadership.expires_at >= now() THEN 0 ELSE 1 END
 WHERE leadership.owner = :me            -- either it is already mine (renewal)
    OR leadership.expires_at < now()     -- or it expired (takeover)
RETURNING epoch;
`
	articleRelease = `UPDATE leadership
   SET expires_at = now() - interval '1 second'
 WHERE job_name = 'bridge_health' AND owner = :me;
`
)

// psql runs statements for an owner, as the article's copies do.
func psql(t *testing.T, url, me, statements string) string {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
	defer cancel()
	cmd := exec.CommandContext(ctx, need(t, "psql"), "-X", "-A", "-t", "-q", "-v", "ON_ERROR_STOP=1", "-v", "me='"+me+"'", url)
	cmd.Stdin = strings.NewReader(statements)
	out, err := cmd.CombinedOutput()
	if err != nil {
		t.Fatalf("psql: %v\n%s", err, out)
	}
	return strings.TrimSpace(string(out))
}

// P1, P2, P3: plain SQL is a fair competitor, and is noticed both ways.
func TestProveTheArticlesStatementsCompeteFairly(t *testing.T) {
	const me = "psql/3f0e"
	url := pgtest.URL(t)
	db := lookAt(t, url)
	replicas := []*proc{launchBuilt(t, url).serving(), launchBuilt(t, url).serving()}
	db.members(2)
	held := db.ledBy("bridge_health", leading(t, db, "bridge_health", replicas...))
	if got := psql(t, url, me, articleLease); got != "" {
		t.Fatalf("psql got epoch %q while another leads", got)
	}

	// Somebody ends the leader's term by the article's release, and takes the lease. Between the two a
	// replica may look and be the first, which is fair: then he tries again.
	loser, got := leading(t, db, "bridge_health", replicas...), ""
	for range 10 {
		if got = psql(t, url, me, strings.ReplaceAll(articleRelease, ":me", "'"+held.Owner+"'")+articleLease); got != "" {
			break
		}
		loser = leading(t, db, "bridge_health", replicas...)
		held = db.ledBy("bridge_health", loser)
	}
	won := db.lease("bridge_health")
	if won.Owner != me || won.Epoch != held.Epoch+1 || got == "" {
		t.Fatalf("psql got %q, the lease is %+v, after epoch %d", got, won, held.Epoch)
	}
	eventually(t, 10*time.Second, "the replica notices", func() bool {
		for _, e := range loser.heard() {
			if e.Msg == msgTermOver && e.Lease == "bridge_health" && e.Epoch == held.Epoch {
				t.Logf("the replica noticed: %s", e.Cause)
				return true
			}
		}
		return false
	})
	eventually(t, 5*time.Second, "the page shows the other program", func() bool {
		_, body := replicas[0].probe("/api/v1/leases")
		return strings.Contains(body, `"owner":"`+me+`"`)
	})

	// Its renewal keeps the epoch, and nobody takes the lease meanwhile.
	if again := psql(t, url, me, articleLease); again != got {
		t.Errorf("psql's renewal changed the epoch from %s to %s", got, again)
	}
	// That nobody takes it can only be watched, for as long as it would have taken.
	for over := time.Now().Add(2 * testLease); time.Now().Before(over); time.Sleep(50 * time.Millisecond) {
		if l := db.lease("bridge_health"); l.Owner != me || l.Epoch != won.Epoch {
			t.Fatalf("the lease was taken from psql before its expiry: %+v", l)
		}
	}

	psql(t, url, me, articleRelease)
	took := db.after("bridge_health", won.Epoch)
	if took.Epoch != won.Epoch+1 || took.Owner == me {
		t.Errorf("after psql's release: %+v", took)
	}
	t.Logf("a replica led again %v after psql's release", took.AcquiredAt.Sub(*took.PrevEnded).Round(time.Millisecond))

	// The article's write, by hand and with an old epoch, changes nothing.
	execute(t, url, `INSERT INTO bridge_status (bridge_id, health, epoch) VALUES ('LP-3', 'UP', $1)`, took.Epoch)
	written, err := db.Exec(t.Context(), articleSQL, "LP-3", held.Epoch)
	if err != nil || written.RowsAffected() != 0 {
		t.Errorf("a write by hand with an old epoch changed %d rows: %v", written.RowsAffected(), err)
	}
}

// P8: a lease row that somebody holds costs that lease alone.
func TestProveHeldLeaseRowCostsThatLeaseAlone(t *testing.T) {
	t.Parallel() // it mostly waits
	url := pgtest.URL(t)
	db := lookAt(t, url)
	replicas := []*proc{launchBuilt(t, url).serving(), launchBuilt(t, url).serving()}
	db.members(2)
	db.allLed()
	others := func() (sum int) {
		return db.number(`SELECT sum(epoch) FROM leadership WHERE job_name <> 'reconciliation'`)
	}
	before := others()
	loser := leading(t, db, "reconciliation", replicas...)
	held := db.lease("reconciliation")

	tx, err := db.Begin(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if _, err := tx.Exec(t.Context(), `SELECT FROM leadership WHERE job_name = 'reconciliation' FOR UPDATE`); err != nil {
		t.Fatal(err)
	}
	began := db.now()
	time.Sleep(time.Minute) // it is the length that counts
	if err := tx.Rollback(t.Context()); err != nil {
		t.Fatal(err)
	}
	if got := others(); got != before {
		t.Errorf("other leases have changed hands: epochs sum up to %d, before to %d", got, before)
	}
	var lost bool
	for _, e := range loser.heard() {
		lost = lost || e.Msg == msgTermOver && e.Lease == "reconciliation" && e.Epoch == held.Epoch
	}
	if !lost {
		t.Error("the job whose row was held has not lost its term")
	}
	n := db.number(`SELECT count(*) FROM runs WHERE lease = 'bridge_health' AND tick > $1 AND outcome = 'success'`, began)
	var latest float64
	err = db.QueryRow(t.Context(), `SELECT extract(epoch FROM max(started_at - tick))::float8 FROM runs
		WHERE lease = 'bridge_health' AND tick > $1`, began).Scan(&latest)
	if err != nil {
		t.Fatal(err)
	}
	t.Logf("meanwhile %d runs of bridge_health, the latest %.0f ms after its tick", n, latest*1000)
	if n < 18 || latest > 1 {
		t.Errorf("%d runs of bridge_health in a minute, the latest %.3f s after its tick", n, latest)
	}
	took := db.after("reconciliation", held.Epoch)
	t.Logf("led again, with epoch %d after %d", took.Epoch, held.Epoch)
}
