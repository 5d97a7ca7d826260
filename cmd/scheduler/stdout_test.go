package main

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"rota/internal/pgtest"
)

// A full is where nothing more can be written, once so much is.
type full struct{ room int }

func (f *full) Write(p []byte) (int, error) {
	n := min(f.room, len(p))
	if f.room -= n; n < len(p) {
		return n, errors.New("no space left on device")
	}
	return n, nil
}

// Half the SQL of an upgrade in a file must not look like the whole of it.
func TestWhatCouldNotBePrintedIsNoSuccess(t *testing.T) {
	t.Parallel()
	for _, args := range [][]string{
		{"migrate", "sql", "--all"},
		{"check"},
		{"config"},
		{"version"},
		{"jobs", "list"},
		{"jobs", "next", "bridge_health"},
		{"--help"},
		{"leases", "--help"},
		{"completion", "bash"},
	} {
		for _, room := range []int{0, 5} {
			var talk strings.Builder
			code := run(t.Context(), args, nil, strings.NewReader(""), &full{room}, &talk)
			if code != exitFailed || !strings.Contains(talk.String(), "no space left on device") {
				t.Errorf("%v with room for %d bytes: exit code %d, and it says %q", args, room, code, talk.String())
			}
		}
	}
}

func TestWatchEndsWhenNobodyCanSeeIt(t *testing.T) {
	t.Parallel()
	replica := launch(t, pgtest.URL(t), "watched").serving()
	for _, args := range [][]string{nil, {"--json"}} {
		ctx, end := context.WithTimeout(t.Context(), 30*time.Second)
		defer end()
		var talk strings.Builder
		code := run(ctx, append([]string{"watch", "--listen", replica.probeAddress()}, args...), nil, strings.NewReader(""), &full{}, &talk)
		if code != exitFailed || ctx.Err() != nil || !strings.Contains(talk.String(), "no space left on device") {
			t.Errorf("watch %v: exit code %d, %v, and it says %q", args, code, ctx.Err(), talk.String())
		}
	}
	if err := newScreen(&full{}, "here", func() int { return 24 }).show(sighting{}, outage{}); err == nil {
		t.Error("a table that could not be drawn is no error")
	}
}
