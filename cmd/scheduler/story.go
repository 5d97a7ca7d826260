package main

import (
	"context"
	"errors"
	"fmt"
	"syscall"
	"time"

	"github.com/jackc/pgx/v5"
)

// A story is the article's, played with real processes: each step is a promise, looked up in the
// database's rows and clock.
type story struct {
	*stage
	steps  int
	failed []int

	frozen *child     // the leader that was frozen
	old    leaseState // its term
	next   leaseState // its successor's

	letWrite func() // lets the successor's first run go on
}

// stepPatience bounds whatever a step waits for, a lease's running out included.
const stepPatience = 3 * devLease

func newStory(s *stage) *story { return &story{stage: s} }

// play plays every step, and returns an error if one did not come out as promised.
func (s *story) play(ctx context.Context) error {
	began := time.Now()
	s.tell.hush()
	s.tell.say("\nThe story, with real processes. Leases last %v here, and are renewed every %v.\n", devLease, devRenew)
	for _, part := range []func(context.Context) error{
		s.allLed, s.freeze, s.takeover, s.raised, s.late, s.lateOnTouched, s.thawed, s.killed, s.handedOver,
	} {
		if err := part(ctx); err != nil {
			if ctx.Err() != nil {
				return fmt.Errorf("the story was cut short: %w", context.Cause(ctx))
			}
			return coded(exitStory, fmt.Errorf("step %d: %w", s.steps, err))
		}
	}
	if len(s.failed) > 0 {
		return coded(exitStory, fmt.Errorf("not as promised: steps %v", s.failed))
	}
	s.tell.say("\nAll %d steps came out as promised, in %v.", s.steps, time.Since(began).Round(time.Second))
	return nil
}

// step tells a step, and whether it came out.
func (s *story) step(problem error, format string, args ...any) {
	s.steps++
	if problem == nil {
		s.tell.say("%3d. %s", s.steps, fmt.Sprintf(format, args...))
		return
	}
	s.failed = append(s.failed, s.steps)
	s.tell.say("%3d. NOT AS PROMISED: %s", s.steps, fmt.Sprintf(format, args...))
	s.tell.say("     %v", problem)
}

const ledSQL = `SELECT count(*) FILTER (WHERE owner <> '' AND expires_at > clock_timestamp()), count(DISTINCT owner) FROM leadership
	WHERE job_name = ANY ($1)`

func (s *story) allLed(ctx context.Context) error {
	var names []string
	for _, j := range s.jobs {
		names = append(names, j.Leases()...)
	}
	var led, owners int
	err := s.until(ctx, "each job has a leader", func() (bool, error) {
		err := s.db.QueryRow(ctx, ledSQL, names).Scan(&led, &owners)
		return led == len(names), err
	})
	if err != nil {
		return err
	}
	// A bridge that takes its time keeps a run from writing for as long as the story needs.
	if _, err := s.db.Exec(ctx, `UPDATE bridges SET timeout_ms = 25000 WHERE id = $1`, storyBridge); err != nil {
		return fmt.Errorf("give the bridge its time: %w", err)
	}
	err = s.until(ctx, storyJob+" has written", func() (bool, error) {
		rows, err := s.statusRows(ctx)
		return len(rows) > 0, err
	})
	if err != nil {
		return err
	}
	c, l, err := s.leader(ctx, storyJob)
	if err != nil {
		return err
	}
	s.step(nil, "Three replicas run. Each of the %d jobs is led by one of them, %s by %s, with epoch %d.", len(s.jobs), storyJob, c.name, l.Epoch)
	return nil
}

func (s *story) freeze(ctx context.Context) error {
	var err error
	if s.frozen, s.old, err = s.freezeLeader(ctx, nil); err != nil {
		return err
	}
	s.step(nil, "%s asks the bridges how they are, and is frozen before it writes what they answer. It does not know.", s.frozen.name)
	s.step(nil, "It renews its lease no more. The lease runs for another %v, and until then nobody else leads.", s.old.left())
	return nil
}

