package main

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/jackc/pgx/v5"

	"rota/internal/web"
)

// A guide follows what was done to a replica last, by the database's rows and the replica's own log,
// and says step by step what has been seen of it and what comes next.
type guide struct {
	*stage

	mu  sync.Mutex
	now episode
}

// An episode is what was done to a replica, and what has come of it.
type episode struct {
	act     string // empty: nothing has been done yet
	replica string
	owner   string
	waiting bool // it is to be frozen in the middle of its next run
	midRun  bool // it was
	lease   string
	term    leaseState // of the lease; none if lease is empty

	over   string   // why its term ended, as it says itself
	took   *termRow // the term that followed
	raised bool     // the protected rows have that one's epoch

	undone time.Time // when it was thawed, reconnected or started again, by the database's clock
	kept   bool      // and it still led, or led again under its old epoch
	back   bool      // it is a member again
	packet bool      // what it had under way has arrived
	late   error     // what was wrong with how that was taken; nil: it was refused
}

// begin drops what went before.
func (g *guide) begin(e episode) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.now = e
}

// learn changes the episode if it is still the one about the replica.
func (g *guide) learn(replica string, change func(*episode)) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.now.replica == replica {
		change(&g.now)
	}
}

func (g *guide) episode() episode {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.now
}

// heard takes from a replica's log that its term is over.
func (g *guide) heard(c *child, e entry) {
	g.learn(c.name, func(now *episode) {
		if e.Msg == msgTermOver && e.Lease == now.lease && e.Epoch == now.term.Epoch && e.Cause != "" {
			now.over = e.Cause
		}
	})
}

// watch looks at the rows until ctx ends.
func (g *guide) watch(ctx context.Context) {
	tick := time.NewTicker(100 * time.Millisecond)
	defer tick.Stop()
	for {
		if e := g.episode(); e.act != "" && !e.waiting {
			seen := e
			if g.look(ctx, &seen) == nil {
				g.learn(e.replica, func(now *episode) {
					if now.owner == e.owner && now.act == e.act {
						now.term, now.took, now.raised, now.kept, now.back = seen.term, seen.took, seen.raised, seen.kept, now.back || seen.back
					}
				})
			}
		}
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
	}
}

// look takes from the rows what has come of the episode since.
func (g *guide) look(ctx context.Context, e *episode) error {
	if e.lease != "" && e.took == nil {
		if err := g.lookForSuccessor(ctx, e); err != nil {
			return err
		}
	}
	if e.took != nil && e.lease == storyJob && !e.raised {
		if err := g.db.QueryRow(ctx, `SELECT count(*) FILTER (WHERE epoch < $1) = 0 FROM bridge_status`, e.took.Epoch).Scan(&e.raised); err != nil {
			return fmt.Errorf("look at the protected rows: %w", err)
		}
	}
	if !e.undone.IsZero() && !e.back && e.act != actKill {
		var n int
		if err := g.db.QueryRow(ctx, memberSQL, e.owner, e.undone).Scan(&n); err != nil {
			return fmt.Errorf("look at the members: %w", err)
		}
		e.back = n == 1
	}
	return nil
}

func (g *guide) lookForSuccessor(ctx context.Context, e *episode) error {
	rows, err := g.db.Query(ctx, termAfterSQL, e.lease, e.term.Epoch)
	if err != nil {
		return fmt.Errorf("look for the next term: %w", err)
	}
	took, err := pgx.CollectExactlyOneRow(rows, pgx.RowToStructByName[termRow])
	if err == nil {
		e.took, e.kept = &took, false
		return nil
	}
	if !errors.Is(err, pgx.ErrNoRows) {
		return fmt.Errorf("look for the next term: %w", err)
	}
	l, err := g.stage.lease(ctx, e.lease)
	if err != nil {
		return err
	}
	if l.Epoch == e.term.Epoch && l.Owner == e.owner {
		// A renewal that was under way when it was stopped is seen only now.
		e.kept = !e.undone.IsZero() && e.act != actKill && l.ExpiresAt.After(e.undone.Add(devLease-time.Second))
		e.term = l
	}
	return nil
}

// title says what the episode is about.
func (e episode) title() string {
	switch {
	case e.act == "":
		return "What would happen?"
	case !e.undone.IsZero():
		return e.replica + ": " + undoings[e.act].done
	}
	return e.replica + ": " + undoings[e.act].befell
}

// undoings are how what befalls a replica is called, and what undoes it.
var undoings = map[string]struct{ befell, done, todo string }{
	actFreeze: {"frozen", "thawed", "Thaw %s: it goes on where it stood still, and what it had under way arrives."},
	actCut:    {"cut off", "reconnected", "Reconnect %s: it competes again."},
	actKill:   {"killed", "started again", "Start %s again: it comes back as a new process, a new owner."},
}

// A script is steps in their order: the first that has not been seen is the one that has come.
type script struct {
	steps []web.Step
	come  bool
}

func (s *script) step(seen bool, text string) {
	state := web.StepDone
	if !seen {
		state = web.StepNext
		if !s.come {
			s.come, state = true, web.StepNow
		}
	}
	s.steps = append(s.steps, web.Step{State: state, Text: text})
}

