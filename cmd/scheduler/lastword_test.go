package main

import (
	"syscall"
	"testing"
	"time"

	"rota/internal/pgtest"
)

// A replica that crashes, by a goroutine of a job that panics or a job that ends the process, did not end by
// itself. Go's status for that, 2, is ours for wrong settings, and 0 is that of a shutdown: with either a
// supervisor would leave it down.
func TestCrashOfAReplicaIsNoStatusThatKeepsItDown(t *testing.T) {
	t.Parallel()
	for jobs, status := range map[string]string{"panics": "2", "exits": "0", "exits_with_3": "3"} {
		t.Run(jobs, func(t *testing.T) {
			t.Parallel()
			p := launch(t, pgtest.URL(t), jobs, "--witness", "on")
			if code := p.code(30 * time.Second); code != exitFailed {
				t.Errorf("it ended with status %d, want %d", code, exitFailed)
			}
			if !p.says("the replica crashed, with status " + status) {
				t.Error("it does not say so")
			}
		})
	}
}

// What a replica ends with by itself is its witness's status too.
func TestWitnessEndsAsItsReplicaDoes(t *testing.T) {
	t.Parallel()
	url := pgtest.URL(t)
	execute(t, url, "INSERT INTO rota_schema (version_id, is_applied) VALUES (9999, true)")
	if code := launch(t, url, "", "--witness", "on").code(30 * time.Second); code != exitSchema {
		t.Errorf("on a newer schema it ended with status %d, want %d", code, exitSchema)
	}
	p := launch(t, pgtest.URL(t), "", "--witness", "on").serving()
	p.send(syscall.SIGTERM)
	if code := p.code(30 * time.Second); code != exitOK {
		t.Errorf("told to stop it ended with status %d", code)
	}
}
