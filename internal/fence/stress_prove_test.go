//go:build prove

package fence_test

import (
	"context"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"
)

// P3, at length.
func TestProveNoWriteIsAcceptedAfterATakeover(t *testing.T) { survives(t, 30*time.Second) }

// P4, P8: a late Tx of a paused former leader that holds row locks.
func TestProveLateTransactionDelaysRaiseUnderASecond(t *testing.T) {
	for _, name := range []string{"rota a", "another name"} {
		for what, sql := range held {
			took := delayOfRaise(t, name, sql)
			t.Logf("connections named %q hold %s: the raise took %v", name, what, took.Round(time.Millisecond))
			if took >= time.Second {
				t.Errorf("connections named %q hold %s: the raise took %v, want less than 1 s", name, what, took)
			}
		}
	}
}

// P8: fenced writes on 32 connections do not starve the renewals of their own job. The bar is a p99
// of 50 ms; five times that is asserted, since machines differ.
func TestProveFencedWritesDoNotStarveRenewals(t *testing.T) {
	const (
		connections = 32
		bar         = 5 * 50 * time.Millisecond
	)
	db := newDB(t)
	lease1 := takeOver(t, db, "a")
	writes := poolOn(t, db.Config().ConnString(), nil)
	ctx, cancel := context.WithTimeout(context.Background(), 20*time.Second)
	defer cancel()
	var written atomic.Int64
	var running sync.WaitGroup
	for range connections {
		bridge := "LP-" + unique()
		running.Go(func() {
			w := lease1.again(t, writes)
			for ctx.Err() == nil {
				if err := w.Upsert(ctx, bridgeStatus, status{bridge, "UP"}); err != nil {
					if ctx.Err() == nil {
						t.Errorf("a fenced write: %v", err)
					}
					return
				}
				written.Add(1)
			}
		})
	}
	var took []time.Duration
	for ctx.Err() == nil {
		began := time.Now()
		tag, err := db.Exec(ctx, renewSQL, lease)
		if err != nil {
			if ctx.Err() == nil {
				t.Errorf("renew: %v", err)
			}
			break
		}
		took = append(took, time.Since(began))
		if tag.RowsAffected() != 1 {
			t.Error("a renewal found the lease locked")
		}
	}
	running.Wait()
	slices.Sort(took)
	p50, p99, worst := took[len(took)/2], took[len(took)*99/100], took[len(took)-1]
	t.Logf("%d fenced writes/s on %d connections; %d renewals: p50 %v, p99 %v, max %v",
		written.Load()/20, connections, len(took), p50, p99, worst)
	if p99 > bar {
		t.Errorf("the renewals' p99 is %v, want at most %v", p99, bar)
	}
	if epoch := value[int64](t, db, `SELECT epoch FROM leadership`); epoch != lease1.token.Epoch {
		t.Errorf("the epoch is %d, want %d", epoch, lease1.token.Epoch)
	}
}
