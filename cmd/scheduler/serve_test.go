package main

import (
	"net/http"
	"strings"
	"syscall"
	"testing"
	"time"

	"rota/internal/pgtest"
)

func TestFiveReplicasStartAtOnceOnAnEmptyDatabase(t *testing.T) {
	t.Parallel()
	url := emptyDatabase(t)
	var replicas []*proc
	for range 5 {
		replicas = append(replicas, launch(t, url, ""))
	}
	for _, r := range replicas {
		r.serving()
		for _, probe := range []string{"/livez", "/readyz"} {
			if code, body := r.probe(probe); code != http.StatusOK {
				t.Errorf("%s %s: %d %s", r.name, probe, code, body)
			}
		}
	}
	assertMigratedOnce(t, url)
	db := lookAt(t, url)
	eventually(t, 30*time.Second, "every job is led, symbol_sync by two shards", func() bool {
		return db.number(`SELECT count(*) FROM leadership WHERE owner <> '' AND expires_at > clock_timestamp()`) == 6
	})
	for _, r := range replicas {
		r.send(syscall.SIGTERM)
	}
	for _, r := range replicas {
		if code := r.code(30 * time.Second); code != exitOK {
			t.Errorf("%s: exit code %d", r.name, code)
		}
	}
}

// P6: the lease is renewed while the job returns, and released after.
func TestLeaderToldToStopRenewsUntilItsJobHasReturned(t *testing.T) {
	t.Parallel()
	url := pgtest.URL(t)
	db := lookAt(t, url)
	first := launch(t, url, "slow").serving()
	held := db.ledBy("slow", first)
	db.running("slow")
	second := launch(t, url, "slow").serving()

	told := db.now()
	first.send(syscall.SIGTERM)
	took := db.after("slow", held.Epoch)
	if took.Epoch != held.Epoch+1 || took.Owner != second.id() {
		t.Errorf("epoch %d of %s follows epoch %d", took.Epoch, took.Owner, held.Epoch)
	}
	if took.PrevEnded == nil || took.PrevReason == nil || *took.PrevReason != "drain" {
		t.Fatalf("the lease was not released by the drain: %+v", took)
	}
	if worked := took.PrevEnded.Sub(told); worked < 3*time.Second {
		t.Errorf("the lease was released %v after the signal, before the job had returned", worked)
	}
	idle := took.AcquiredAt.Sub(*took.PrevEnded)
	t.Logf("another leads %v after the release", idle)
	if idle > 500*time.Millisecond {
		t.Errorf("another leads only %v after the release", idle)
	}
	if code := first.code(10 * time.Second); code != exitOK {
		t.Errorf("exit code %d", code)
	}
	if got := db.number(`SELECT count(*) FROM runs WHERE lease = 'slow' AND outcome = 'success'`); got != 1 {
		t.Errorf("%d runs are recorded as successful, want 1", got)
	}
}

// P6: a job that does not return keeps its lease from being released, and nothing else.
func TestJobThatNeverReturnsLeavesItsLeaseToExpire(t *testing.T) {
	t.Parallel()
	url := pgtest.URL(t)
	db := lookAt(t, url)
	first := launch(t, url, "stuck", "--drain", "500ms", "--grace", "500ms").serving()
	held := db.ledBy("stuck", first)
	db.running("stuck")
	second := launch(t, url, "stuck", "--drain", "500ms", "--grace", "500ms").serving()

	told := time.Now()
	first.send(syscall.SIGTERM)
	eventually(t, 5*time.Second, "the replica is not ready", func() bool {
		code, body := first.probe("/readyz")
		return code == http.StatusServiceUnavailable && strings.Contains(body, "draining")
	})
	if code, body := first.probe("/livez"); code != http.StatusOK {
		t.Errorf("/livez while it drains: %d %s", code, body)
	}
	if code := first.code(20 * time.Second); code != exitLeft {
		t.Errorf("exit code %d, want %d", code, exitLeft)
	}
	t.Logf("it ended %v after the signal", time.Since(told).Round(time.Millisecond))
	if !first.says("left to expire: stuck") {
		t.Error("it does not say which lease it left")
	}

	took := db.after("stuck", held.Epoch)
	if took.Owner != second.id() || took.PrevReason == nil || *took.PrevReason != "expired" {
		t.Errorf("the lease did not run out: %+v", took)
	}
	if took.AcquiredAt.Before(*took.PrevEnded) {
		t.Errorf("it was taken at %v, before its expiry at %v", took.AcquiredAt, took.PrevEnded)
	}
}

