package main

import (
	"errors"
	"strings"
	"testing"
	"time"

	"rota/internal/web"
)

// states are the steps' states in their order, as one word.
func states(steps []web.Step) string {
	var all []string
	for _, s := range steps {
		all = append(all, s.State)
	}
	return strings.Join(all, " ")
}

func texts(steps []web.Step) string {
	var all []string
	for _, s := range steps {
		all = append(all, s.Text)
	}
	return strings.Join(all, "\n")
}

var (
	oldOwner, newOwner = "replica-1/a", "replica-2/b"
	ranOut             = time.Date(2026, 3, 1, 8, 0, 6, 0, time.UTC)
	expiredReason      = "expired"
)

// frozenMidRun is the episode of the story, as far as somebody has seen it.
func frozenMidRun(seen func(*episode)) episode {
	e := episode{act: actFreeze, replica: "replica-1", owner: oldOwner, midRun: true, lease: storyJob, term: leaseState{Owner: oldOwner, Epoch: 7, ExpiresAt: ranOut}}
	seen(&e)
	return e
}

func takenOver(e *episode) {
	e.took = &termRow{JobName: storyJob, Epoch: 8, Owner: newOwner, AcquiredAt: ranOut.Add(12 * time.Millisecond), PrevOwner: &oldOwner, PrevEnded: &ranOut, PrevReason: &expiredReason}
	e.raised = true
}

// The guide says of each step whether it has been seen, and which has come.
func TestTheGuideTellsHowFarAnEpisodeHasCome(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		e     episode
		want  string
		texts []string
	}{
		"nothing yet":                      {episode{}, "now", []string{"Freeze the replica"}},
		"awaited":                          {episode{act: actFreeze, replica: "replica-1", waiting: true}, "now", []string{"is to be frozen"}},
		"frozen":                           {frozenMidRun(func(*episode) {}), "done now next next next next next", []string{"replica-1 is frozen", "with epoch 8"}},
		"frozen without a run, and thawed": {episode{act: actFreeze, replica: "replica-1", owner: oldOwner, undone: ranOut}, "done done done now", []string{"replica-1 was frozen (SIGSTOP). It did not know."}},
		"cut off, and reconnected":         {episode{act: actCut, replica: "replica-1", owner: oldOwner, undone: ranOut, back: true}, "done done done done", []string{"was cut off"}},
		"killed, and started again":        {episode{act: actKill, replica: "replica-1", owner: oldOwner, undone: ranOut, back: true}, "done done done done", []string{"was killed (SIGKILL)"}},
		"taken over": {frozenMidRun(takenOver), "done done done done now next next", []string{
			"replica-2 has taken over, with epoch 8, 12ms after the lease had run out", "Thaw replica-1",
		}},
		"thawed": {frozenMidRun(func(e *episode) {
			takenOver(e)
			e.undone, e.packet, e.over = ranOut.Add(time.Second), true, "the lease ran out"
		}), "done done done done done done done", []string{"replica-1 was frozen (SIGSTOP) in the middle", "is refused", "the late writes on the job's page are without it", "its term is over (the lease ran out)"}},
		"a late write that was taken": {frozenMidRun(func(e *episode) {
			takenOver(e)
			e.undone, e.packet, e.late = ranOut.Add(time.Second), true, errors.New("a late write was accepted")
		}), "done done done done done bad now", []string{"Not as promised: a late write was accepted"}},
		"a takeover that came too early": {frozenMidRun(func(e *episode) {
			takenOver(e)
			e.took.AcquiredAt = ranOut.Add(-time.Millisecond)
		}), "done done bad done now next next", nil},
		"thawed in time": {frozenMidRun(func(e *episode) { e.undone, e.kept = ranOut.Add(-time.Second), true }), "done done done", []string{"still leads bridge_health, with epoch 7"}},
		"it led nothing": {episode{act: actFreeze, replica: "replica-1", owner: oldOwner}, "done done now next", []string{"nothing moves"}},
		"cut off": {episode{act: actCut, replica: "replica-1", owner: oldOwner, lease: "reconciliation", term: leaseState{Epoch: 2}, over: "deadline"}, "done done now next next next", []string{
			"It has ended its term itself: deadline", "Reconnect replica-1",
		}},
		"killed": {episode{act: actKill, replica: "replica-1", owner: oldOwner, lease: "reconciliation", term: leaseState{Epoch: 2}}, "done now next next next", []string{"gives nothing back", "Start replica-1 again"}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			steps := c.e.steps()
			if got := states(steps); got != c.want {
				t.Errorf("%s, want %s:\n%s", got, c.want, texts(steps))
			}
			for _, text := range c.texts {
				if !strings.Contains(texts(steps), text) {
					t.Errorf("no step says %q:\n%s", text, texts(steps))
				}
			}
		})
	}
	if until := frozenMidRun(func(*episode) {}).steps()[1].Until; !until.Equal(ranOut) {
		t.Errorf("the lease runs out at %v", until)
	}
}

// What is learnt of another replica than the one that the episode is about changes nothing.
func TestTheGuideFollowsOneReplica(t *testing.T) {
	t.Parallel()
	g := &guide{}
	g.begin(frozenMidRun(func(*episode) {}))
	over := entry{Msg: msgTermOver, Lease: storyJob, Epoch: 7, Cause: "the lease ran out"}
	g.heard(&child{name: "replica-2"}, over)
	g.heard(&child{name: "replica-1"}, entry{Msg: msgTermOver, Lease: storyJob, Epoch: 6, Cause: "an earlier one"})
	if e := g.episode(); e.over != "" {
		t.Errorf("%q", e.over)
	}
	g.heard(&child{name: "replica-1"}, over)
	if e := g.episode(); e.over != over.Cause {
		t.Errorf("%q", e.over)
	}
}
