package fence_test

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"

	"rota/internal/fence"
)

// A company is callers of one writer that wait together while others' statements are under way.
type company struct {
	*leader
	db     *pgxpool.Pool
	leave  func()
	number func() int
	all    sync.WaitGroup

	mu   sync.Mutex
	errs []error
}

// gather has a leader whose callers wait, no longer than that, until leave.
func gather(t *testing.T, longest time.Duration) *company {
	t.Helper()
	c := &company{db: newDB(t)}
	c.leader = takeOver(t, c.db, "a")
	wantNoError(t, c.Upsert(within(t), bridgeStatus, status{"LP-0", "UP"}))
	c.number, c.leave = c.Occupy(bridgeStatus, status{}, longest)
	return c
}

// call has one more caller upsert the row, and returns once he waits.
func (c *company) call(t *testing.T, ctx context.Context, row status) {
	t.Helper()
	before := c.number()
	c.mu.Lock()
	i := len(c.errs)
	c.errs = append(c.errs, nil)
	c.mu.Unlock()
	c.all.Go(func() {
		err := c.Upsert(ctx, bridgeStatus, row)
		c.mu.Lock()
		defer c.mu.Unlock()
		c.errs[i] = err
	})
	eventually(t, "the caller waits", func() bool { return c.number() == before+1 })
}

const transactionsSQL = `SELECT count(DISTINCT xmin::text) FROM bridge_status WHERE bridge_id LIKE 'LP-_'`

// P3: rows of callers that came together are written in one transaction.
func TestCallersAtTheSameTimeShareAStatement(t *testing.T) {
	t.Parallel()
	c := gather(t, time.Hour)
	for i := range 5 {
		c.call(t, within(t), status{fmt.Sprint("LP-", i), "DOWN"})
	}
	c.leave()
	c.all.Wait()
	wantNoError(t, errors.Join(c.errs...))
	if n := value[int](t, c.db, transactionsSQL); n != 1 {
		t.Errorf("5 rows were written in %d transactions", n)
	}
	if n := value[int](t, c.db, "SELECT count(*) FROM bridge_status WHERE health = 'DOWN' AND epoch = $1", c.Epoch()); n != 5 {
		t.Errorf("%d of 5 rows were written", n)
	}
}

// One caller's bad row is his alone: the others' are written all the same.
func TestRowThatFailsFailsForItsCallerAlone(t *testing.T) {
	t.Parallel()
	c := gather(t, time.Hour)
	exec(t, c.db, "ALTER TABLE bridge_status ADD CHECK (health IN ('UP', 'DOWN'))")
	for i, health := range []string{"DOWN", "sideways", "DOWN"} {
		c.call(t, within(t), status{fmt.Sprint("LP-", i), health})
	}
	c.leave()
	c.all.Wait()
	if c.errs[0] != nil || !hasCode(c.errs[1], "23514") || c.errs[2] != nil {
		t.Errorf("errors: %v", c.errs)
	}
	if n := value[int](t, c.db, "SELECT count(*) FROM bridge_status WHERE health = 'DOWN'"); n != 2 {
		t.Errorf("%d of 2 rows were written", n)
	}
}

// Two callers may write one row at the same time, which one statement cannot.
func TestCallersMayWriteTheSameRow(t *testing.T) {
	t.Parallel()
	c := gather(t, time.Hour)
	for range 3 {
		c.call(t, within(t), status{"LP-0", "DOWN"})
	}
	c.leave()
	c.all.Wait()
	wantNoError(t, errors.Join(c.errs...))
}

