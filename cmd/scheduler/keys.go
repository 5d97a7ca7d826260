package main

import (
	"bufio"
	"context"
	"errors"
	"io"
	"strings"
	"sync"
	"syscall"
	"time"
)

// storyJob is the job that the letters act on.
const storyJob = "bridge_health"

// restartPause is how long a killed replica stays away: longer than its lease, so that the takeover
// comes first.
const restartPause = devLease + 4*time.Second

const keysHelp = `
  A letter and Enter, about the leader of ` + storyJob + `:
    f  freeze it (SIGSTOP), in the middle of a run
    t  thaw it
    k  kill it (SIGKILL); it starts anew after 10 s
    q  quit
`

// keys takes one-letter commands.
type keys struct {
	*stage
	later  sync.WaitGroup
	frozen *frozenTerm
}

// A frozenTerm is a term whose process was frozen.
type frozenTerm struct {
	replica *child
	lease   leaseState
}

func newKeys(s *stage) *keys { return &keys{stage: s} }

// run obeys until q or the end of ctx. The end of stdin is no command.
func (k *keys) run(ctx context.Context, stdin io.Reader) {
	ctx, stop := context.WithCancel(ctx)
	defer k.later.Wait()
	defer stop()
	k.tell.say("%s", keysHelp)
	letters := make(chan string)
	// It reads a terminal, which cannot be called off: it ends with the process.
	go func() {
		lines := bufio.NewScanner(stdin)
		for lines.Scan() {
			select {
			case letters <- strings.ToLower(strings.TrimSpace(lines.Text())):
			case <-ctx.Done():
				return
			}
		}
	}()
	for {
		select {
		case <-ctx.Done():
			return
		case letter := <-letters:
			if letter == "q" {
				return
			}
			if err := k.obey(ctx, letter); err != nil {
				k.tell.note("%v", err)
			}
		}
	}
}

func (k *keys) obey(ctx context.Context, letter string) error {
	switch letter {
	case "":
		return nil
	case "f":
		return k.freeze(ctx)
	case "t":
		return k.thaw(ctx)
	case "k":
		return k.kill(ctx)
	}
	k.tell.say("%s", keysHelp)
	return nil
}

func (k *keys) freeze(ctx context.Context) error {
	if c := k.replicas.frozen(); c != nil {
		return errors.New(c.name + " is frozen already; t thaws it")
	}
	c, l, err := k.freezeLeader(ctx)
	if err != nil {
		return err
	}
	k.frozen = &frozenTerm{c, l}
	k.tell.note("%s is frozen in the middle of a run of %s: it has asked the bridges and not yet written", c.name, storyJob)
	k.tell.note("its lease, epoch %d, runs for another %v; until then nobody can take it", l.Epoch, l.left())
	return nil
}

func (l leaseState) left() time.Duration { return l.ExpiresAt.Sub(l.Now).Round(100 * time.Millisecond) }

// thaw wakes the frozen replica, and writes what it may have had under way.
func (k *keys) thaw(ctx context.Context) error {
	c := k.replicas.frozen()
	if c == nil {
		return errors.New("nothing is frozen; f freezes the leader")
	}
	if err := c.thaw(); err != nil {
		return err
	}
	k.tell.note("%s goes on where it stood still", c.name)
	if k.frozen == nil {
		return nil
	}
	l, err := k.lease(ctx, storyJob)
	if err != nil || l.Epoch == k.frozen.lease.Epoch {
		return err // thawed in time: it still leads
	}
	k.tell.note("and a packet that it had under way arrives now, with epoch %d, while the lease is at %d", k.frozen.lease.Epoch, l.Epoch)
	return k.playPacket(ctx, k.frozen.lease)
}

func (k *keys) playPacket(ctx context.Context, old leaseState) error {
	p, err := newPacket(k.stage, old)
	if err != nil {
		return err
	}
	if err := p.update(ctx, storyBridge); err != nil {
		return err
	}
	k.tell.note("late write refused: %s stays as the new leader wrote it", storyBridge)
	return nil
}

// kill kills the leader, and has it started anew later on.
func (k *keys) kill(ctx context.Context) error {
	c, l, err := k.leader(ctx, storyJob)
	if err != nil {
		return err
	}
	if err := c.signal(syscall.SIGKILL); err != nil {
		return err
	}
	k.tell.note("%s is killed; its lease of %s, epoch %d, runs for another %v; until then nobody can take it", c.name, storyJob, l.Epoch, l.left())
	k.later.Go(func() {
		if err := k.replicas.restart(ctx, c, restartPause); err != nil {
			if ctx.Err() == nil {
				k.tell.note("%v", err)
			}
			return
		}
		k.tell.note("%s is back, as a new process: %s", c.name, k.replicas.named(c.name).id())
	})
	return nil
}
