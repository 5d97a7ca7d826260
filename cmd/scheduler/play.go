package main

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"syscall"
	"time"

	"github.com/jackc/pgx/v5"

	"rota/internal/web"
)

// What may befall a replica of dev's, and what undoes it.
const (
	actFreeze, actThaw   = "freeze", "thaw"
	actCut, actReconnect = "cut", "reconnect"
	actKill, actStart    = "kill", "start"
)

// A player does to the replicas what befalls them, for the letters of the terminal and the buttons of
// the page alike.
type player struct {
	*stage
	guide *guide
	soon  func(func(context.Context)) // what takes its time, until dev ends

	mu      sync.Mutex
	awaited string                // the replica that is to be frozen in the middle of its next run
	midRun  map[*child]leaseState // the terms of those that were
}

// newPlayer makes one whose slow acts end with ctx; done returns when they have.
func newPlayer(ctx context.Context, s *stage) (p *player, done func()) {
	ctx, stop := context.WithCancel(context.WithoutCancel(ctx))
	var acts sync.WaitGroup
	p = &player{stage: s, guide: s.guide, midRun: map[*child]leaseState{}}
	p.soon = func(act func(context.Context)) { acts.Go(func() { act(ctx) }) }
	return p, func() { stop(); acts.Wait() }
}

// Scene implements web.Stage.
func (p *player) Scene() web.Scene {
	e := p.guide.episode()
	scene := web.Scene{Title: e.title(), Steps: e.steps(), Told: p.tell.told()}
	for _, c := range p.replicas.all() {
		scene.Players = append(scene.Players, p.as(c))
	}
	return scene
}

// as is the replica as the page shows it, with what may be done to it: one thing at a time.
func (p *player) as(c *child) web.Player {
	as := web.Player{Name: c.name, Owner: c.id()}
	kill := web.Act{Name: actKill, Label: "Kill", Button: actKill}
	wire := p.replicas.wire(c.name)
	switch {
	case !c.alive():
		as.State, as.Acts = "gone", []web.Act{{Name: actStart, Label: "Start again", Button: actKill}}
	case as.Owner == "":
		as.State = "starting"
	case c.isFrozen():
		as.State, as.Acts = "frozen", []web.Act{{Name: actThaw, Label: "Thaw", Button: actFreeze}, kill}
	case wire != nil && wire.isCut():
		as.State, as.Acts = "cut off", []web.Act{{Name: actReconnect, Label: "Reconnect", Button: actCut}, kill}
	case p.awaits(c):
		as.State, as.Acts = "about to be frozen", []web.Act{kill}
	default:
		as.State, as.Well = "running", true
		as.Acts = []web.Act{{Name: actFreeze, Label: "Freeze", Button: actFreeze}}
		if wire != nil {
			as.Acts = append(as.Acts, web.Act{Name: actCut, Label: "Cut off", Button: actCut})
		}
		as.Acts = append(as.Acts, kill)
	}
	return as
}

func (p *player) awaits(c *child) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.awaited == c.name
}

// Play implements web.Stage.
func (p *player) Play(ctx context.Context, act, replica string) (string, error) {
	c := p.replicas.named(replica)
	if c == nil {
		return "", fmt.Errorf("there is no %s", replica)
	}
	switch act {
	case actFreeze:
		return p.freezeNamed(ctx, c)
	case actThaw:
		return c.name + " goes on where it stood still.", p.thaw(ctx, c)
	case actCut:
		return c.name + " is cut off from the database.", p.cut(ctx, c)
	case actReconnect:
		return c.name + " reaches the database again.", p.reconnect(ctx, c)
	case actKill:
		return c.name + " is killed.", p.kill(ctx, c)
	case actStart:
		p.soon(func(ctx context.Context) { p.started(ctx, c.name, p.replicas.start(c.name)) })
		return c.name + " is being started.", nil
	}
	return "", fmt.Errorf("%q is nothing that could be done to a replica", act)
}

const ledBySQL = `SELECT job_name, owner, epoch, expires_at, clock_timestamp() FROM leadership
	WHERE owner = $1 AND expires_at > clock_timestamp() ORDER BY job_name <> $2, job_name LIMIT 1`

// ledBy is a lease that the replica leads, that of the story's job before any other; empty: none.
func (p *player) ledBy(ctx context.Context, c *child) (name string, l leaseState, err error) {
	err = p.db.QueryRow(ctx, ledBySQL, c.id(), storyJob).Scan(&name, &l.Owner, &l.Epoch, &l.ExpiresAt, &l.Now)
	if errors.Is(err, pgx.ErrNoRows) {
		return "", l, nil
	}
	if err != nil {
		return "", l, fmt.Errorf("read what %s leads: %w", c.name, err)
	}
	return name, l, nil
}

// befall tells what was done to a replica, and begins an episode about it.
func (p *player) befall(ctx context.Context, c *child, act, said string) error {
	name, l, err := p.ledBy(ctx, c)
	if err != nil {
		return err
	}
	if name != "" {
		said += fmt.Sprintf("; its lease of %s, epoch %d, runs for another %v; until then nobody can take it", name, l.Epoch, l.left())
	}
	p.guide.begin(episode{act: act, replica: c.name, owner: c.id(), lease: name, term: l})
	p.tell.note("%s %s", c.name, said)
	return nil
}