// P3, P5: callers that wait together are refused together, and each refusal counts.
func TestCallersThatShareAStatementAreRefusedTogether(t *testing.T) {
	t.Parallel()
	c := gather(t, time.Hour)
	for i := range 3 {
		c.call(t, within(t), status{fmt.Sprint("LP-", i), "DOWN"})
	}
	takeOver(t, c.db, "b")
	c.leave()
	c.all.Wait()
	for _, err := range c.errs {
		wantFenced(t, err)
	}
	if n := value[int](t, c.db, "SELECT count(*) FROM bridge_status WHERE health = 'DOWN'"); n != 0 || c.Refused() != 3 || c.term.Err() == nil {
		t.Errorf("%d rows were written, %d refusals counted, the term ended: %v", n, c.Refused(), c.term.Err())
	}
}

// A caller that gives up before it is sent takes its rows back. One that gives up later does not know
// what becomes of them.
func TestCallerThatGivesUp(t *testing.T) {
	t.Parallel()
	c := gather(t, time.Hour)
	early, giveUpEarly := context.WithCancel(within(t))
	late, giveUpLate := context.WithCancel(within(t))
	c.call(t, early, status{"LP-1", "DOWN"})
	c.call(t, late, status{"LP-2", "DOWN"})
	c.call(t, within(t), status{"LP-3", "DOWN"})
	giveUpEarly()
	eventually(t, "one caller has given up", func() bool { return c.number() == 2 })

	holder, err := c.db.Begin(within(t))
	wantNoError(t, err)
	_, err = holder.Exec(within(t), "SELECT FROM lease_epochs FOR UPDATE")
	wantNoError(t, err)
	c.leave()
	eventually(t, "the statement waits", func() bool {
		return value[int](t, c.db, "SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() AND wait_event_type = 'Lock'") == 1
	})
	giveUpLate()
	eventually(t, "the second caller has given up", func() bool {
		c.mu.Lock()
		defer c.mu.Unlock()
		return c.errs[1] != nil
	})
	wantNoError(t, holder.Rollback(within(t)))
	c.all.Wait()
	if !errors.Is(c.errs[0], context.Canceled) || errors.Is(c.errs[0], fence.ErrUnknown) {
		t.Errorf("before it was sent: %v", c.errs[0])
	}
	if !errors.Is(c.errs[1], context.Canceled) || !errors.Is(c.errs[1], fence.ErrUnknown) {
		t.Errorf("while it was under way: %v", c.errs[1])
	}
	wantNoError(t, c.errs[2])
	if n := value[int](t, c.db, "SELECT count(*) FROM bridge_status WHERE bridge_id = 'LP-1'"); n != 0 {
		t.Error("the row of the first was written")
	}
}

// P5: when the last caller has given up, nothing is under way any more.
func TestStatementEndsWithItsLastCaller(t *testing.T) {
	t.Parallel()
	c := gather(t, time.Hour)
	exec(t, c.db, `CREATE FUNCTION dawdle() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN PERFORM pg_sleep(600); RETURN NEW; END $$;
		CREATE TRIGGER dawdle BEFORE INSERT ON bridge_status FOR EACH ROW EXECUTE FUNCTION dawdle()`)
	ctx, giveUp := context.WithCancel(within(t))
	c.call(t, ctx, status{"LP-1", "DOWN"})
	c.call(t, ctx, status{"LP-2", "DOWN"})
	c.leave()
	dawdles := func() int {
		return value[int](t, c.db, "SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() AND wait_event = 'PgSleep'")
	}
	eventually(t, "the statement is under way", func() bool { return dawdles() == 1 })
	giveUp()
	eventually(t, "it has ended", func() bool { return dawdles() == 0 })
	c.all.Wait()
	for _, err := range c.errs {
		if !errors.Is(err, context.Canceled) || !errors.Is(err, fence.ErrUnknown) {
			t.Errorf("error: %v", err)
		}
	}
}

// P8: statements under way that have met held rows hold others up for a moment only.
func TestCallersDoNotWaitForLong(t *testing.T) {
	t.Parallel()
	c := gather(t, 20*time.Millisecond) // nobody leaves
	wantNoError(t, c.Upsert(within(t), bridgeStatus, status{"LP-1", "DOWN"}))
}