// steps tell the episode.
func (e episode) steps() []web.Step {
	var s script
	if e.act == "" {
		s.step(false, fmt.Sprintf("Freeze the replica that leads %s, and watch its lease run out, another take over with the next epoch, and its late write be refused. Or cut it off from the database, or kill it.", storyJob))
		return s.steps
	}
	s.befall(e)
	if e.waiting {
		return s.steps
	}
	switch {
	case e.lease == "":
		s.step(true, "It led nothing, so nothing moves.")
	case e.kept:
		s.step(true, fmt.Sprintf("It was not too late: it still leads %s, with epoch %d.", e.lease, e.term.Epoch))
	default:
		s.succeed(e)
	}
	s.undo(e)
	return s.steps
}

// befall tells what was done, and once it is undone that it was.
func (s *script) befall(e episode) {
	past := !e.undone.IsZero()
	switch {
	case e.waiting:
		s.step(false, fmt.Sprintf("%s is to be frozen in the middle of its next run of %s: once it has asked the bridges, and before it writes.", e.replica, storyJob))
	case e.midRun && past:
		s.step(true, fmt.Sprintf("%s was frozen (SIGSTOP) in the middle of a run: it had asked the bridges and not yet written. It did not know.", e.replica))
	case e.midRun:
		s.step(true, fmt.Sprintf("%s is frozen (SIGSTOP) in the middle of a run: it has asked the bridges and not yet written. It does not know.", e.replica))
	case e.act == actFreeze && past:
		s.step(true, fmt.Sprintf("%s was frozen (SIGSTOP). It did not know.", e.replica))
	case e.act == actFreeze:
		s.step(true, fmt.Sprintf("%s is frozen (SIGSTOP). It does not know.", e.replica))
	case e.act == actCut && past:
		s.step(true, fmt.Sprintf("%s was cut off from the database: its connections were broken, and new ones refused. It ran on.", e.replica))
	case e.act == actCut:
		s.step(true, fmt.Sprintf("%s is cut off from the database: its connections are broken, and new ones are refused. It runs on.", e.replica))
	case e.act == actKill && past:
		s.step(true, fmt.Sprintf("%s was killed (SIGKILL): it gave nothing back.", e.replica))
	case e.act == actKill:
		s.step(true, fmt.Sprintf("%s is killed (SIGKILL): it gives nothing back.", e.replica))
	}
}

// succeed tells how the lease runs out and another takes it.
func (s *script) succeed(e episode) {
	if e.act == actCut {
		text := "It cannot renew its lease, and ends its term itself before that runs out, by its own clock."
		if e.over != "" {
			text = "It has ended its term itself: " + e.over + "."
		}
		s.step(e.over != "", text)
	}
	s.step(e.took != nil, fmt.Sprintf("Its lease of %s, epoch %d, is renewed no more and runs out. Until then nobody else can lead.", e.lease, e.term.Epoch))
	if last := &s.steps[len(s.steps)-1]; last.State != web.StepDone {
		last.Until = e.term.ExpiresAt
	}
	if e.took == nil {
		s.step(false, fmt.Sprintf("Another takes over, with epoch %d.", e.term.Epoch+1))
	} else {
		s.tookOver(e)
	}
	if e.lease == storyJob {
		s.step(e.raised, "Before it works, the new leader raises the epoch on the protected rows: a write with an earlier one is refused from there on.")
	}
}

func (s *script) tookOver(e episode) {
	t := e.took
	text := fmt.Sprintf("%s has taken over, with epoch %d", hostOf(t.Owner), t.Epoch)
	expired := t.PrevReason != nil && *t.PrevReason == "expired" && t.PrevEnded != nil
	if expired {
		text += fmt.Sprintf(", %v after the lease had run out", t.AcquiredAt.Sub(*t.PrevEnded).Round(time.Millisecond))
	}
	s.step(true, text+".")
	if expired && t.AcquiredAt.Before(*t.PrevEnded) {
		s.steps[len(s.steps)-1].State = web.StepBad
	}
}

// undo tells what undoes it, and how it ends.
func (s *script) undo(e episode) {
	done := !e.undone.IsZero()
	text := fmt.Sprintf(undoings[e.act].todo, e.replica)
	if done {
		text = fmt.Sprintf("%s is %s.", e.replica, undoings[e.act].done)
	}
	s.step(done, text)
	if e.kept {
		return
	}
	if e.midRun {
		s.step(e.packet, fmt.Sprintf("Its late write arrives, with epoch %d, and is refused. Dev sends it in %s's stead: it is no run's, so the late writes on the job's page are without it.", e.term.Epoch, e.replica))
		if e.packet && e.late != nil {
			s.steps[len(s.steps)-1] = web.Step{State: web.StepBad, Text: "Not as promised: " + e.late.Error()}
		}
	}
	if e.act == actFreeze && e.lease != "" {
		text := "It learns that its term is over, and goes on as a standby."
		if e.over != "" {
			text = "It has learned that its term is over (" + e.over + "), and goes on as a standby."
		}
		s.step(e.over != "", text)
		return
	}
	text = "It is a member again, and may lead again."
	s.step(e.back, text)
}
