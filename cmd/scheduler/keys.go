package main

import (
	"bufio"
	"context"
	"errors"
	"io"
	"strings"
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
type keys struct{ *player }

// run obeys until q or the end of ctx. The end of stdin is no command.
func (k *keys) run(ctx context.Context, stdin io.Reader) {
	ctx, stop := context.WithCancel(ctx)
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
		return k.thawFrozen(ctx)
	case "k":
		return k.killLeader(ctx)
	}
	k.tell.say("%s", keysHelp)
	return nil
}

func (k *keys) freeze(ctx context.Context) error {
	if c := k.replicas.frozen(); c != nil {
		return errors.New(c.name + " is frozen already; t thaws it")
	}
	return k.freezeMidRun(ctx, nil)
}

func (l leaseState) left() time.Duration { return l.ExpiresAt.Sub(l.Now).Round(100 * time.Millisecond) }

func (k *keys) thawFrozen(ctx context.Context) error {
	c := k.replicas.frozen()
	if c == nil {
		return errors.New("nothing is frozen; f freezes the leader")
	}
	return k.thaw(ctx, c)
}

// killLeader kills the leader, and has it started anew later on.
func (k *keys) killLeader(ctx context.Context) error {
	c, _, err := k.leader(ctx, storyJob)
	if err != nil {
		return err
	}
	if err := k.kill(ctx, c); err != nil {
		return err
	}
	k.soon(func(ctx context.Context) { k.started(ctx, c.name, k.replicas.restart(ctx, c, restartPause)) })
	return nil
}
