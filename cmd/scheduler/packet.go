package main

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"

	"rota/internal/fence"
)

// A packet is what a former leader had under way: writes with its old token, from a writer whose
// context has not ended, since whatever is in the network or in a stopped process's memory knows of
// no end. The process's own watchdog usually comes first; the packet shows what holds if it does not.
type packet struct {
	stage *stage
	token fence.Token
	table fence.Table
	ended error
}

// errAccepted says that the fence let a late write through.
var errAccepted = errors.New("a late write was accepted")

// lateBridge is a row that nobody has written yet.
const lateBridge = "LP-late"

// latePing is a row of bridge_status as a late leader would write it.
type latePing struct {
	BridgeID string `db:"bridge_id"`
	Health   string `db:"health"`
	Reason   string `db:"reason"`
}

const lateReason = "written late"

func newPacket(s *stage, old leaseState) (*packet, error) {
	p := &packet{stage: s, token: fence.Token{Lease: storyJob, Owner: old.Owner, Epoch: old.Epoch}}
	job, err := findJob(storyJob)
	if err != nil {
		return nil, err
	}
	for _, t := range job.Protects {
		if t.Name == "bridge_status" {
			p.table = t
		}
	}
	return p, nil
}

// newWriter makes one that has met no refusal yet, and so asks the database.
func (p *packet) newWriter() *fence.Writer {
	return fence.NewWriter(context.Background(), func(cause error) { p.ended = cause }, p.stage.db, p.token, fence.Shard{}, p.table)
}

// update writes over a row that is there.
func (p *packet) update(ctx context.Context, bridge string) error {
	return p.refused(ctx, func(w *fence.Writer) error {
		return w.Upsert(ctx, p.table, latePing{bridge, "DOWN", lateReason})
	})
}

// insert writes a row that is not there.
func (p *packet) insert(ctx context.Context) error {
	return p.refused(ctx, func(w *fence.Writer) error {
		return w.Upsert(ctx, p.table, latePing{lateBridge, "DOWN", lateReason})
	})
}

// tx writes in a fenced transaction, by SQL that does not look at the epoch itself.
func (p *packet) tx(ctx context.Context) error {
	return p.refused(ctx, func(w *fence.Writer) error {
		return w.Tx(ctx, func(tx pgx.Tx) error {
			_, err := tx.Exec(ctx, `INSERT INTO bridge_status (bridge_id, health, reason, epoch) VALUES ($1, 'DOWN', $2, $3)`,
				lateBridge, lateReason, w.Epoch())
			return err
		})
	})
}

// articleSQL is the article's own statement, which knows nothing of our fence.
const articleSQL = `INSERT INTO bridge_status (bridge_id, health, checked_at, epoch)
	VALUES ($1, 'DOWN', now(), $2)
	ON CONFLICT (bridge_id) DO UPDATE
	   SET health     = EXCLUDED.health,
	       checked_at = EXCLUDED.checked_at,
	       epoch      = EXCLUDED.epoch
	 WHERE bridge_status.epoch <= EXCLUDED.epoch`

// byHand writes by the article's statement.
func (p *packet) byHand(ctx context.Context, bridge string) error {
	tag, err := p.stage.db.Exec(ctx, articleSQL, bridge, p.token.Epoch)
	if err != nil {
		return fmt.Errorf("write by hand: %w", err)
	}
	if tag.RowsAffected() != 0 {
		return fmt.Errorf("%w: %d rows by hand", errAccepted, tag.RowsAffected())
	}
	return nil
}

// refused makes the write, which must be refused, end the term, and leave no trace.
func (p *packet) refused(ctx context.Context, write func(*fence.Writer) error) error {
	ctx, cancel := context.WithTimeout(ctx, 5*time.Second)
	defer cancel()
	p.ended = nil
	switch err := write(p.newWriter()); {
	case err == nil:
		return errAccepted
	case !errors.Is(err, fence.ErrFenced):
		return fmt.Errorf("refused for another reason than the fence: %w", err)
	}
	if !errors.Is(p.ended, fence.ErrFenced) {
		return errors.New("the write was refused and its term was not ended")
	}
	return p.traces(ctx)
}

const tracesSQL = `SELECT count(*) FROM bridge_status WHERE reason = $1 OR bridge_id = $2`

// traces looks for what a late write would have left.
func (p *packet) traces(ctx context.Context) error {
	var n int
	if err := p.stage.db.QueryRow(ctx, tracesSQL, lateReason, lateBridge).Scan(&n); err != nil {
		return fmt.Errorf("look for traces of late writes: %w", err)
	}
	if n != 0 {
		return fmt.Errorf("%w: %d rows bear its trace", errAccepted, n)
	}
	return nil
}
