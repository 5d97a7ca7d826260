package scheduler

import (
	"context"
	"log/slog"
	"testing"
	"testing/synctest"
	"time"
)

// While more is due than one statement claims, the ends of runs wait, but not for long; once nothing is
// due, and at shutdown, they do not.
func TestEndsGiveWayToClaims(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		r := newRecorder(settlesAll{newFakeStore()}, slog.New(slog.DiscardHandler))
		stop, ended := make(chan struct{}), make(chan struct{})
		go func() {
			r.run(t.Context(), stop)
			close(ended)
		}()
		records := func() time.Duration {
			began := time.Now()
			<-r.end(end{run: 1, owner: "me", outcome: success, at: began})
			return time.Since(began)
		}
		if took := records(); took != 0 {
			t.Errorf("with nothing due it took %v", took)
		}
		r.wayTo.rush()
		if took := records(); took != longestWay {
			t.Errorf("while more is due it took %v", took)
		}
		time.AfterFunc(longestWay/2, r.wayTo.calm)
		if took := records(); took != longestWay/2 {
			t.Errorf("of a rush that ended after %v it waited %v", longestWay/2, took)
		}
		r.wayTo.rush()
		last := r.end(end{run: 1, owner: "me", outcome: success, at: time.Now()})
		began := time.Now()
		close(stop)
		<-ended
		if took := time.Since(began); took != 0 || !closed(last) {
			t.Errorf("at shutdown it took %v, recorded: %t", took, closed(last))
		}
	})
}

// settlesAll is a store in which every end is recorded.
type settlesAll struct{ *fakeStore }

func (settlesAll) record(_ context.Context, ends []end) (map[int64]bool, error) {
	settled := map[int64]bool{}
	for _, e := range ends {
		settled[e.run] = true
	}
	return settled, nil
}