// takeover waits for the successor, whose first run it holds up: it has asked the bridges and has
// written nothing when takeover returns.
func (s *story) takeover(ctx context.Context) error {
	arrived, release := s.world.Hold(storyBridge)
	s.later(release)
	s.letWrite = release
	took, err := s.successor(ctx, s.old)
	if err != nil {
		return err
	}
	if s.next, err = s.lease(ctx, storyJob); err != nil {
		return err
	}
	s.step(tookOverRightly(s.old, took), "The lease has run out. %s takes over %v later, with epoch %d: one more.",
		hostOf(took.Owner), took.AcquiredAt.Sub(s.old.ExpiresAt).Round(time.Millisecond), took.Epoch)
	select {
	case <-arrived:
		return nil
	case <-time.After(stepPatience):
		return fmt.Errorf("%s has not begun to work", hostOf(took.Owner))
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// tookOverRightly: by another, after the expiry by the database's clock, with the next epoch.
func tookOverRightly(old leaseState, took termRow) error {
	switch {
	case took.Owner == old.Owner:
		return errors.New("the new term is the old owner's")
	case took.AcquiredAt.Before(old.ExpiresAt):
		return fmt.Errorf("it was taken %v before its expiry", old.ExpiresAt.Sub(took.AcquiredAt))
	case took.Epoch != old.Epoch+1:
		return fmt.Errorf("epoch %d follows %d", took.Epoch, old.Epoch)
	}
	return nil
}

const termAfterSQL = `SELECT t.job_name, t.epoch, t.owner, t.acquired_at,
		p.owner AS prev_owner, p.ended_at AS prev_ended, p.end_reason AS prev_reason
	FROM terms t JOIN terms p ON p.job_name = t.job_name AND p.epoch = $2
	WHERE t.job_name = $1 AND t.epoch > $2 ORDER BY t.epoch LIMIT 1`

// successor waits for the term that follows.
func (s *story) successor(ctx context.Context, old leaseState) (took termRow, err error) {
	err = s.until(ctx, "another leads "+storyJob, func() (bool, error) {
		rows, err := s.db.Query(ctx, termAfterSQL, storyJob, old.Epoch)
		if err != nil {
			return false, err
		}
		took, err = pgx.CollectExactlyOneRow(rows, pgx.RowToStructByName[termRow])
		if errors.Is(err, pgx.ErrNoRows) {
			return false, nil
		}
		return err == nil, err
	})
	return took, err
}

// A statusRow is a row of bridge_status, as the fence sees it.
type statusRow struct {
	BridgeID  string
	Health    string
	CheckedAt time.Time
	Epoch     int64
}

const statusRowsSQL = `SELECT bridge_id, health, checked_at, epoch FROM bridge_status ORDER BY bridge_id`

func (s *story) statusRows(ctx context.Context) ([]statusRow, error) {
	rows, err := s.db.Query(ctx, statusRowsSQL)
	if err != nil {
		return nil, err
	}
	return pgx.CollectRows(rows, pgx.RowToStructByName[statusRow])
}

// raised shows that the new epoch is on every row although its leader has written none.
func (s *story) raised(ctx context.Context) error {
	rows, err := s.statusRows(ctx)
	if err != nil {
		return err
	}
	var problem error
	for _, r := range rows {
		if r.Epoch != s.next.Epoch {
			problem = errors.Join(problem, fmt.Errorf("%s has epoch %d", r.BridgeID, r.Epoch))
		}
		if r.CheckedAt.After(s.old.ExpiresAt) {
			problem = errors.Join(problem, fmt.Errorf("%s has been written already", r.BridgeID))
		}
	}
	s.step(problem, "Before it works, %s raises the epoch on all %d protected rows to %d. It has written none of them yet.",
		hostOf(s.next.Owner), len(rows), s.next.Epoch)
	return nil
}

// late plays what the frozen leader may have had under way, before the successor writes anything.
func (s *story) late(ctx context.Context) error {
	p, err := newPacket(s.stage, s.old)
	if err != nil {
		return err
	}
	s.step(p.update(ctx, storyBridge), "Now a packet arrives that %s had under way: \"%s is DOWN\", with epoch %d. Refused.",
		s.frozen.name, storyBridge, s.old.Epoch)
	s.step(p.insert(ctx), "Another one, about a bridge that has no row yet. Refused.")
	s.step(p.tx(ctx), "A whole transaction, with SQL of its own. Refused at its commit.")
	s.step(p.byHand(ctx, storyBridge), "The article's own upsert, by hand, with epoch %d. It changes 0 rows.", s.old.Epoch)
	return nil
}

// lateOnTouched lets the successor write, and plays the packet on what it has written.
func (s *story) lateOnTouched(ctx context.Context) error {
	s.letWrite()
	err := s.until(ctx, "the new leader has written", func() (bool, error) {
		rows, err := s.statusRows(ctx)
		written := 0
		for _, r := range rows {
			if r.CheckedAt.After(s.next.Now) {
				written++
			}
		}
		return len(rows) > 0 && written == len(rows), err
	})
	if err != nil {
		return err
	}
	p, err := newPacket(s.stage, s.old)
	if err != nil {
		return err
	}
	s.step(p.update(ctx, storyBridge), "%s writes its first results. The same packet, once more, over one of them. Refused.", hostOf(s.next.Owner))
	return nil
}

// thawed wakes the old leader: it changes nothing, learns that its term is over, and goes on.
func (s *story) thawed(ctx context.Context) error {
	over := s.replicas.expect(s.frozen, func(e entry) bool {
		return e.Msg == msgTermOver && e.Lease == storyJob && e.Epoch == s.old.Epoch
	})
	if err := s.frozen.thaw(); err != nil {
		return err
	}
	var cause string
	select {
	case e := <-over:
		cause = e.Cause
	case <-s.frozen.gone:
		return fmt.Errorf("%s has ended: %w", s.frozen.name, s.frozen.err)
	case <-time.After(stepPatience):
		return fmt.Errorf("%s has not ended its term", s.frozen.name)
	case <-ctx.Done():
		return context.Cause(ctx)
	}
	s.step(nil, "%s is thawed, and goes on where it stood still. Its term is over: %s.", s.frozen.name, cause)

	problem := s.standsBy(ctx)
	rows, err := s.statusRows(ctx)
	if err != nil {
		return err
	}
	for _, r := range rows {
		if r.Epoch < s.next.Epoch {
			problem = errors.Join(problem, fmt.Errorf("%s has epoch %d", r.BridgeID, r.Epoch))
		}
	}
	s.step(problem, "It has changed no row, and goes on as a standby.")
	return nil
}

const memberSQL = `SELECT count(*) FROM replicas WHERE id = $1 AND expires_at > clock_timestamp() AND seen_at > $2`

// standsBy waits until the thawed replica is a member again.
func (s *story) standsBy(ctx context.Context) error {
	thawed, err := s.lease(ctx, storyJob)
	if err != nil {
		return err
	}
	return s.until(ctx, s.frozen.name+" is a member again", func() (bool, error) {
		var n int
		err := s.db.QueryRow(ctx, memberSQL, s.frozen.id(), thawed.Now).Scan(&n)
		return n == 1, err
	})
}

// killed kills a leader outright.
func (s *story) killed(ctx context.Context) error {
	c, _, err := s.leader(ctx, storyJob)
	if err != nil {
		return err
	}
	if err := c.signal(syscall.SIGKILL); err != nil {
		return err
	}
	<-c.gone
	l, err := s.lease(ctx, storyJob)
	if err != nil {
		return err
	}
	s.step(nil, "%s, the leader now, is killed (kill -9). Its lease runs for another %v.", c.name, l.left())
	took, err := s.successor(ctx, l)
	if err != nil {
		return err
	}
	s.step(tookOverRightly(l, took), "%s takes over %v after the lease has run out, with epoch %d.",
		hostOf(took.Owner), took.AcquiredAt.Sub(l.ExpiresAt).Round(time.Millisecond), took.Epoch)
	return nil
}

// handedOver ends a leader in good order.
func (s *story) handedOver(ctx context.Context) error {
	c, l, err := s.leader(ctx, storyJob)
	if err != nil {
		return err
	}
	if err := c.signal(syscall.SIGTERM); err != nil {
		return err
	}
	took, err := s.successor(ctx, l)
	if err != nil {
		return err
	}
	problem := func() error {
		switch {
		case took.Epoch != l.Epoch+1 || took.Owner == l.Owner:
			return fmt.Errorf("epoch %d of %s follows %d of %s", took.Epoch, took.Owner, l.Epoch, l.Owner)
		case took.PrevReason == nil || *took.PrevReason == "expired":
			return errors.New("the lease was not released: it ran out")
		}
		select {
		case <-c.gone:
			return c.err
		case <-time.After(stepPatience):
			return fmt.Errorf("%s has not ended", c.name)
		}
	}()
	after := "at once"
	if took.PrevEnded != nil {
		after = took.AcquiredAt.Sub(*took.PrevEnded).Round(100*time.Microsecond).String() + " later"
	}
	s.step(problem, "%s is asked to stop (SIGTERM). It finishes its run and hands over: %s leads %s, with epoch %d.",
		c.name, hostOf(took.Owner), after, took.Epoch)
	return nil
}

// until polls for what is to come, up to stepPatience.
func (s *story) until(ctx context.Context, what string, reached func() (bool, error)) error {
	ctx, cancel := context.WithTimeoutCause(ctx, stepPatience, fmt.Errorf("waited %v in vain until %s", stepPatience, what))
	defer cancel()
	tick := time.NewTicker(20 * time.Millisecond)
	defer tick.Stop()
	for {
		ok, err := reached()
		if err != nil {
			return fmt.Errorf("wait until %s: %w", what, err)
		}
		if ok {
			return nil
		}
		select {
		case <-ctx.Done():
			return context.Cause(ctx)
		case <-tick.C:
		}
	}
}
