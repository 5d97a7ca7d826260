package lease

import (
	"log/slog"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
)

// pad is where a log is written by several goroutines.
type pad struct {
	mu   sync.Mutex
	text strings.Builder
}

func (p *pad) Write(b []byte) (int, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.text.Write(b)
}

func (p *pad) has(words ...string) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	for line := range strings.Lines(p.text.String()) {
		all := true
		for _, w := range words {
			all = all && strings.Contains(line, w)
		}
		if all {
			return true
		}
	}
	return false
}

// newLoggedWorld is a world, and what its replicas log.
func newLoggedWorld(t *testing.T) (*world, *pad) {
	w, log := newWorld(t), &pad{}
	w.log = slog.New(slog.NewTextHandler(log, nil))
	return w, log
}

// count is how often the text is there.
func (p *pad) count(text string) int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return strings.Count(p.text.String(), text)
}

func TestEndOfATermIsLoggedWithTheReasonThatHistoryHas(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w, log := newLoggedWorld(t)
		r := w.start("r1", nil, leasesNamed("a", "b")...)
		pass(2 * testRenew)
		r.GiveUp("a", Reason("step down"))
		pass(testLease)
		r.Drain()
		pass(testLease)
		r.end()
		for lease, reason := range map[string]string{"a": `reason="step down"`, "b": "reason=drain"} {
			if !log.has("term over", "lease="+lease, reason) {
				t.Errorf("no line has the end of %s with %s:\n%s", lease, reason, log.text.String())
			}
		}
	})
}
