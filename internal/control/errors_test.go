package control

import (
	"errors"
	"testing"
)

// A desk that finds its database away says so, and what it does not know.
func TestLostAnswerIsSaidToBeUnknown(t *testing.T) {
	t.Parallel()
	lost := errors.New("unexpected EOF")
	if err := explain(t.Context(), lost, "pause x", true); !errors.Is(err, ErrUnknown) || !errors.Is(err, lost) {
		t.Errorf("a lost commit is %v", err)
	}
	if err := explain(t.Context(), lost, "pause x", false); err == nil || errors.Is(err, ErrUnknown) {
		t.Errorf("what was lost before the commit is %v", err)
	}
}