// freezeNamed freezes one replica. The leader of the story's job is frozen in the middle of its next
// run, which is awaited.
func (p *player) freezeNamed(ctx context.Context, c *child) (string, error) {
	name, _, err := p.ledBy(ctx, c)
	if err != nil {
		return "", err
	}
	if name != storyJob {
		if err := c.freeze(); err != nil {
			return "", err
		}
		return c.name + " is frozen.", p.befall(ctx, c, actFreeze, "is frozen")
	}
	p.guide.begin(episode{act: actFreeze, replica: c.name, owner: c.id(), waiting: true})
	p.await(c.name)
	p.soon(func(ctx context.Context) {
		defer p.await("")
		if err := p.freezeMidRun(ctx, c); err != nil && ctx.Err() == nil {
			p.guide.learn(c.name, func(e *episode) {
				if e.waiting {
					*e = episode{}
				}
			})
			p.tell.note("%s is not frozen: %v", c.name, err)
		}
	})
	return c.name + " is frozen as soon as its next run has asked the bridges.", nil
}

func (p *player) await(replica string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.awaited = replica
}

// freezeMidRun freezes the leader of the story's job, which must be the one that is wanted, if one is.
func (p *player) freezeMidRun(ctx context.Context, wanted *child) error {
	c, l, err := p.freezeLeader(ctx, wanted)
	if err != nil {
		return err
	}
	p.mu.Lock()
	p.midRun[c] = l
	p.mu.Unlock()
	p.guide.begin(episode{act: actFreeze, replica: c.name, owner: c.id(), midRun: true, lease: storyJob, term: l})
	p.tell.note("%s is frozen in the middle of a run of %s: it has asked the bridges and not yet written", c.name, storyJob)
	p.tell.note("its lease, epoch %d, runs for another %v; until then nobody can take it", l.Epoch, l.left())
	return nil
}

// undo tells that what befell a replica is over.
func (p *player) undo(ctx context.Context, c *child, said string) error {
	var now time.Time
	if err := p.db.QueryRow(ctx, `SELECT clock_timestamp()`).Scan(&now); err != nil {
		return fmt.Errorf("read the database's clock: %w", err)
	}
	p.guide.learn(c.name, func(e *episode) { e.undone = now })
	p.tell.note("%s %s", c.name, said)
	return nil
}

// thaw wakes a frozen replica, and writes what it may have had under way.
func (p *player) thaw(ctx context.Context, c *child) error {
	if err := c.thaw(); err != nil {
		return err
	}
	if err := p.undo(ctx, c, "goes on where it stood still"); err != nil {
		return err
	}
	p.mu.Lock()
	old, ok := p.midRun[c]
	delete(p.midRun, c)
	p.mu.Unlock()
	if !ok {
		return nil
	}
	l, err := p.stage.lease(ctx, storyJob)
	if err != nil || l.Epoch == old.Epoch {
		return err // thawed in time: it still leads
	}
	p.tell.note("and a packet that it had under way arrives now, with epoch %d, while the lease is at %d", old.Epoch, l.Epoch)
	err = p.playPacket(ctx, old)
	p.guide.learn(c.name, func(e *episode) { e.packet, e.late = true, err })
	return err
}

func (p *player) playPacket(ctx context.Context, old leaseState) error {
	packet, err := newPacket(p.stage, old)
	if err != nil {
		return err
	}
	if err := packet.update(ctx, storyBridge); err != nil {
		return err
	}
	p.tell.note("late write refused: %s stays as the new leader wrote it (dev sent it, so that no run counts it)", storyBridge)
	return nil
}

func (p *player) cut(ctx context.Context, c *child) error {
	wire := p.replicas.wire(c.name)
	if wire == nil {
		return errors.New("its connections to a database of yours do not lead through dev, and cannot be cut")
	}
	wire.sever()
	return p.befall(ctx, c, actCut, "is cut off from the database")
}

func (p *player) reconnect(ctx context.Context, c *child) error {
	p.replicas.wire(c.name).mend()
	return p.undo(ctx, c, "reaches the database again")
}

func (p *player) kill(ctx context.Context, c *child) error {
	if err := c.signal(syscall.SIGKILL); err != nil {
		return err
	}
	<-c.gone
	if wire := p.replicas.wire(c.name); wire != nil {
		wire.mend() // it was the process that was cut off
	}
	p.mu.Lock()
	delete(p.midRun, c)
	p.mu.Unlock()
	return p.befall(ctx, c, actKill, "is killed")
}

// started tells that a replica runs again, or why it does not.
func (p *player) started(ctx context.Context, name string, err error) {
	if err != nil {
		if ctx.Err() == nil {
			p.tell.note("%v", err)
		}
		return
	}
	c := p.replicas.named(name)
	if err := p.undo(ctx, c, "is back, as a new process: "+c.id()); err != nil && ctx.Err() == nil {
		p.tell.note("%v", err)
	}
	p.guide.learn(name, func(e *episode) { e.back = true })
}
