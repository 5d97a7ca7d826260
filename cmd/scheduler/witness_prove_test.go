//go:build prove

package main

import (
	"fmt"
	"os"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"rota/internal/pgtest"
)

// working is the process id of the replica itself, which is not its witness's.
func (e eye) working(p *proc) int {
	e.t.Helper()
	return e.number(`SELECT pid FROM replicas WHERE id = $1`, p.id())
}

// P1, P6: a replica that is killed is outlived by its witness, which knows that its work has stopped:
// its leases are led again at once, each under a higher epoch, and the witness ends as it did.
func TestProveKilledReplicaIsReplacedAtOnce(t *testing.T) {
	url := pgtest.URL(t)
	db := lookAt(t, url)
	var gaps []time.Duration
	var last *proc
	for try := range 20 {
		if last == nil {
			last = launch(t, url, "", "--witness", "on").serving()
			db.ledBy("bridge_health", last)
		}
		standby := launch(t, url, "", "--witness", "on").serving()
		eventually(t, 30*time.Second, "the standby is heard of", func() bool {
			return db.number(`SELECT count(*) FROM replicas WHERE hints AND expires_at > clock_timestamp()`) == 2
		})
		leads := db.number(`SELECT count(*) FROM leadership WHERE owner = $1 AND expires_at > clock_timestamp()`, last.id())
		before := db.now()
		if err := syscall.Kill(db.working(last), syscall.SIGKILL); err != nil {
			t.Fatal(err)
		}
		eventually(t, 10*time.Second, "the standby leads all", func() bool {
			return db.number(`SELECT count(*) FROM leadership WHERE owner <> '' AND (owner <> $1 OR expires_at <= clock_timestamp())`, standby.id()) == 0
		})
		var gap float64
		err := db.QueryRow(t.Context(), `SELECT extract(epoch FROM max(b.acquired_at) - $2::timestamptz)
			FROM terms a JOIN LATERAL (SELECT acquired_at FROM terms WHERE job_name = a.job_name AND epoch > a.epoch ORDER BY epoch LIMIT 1) AS b ON true
			WHERE a.owner = $1 AND a.end_reason = 'crashed' HAVING count(*) = $3`, last.id(), before, leads).Scan(&gap)
		if err != nil {
			t.Fatalf("try %d: of %d leases not all ended as crashed and went on: %v", try, leads, err)
		}
		gaps = append(gaps, time.Duration(gap*float64(time.Second)))
		if code := last.code(10 * time.Second); code != 128+int(syscall.SIGKILL) {
			t.Errorf("the witness ended with status %d", code)
		}
		last = standby
	}
	slices.Sort(gaps)
	t.Logf("from the kill until all are led again: p50 %v, max %v", gaps[len(gaps)/2], gaps[len(gaps)-1])
	if p50 := gaps[len(gaps)/2]; p50 > 250*time.Millisecond {
		t.Errorf("p50 %v", p50)
	}
	if longest := gaps[len(gaps)-1]; longest > time.Second {
		t.Errorf("the longest took %v", longest)
	}
}

// P1: where the witness dies too, or there is none, the leases run out, and nobody leads before that.
func TestProveLeasesRunOutWithoutTheWitness(t *testing.T) {
	url := pgtest.URL(t)
	db := lookAt(t, url)
	leader := launch(t, url, "", "--witness", "on").serving()
	db.ledBy("bridge_health", leader)
	standby := launch(t, url, "").serving()
	pid := db.working(leader)
	eventually(t, 10*time.Second, "each leads its half", func() bool {
		return db.number(`SELECT count(*) FROM leadership WHERE owner = $1`, standby.id()) == 3
	})
	var name string
	var epoch int64
	if err := db.QueryRow(t.Context(), `SELECT job_name, epoch FROM leadership WHERE owner = $1 LIMIT 1`, leader.id()).Scan(&name, &epoch); err != nil {
		t.Fatal(err)
	}
	leader.send(syscall.SIGKILL)
	eventually(t, 10*time.Second, "the replica is gone with its witness", func() bool { return syscall.Kill(pid, 0) != nil })
	took := db.after(name, epoch)
	if took.PrevReason == nil || *took.PrevReason != "expired" {
		t.Errorf("the term before ended otherwise than by running out: %+v", took)
	}
}

// A witness passes signals on, and ends as the replica does.
func TestProveWitnessPassesSignalsOn(t *testing.T) {
	url := pgtest.URL(t)
	db := lookAt(t, url)
	p := launchBuilt(t, url, "--witness", "on").serving()
	db.ledBy("bridge_health", p)
	pid := db.working(p)
	if pid == p.cmd.Process.Pid {
		t.Fatal("the replica is its own witness")
	}
	private := privateMemory(t, p.cmd.Process.Pid)
	t.Logf("the witness uses %.1f MB of private memory", float64(private)/1e6)
	if private > 15e6 {
		t.Error("that is more than 15 MB")
	}
	p.send(syscall.SIGTERM)
	if code := p.code(30 * time.Second); code != 0 {
		t.Errorf("it ended with status %d", code)
	}
	var others string
	err := db.QueryRow(t.Context(), `SELECT coalesce(string_agg(job_name || ': ' || coalesce(end_reason, 'not ended'), ', '), '') FROM terms
		WHERE ended_at IS NULL OR end_reason NOT IN ('drain', 'yield', 'not begun')`).Scan(&others)
	if err != nil || others != "" {
		t.Errorf("terms that did not end by the drain: %s, %v", others, err)
	}
}

// privateMemory is what the process alone has in memory and could not be read back from a file.
func privateMemory(t *testing.T, pid int) int {
	t.Helper()
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/smaps_rollup", pid))
	if err != nil {
		t.Skip("this system does not tell the memory of a process apart: ", err)
	}
	for line := range strings.Lines(string(text)) {
		if fields := strings.Fields(line); len(fields) == 3 && fields[0] == "Private_Dirty:" {
			kb, err := strconv.Atoi(fields[1])
			if err != nil {
				t.Fatal(err)
			}
			return kb * 1024
		}
	}
	t.Fatal("smaps_rollup does not name Private_Dirty")
	return 0
}