func TestSecondSignalEndsAtOnce(t *testing.T) {
	t.Parallel()
	url := pgtest.URL(t)
	replica := launch(t, url, "stuck", "--drain", "1h").serving()
	lookAt(t, url).running("stuck")
	replica.send(syscall.SIGTERM)
	eventually(t, 10*time.Second, "it drains", func() bool { return replica.says("draining") })
	// The first of these may come soon enough to be taken for an echo of the signal before.
	eventually(t, 10*time.Second, "it gives up", func() bool {
		if replica.says("second signal") {
			return true
		}
		_ = replica.signal(syscall.SIGTERM) // it may just have gone
		return false
	})
	if code := replica.code(10 * time.Second); code != 128+int(syscall.SIGTERM) {
		t.Errorf("exit code %d, want %d", code, 128+int(syscall.SIGTERM))
	}
}

func TestSignalDuringTheStartIsNoFailure(t *testing.T) {
	t.Parallel()
	replica := launch(t, "postgres://rota@127.0.0.1:1/rota", "")
	eventually(t, 10*time.Second, "it tries", func() bool { return replica.says("database not reached") })
	replica.send(syscall.SIGTERM)
	if code := replica.code(10 * time.Second); code != exitOK {
		t.Errorf("exit code %d", code)
	}
}

func TestTakenAddressIsRefusedBeforeAnythingIsLed(t *testing.T) {
	t.Parallel()
	url := pgtest.URL(t)
	first := launch(t, url, "").serving()
	_, stderr, code := runHere(t, []string{"DATABASE_URL=" + url}, "serve", "--listen", first.probeAddress())
	if lines := complaints(stderr); code != exitFailed || len(lines) != 1 || !strings.Contains(lines[0], "address already in use") {
		t.Errorf("exit code %d:\n%s", code, stderr)
	}
}

func TestHealthAndLeasesTellOfAReplica(t *testing.T) {
	t.Parallel()
	url := pgtest.URL(t)
	replica := launch(t, url, "").serving()
	held := lookAt(t, url).ledBy("bridge_health", replica)
	for _, probe := range []string{"livez", "readyz"} {
		stdout, stderr, code := runHere(t, nil, "health", probe, "--listen", replica.probeAddress())
		if code != exitOK || stdout != "ok\n" {
			t.Errorf("health %s: exit code %d\n%s%s", probe, code, stdout, stderr)
		}
	}
	// What dev's page can do to its replicas, no other page can.
	answer, err := http.Post("http://"+replica.probeAddress()+"/dev/"+replica.name+"/kill", "application/x-www-form-urlencoded", nil)
	if err != nil {
		t.Fatal(err)
	}
	if _ = answer.Body.Close(); answer.StatusCode != http.StatusNotFound {
		t.Errorf("POST to dev's stage: %s", answer.Status)
	}
	stdout, stderr, code := runHere(t, []string{"DATABASE_URL=" + url}, "leases", "list", "--json")
	if code != exitOK || !strings.Contains(stdout, `"owner": "`+held.Owner+`"`) || !strings.Contains(stdout, `"as_of"`) {
		t.Errorf("leases list: exit code %d\n%s%s", code, stdout, stderr)
	}
	if _, _, code := runHere(t, nil, "health", "--listen", "127.0.0.1:1"); code != exitFailed {
		t.Errorf("health of nobody: exit code %d", code)
	}
}
