package scheduler

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"rota/internal/fence"
	"rota/internal/lease"
	"rota/internal/registry"
)

// job is one that ticks every five seconds.
func job(name string, f func(ctx context.Context, r *registry.Run) error) registry.Job {
	return registry.Job{Name: name, Schedule: registry.Every(5 * time.Second), Run: f}
}

func idle(context.Context, *registry.Run) error { return nil }

// takes is a run that takes so long, unless its context ends.
func takes(d time.Duration) func(context.Context, *registry.Run) error {
	return func(ctx context.Context, _ *registry.Run) error { return pause(ctx, d) }
}

func TestJobRunsAtEachOfItsTicks(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var runs notebook[string]
		j := job("job", func(_ context.Context, r *registry.Run) error {
			runs.add(fmt.Sprint(r.Job, " ", r.Tick.Sub(bubble), " ", r.Attempt, " ", r.Args))
			return nil
		})
		j.Args = struct{ Limit int }{7}
		b := newBench(t, j)
		time.Sleep(2 * time.Second)
		term := newFakeTerm()
		b.leads(term, "job", 1)
		after(14 * time.Second)
		if want := "job 5s 1 {7}, job 10s 1 {7}, job 15s 1 {7}"; strings.Join(runs.read(), ", ") != want {
			t.Errorf("runs are %v, want %s", runs.read(), want)
		}
		if h := b.store.history("job"); h != "+5s success, +10s success, +15s success" {
			t.Errorf("the history is %s", h)
		}
		if n := b.sample("rota_runs_total", "job_name=job", "outcome=success"); n != 3 {
			t.Errorf("%v successes counted", n)
		}
		if n := b.sample("rota_tick_delay_seconds"); n != 3 {
			t.Errorf("%v delays observed", n)
		}
		if n := b.sample("rota_run_seconds"); n != 3 {
			t.Errorf("%v durations observed", n)
		}
		if n := b.sample("rota_job_info", "job_name=job", "schedule=every 5s", "shards=1"); n != 1 {
			t.Errorf("the job's info is %v", n)
		}
		b.closes(term)
	})
}

func TestSeriesOfTheAlarmsAreThereFromTheStart(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t, job("job", idle))
		for _, o := range outcomes {
			if n := b.sample("rota_runs_total", "job_name=job", "outcome="+string(o)); n != 0 {
				t.Errorf("%s is %v", o, n)
			}
		}
		for _, name := range []string{"rota_runs_running", "rota_runs_abandoned", "rota_fenced_writes_total"} {
			if n := b.sample(name, "job_name=job"); n != 0 {
				t.Errorf("%s is %v", name, n)
			}
		}
		b.closes()
	})
}

// P4: the epoch is raised before the term is ready, and before the first run.
func TestEpochIsRaisedBeforeAnyWork(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var order notebook[string]
		j := job("job", func(context.Context, *registry.Run) error {
			order.add("run")
			return nil
		})
		j.Protects = []fence.Table{{Name: "rows", Key: []string{"id"}}}
		b := newBench(t, j)
		raise := make(chan struct{})
		b.store.set(func() {
			b.store.fault = func(call string) error {
				if call != "raise" {
					return nil
				}
				select {
				case <-raise:
					order.add("raise")
					return nil
				case <-time.After(raiseSlice):
					return context.DeadlineExceeded
				}
			}
		})
		term := newFakeTerm()
		term.ready = func() { order.add("ready") }
		b.leads(term, "job", 3)
		after(7 * time.Second) // a tick has passed
		if early := order.read(); len(early) != 0 {
			t.Errorf("before the raise: %v", early)
		}
		close(raise)
		after(4 * time.Second)
		if got := strings.Join(order.read(), " "); got != "raise ready run run" {
			t.Errorf("the order is %s", got)
		}
		b.closes(term)
	})
}

// P2: a lease row that was reset makes terms that are behind the rows they protect, or level with
// them: one that another replica has met, and given up, may be followed by one of a former epoch.
// They do no work.
func TestTermBehindItsRowsEndsAndIsHeardOf(t *testing.T) {
	t.Parallel()
	for _, epoch := range []int64{3, 41} {
		synctest.Test(t, func(t *testing.T) {
			j := job("job", func(context.Context, *registry.Run) error {
				t.Error("it ran")
				return nil
			})
			j.Protects = []fence.Table{{Name: "rows", Key: []string{"id"}}}
			b := newBench(t, j)
			b.store.raised = 41
			term := newFakeTerm()
			<-b.leads(term, "job", epoch)
			if !errors.Is(term.cause(), ErrReset) || b.elector.seen["job"] != 41 {
				t.Errorf("the term ended by %v, seen %v", term.cause(), b.elector.seen)
			}
			b.closes()
		})
	}
}

// P4: where the epoch cannot be raised there is no work, however long that lasts, and few calls.
func TestTermWaitsUntilItsEpochIsRaised(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		j := job("job", idle)
		j.Protects = []fence.Table{{Name: "rows", Key: []string{"id"}}}
		b := newBench(t, j)
		b.store.set(func() {
			b.store.fault = func(call string) error {
				if call == "raise" {
					return errors.New("no such table")
				}
				return nil
			}
		})
		term := newFakeTerm()
		returned := b.leads(term, "job", 1)
		after(5 * time.Minute)
		if n := b.store.count("raise"); closed(returned) || b.store.count("claim") != 0 || n < 30 || n > 50 {
			t.Errorf("returned %v, %d claims, %d raises", closed(returned), b.store.count("claim"), n)
		}
		b.store.set(func() { b.store.fault = func(string) error { return nil } })
		after(longestRaiseRest + 5*time.Second)
		if h := b.store.history("job"); !strings.Contains(h, "success") {
			t.Errorf("the history is %s", h)
		}
		b.closes(term)
	})
}

// P8: raises that wait for held rows take turns with those that need not wait.
func TestHeldRowsHoldUpNoOtherJobsRaise(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var jobs []registry.Job
		for _, name := range []string{"a", "b", "c", "free"} {
			j := job(name, idle)
			j.Protects = []fence.Table{{Name: name, Key: []string{"id"}}}
			jobs = append(jobs, j)
		}
		b := newBench(t, jobs...)
		b.Scheduler.store = &heldRows{b.store}
		var terms []*fakeTerm
		for _, name := range []string{"a", "b", "c"} {
			terms = append(terms, newFakeTerm())
			b.leads(terms[len(terms)-1], name, 1)
		}
		synctest.Wait()
		free := newFakeTerm()
		ready := make(chan struct{})
		free.ready = func() { close(ready) }
		b.leads(free, "free", 1)
		after(3 * raiseSlice)
		if !closed(ready) {
			t.Error("a job whose rows nobody holds is not ready")
		}
		b.closes(append(terms, free)...)
	})
}

// heldRows are those of every table but free.
type heldRows struct{ *fakeStore }

func (s *heldRows) raise(ctx context.Context, t fence.Token, shard fence.Shard, tables []fence.Table) (int64, error) {
	if tables[0].Name != "free" {
		<-ctx.Done()
		return 0, ctx.Err()
	}
	return s.fakeStore.raise(ctx, t, shard, nil)
}

// P7: ticks that fell due while nobody led make one run, for the newest of them; each is on record,
// the oldest of very many in one row.
func TestMissedTicksMakeOneRunForTheNewest(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t, job("short", idle), job("long", idle))
		b.store.last["short"] = bubble.Add(-17 * time.Second)
		b.store.last["long"] = bubble.Add(-300 * 24 * time.Hour)
		time.Sleep(2 * time.Second)
		short, long := newFakeTerm(), newFakeTerm()
		b.leads(short, "short", 1)
		b.leads(long, "long", 1)
		after(time.Second)
		if h := b.store.history("short"); h != "+-15s missed, +-10s missed, +-5s missed, +0s success" {
			t.Errorf("the history is %s", h)
		}
		rows := strings.Split(b.store.history("long"), ", ")
		if len(rows) != 101 || rows[0] != "+-8m20s missed x5183900" || rows[100] != "+0s success" {
			t.Errorf("of 300 days there are %d rows, from %q to %q", len(rows), rows[0], rows[len(rows)-1])
		}
		if n := b.sample("rota_runs_total", "job_name=long", "outcome=missed"); n != 300*24*720-1 {
			t.Errorf("%v missed ticks counted", n)
		}
		b.closes(short, long)
	})
}

// A job never overlaps itself.
func TestTickThatIsDueDuringARunIsSkippedAndRecorded(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t, job("job", takes(12*time.Second)))
		term := newFakeTerm()
		b.leads(term, "job", 1)
		after(18 * time.Second)
		if h := b.store.history("job"); h != "+5s success, +10s skipped, +15s skipped" {
			t.Errorf("the history is %s", h)
		}
		if n := b.sample("rota_runs_total", "job_name=job", "outcome=skipped"); n != 2 {
			t.Errorf("%v skipped ticks counted", n)
		}
		after(3 * time.Second)
		if h := b.store.history("job"); !strings.HasSuffix(h, "+20s open") {
			t.Errorf("the history is %s", h)
		}
		b.closes(term)
	})
}

// A replica whose idea of the database's clock is ahead asks too early, and again in time.
func TestTickThatIsNotDueByTheDatabaseIsClaimedWhenItIs(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t, job("job", idle))
		b.elector.off.Store(int64(3 * time.Second))
		term := newFakeTerm()
		b.leads(term, "job", 1)
		after(4 * time.Second)
		if h := b.store.history("job"); h != "" {
			t.Errorf("after 4 s the history is %s", h)
		}
		after(1500 * time.Millisecond)
		if h := b.store.history("job"); h != "+5s success" {
			t.Errorf("after 5.5 s the history is %s", h)
		}
		if n := b.store.count("claim"); n > 3 {
			t.Errorf("it took %d claims", n)
		}
		b.closes(term)
	})
}

// P8: a lease row that somebody holds delays its own tick, which is claimed soon after, and no other.
func TestLockedTickIsClaimedSoonAndDelaysNoOther(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t, job("held", idle), job("free", idle))
		held, free := newFakeTerm(), newFakeTerm()
		b.leads(held, "held", 1)
		b.leads(free, "free", 1)
		synctest.Wait()
		b.store.set(func() { b.store.locked["held"] = true })
		after(7 * time.Second)
		if h := b.store.history("free"); h != "+5s success" {
			t.Errorf("the other's history is %s", h)
		}
		b.store.set(func() { b.store.locked["held"] = false })
		after(500 * time.Millisecond)
		if h := b.store.history("held"); h != "+5s success" {
			t.Errorf("its own history is %s", h)
		}
		b.closes(held, free)
	})
}

// A claim that is fenced ends the term.
func TestFencedClaimEndsTheTerm(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t, job("job", idle))
		term := newFakeTerm()
		returned := b.leads(term, "job", 1)
		synctest.Wait()
		b.store.set(func() { b.store.fenced["job"] = true })
		<-returned
		if !errors.Is(term.cause(), fence.ErrFenced) || time.Since(bubble) != 5*time.Second {
			t.Errorf("after %v the term ended by %v", time.Since(bubble), term.cause())
		}
		b.closes()
	})
}

// P7: a claim whose answer is lost is made again, and its tick is run once.
func TestClaimWhoseAnswerIsLostIsRunOnce(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t, job("job", idle))
		term := newFakeTerm()
		b.leads(term, "job", 1)
		synctest.Wait()
		b.store.set(func() { b.store.answers["claim"] = true })
		after(12 * time.Second) // past the next tick too, which is then due during the late run
		b.store.set(func() { b.store.answers["claim"] = false })
		after(time.Second)
		if h := b.store.history("job"); h != "+5s success, +10s success" && h != "+5s success, +10s skipped" {
			t.Errorf("the history is %s", h)
		}
		b.closes(term)
	})
}

func TestOutcomeIsReadFromTheCauseFirstAndTheErrorSecond(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		run   func(ctx context.Context, r *registry.Run) error
		end   error // of the term, after a second
		want  outcome
		fault string
	}{
		"success": {idle, nil, success, ""},
		"failed":  {func(context.Context, *registry.Run) error { return errors.New("no route to LP-3") }, nil, failed, "no route to LP-3"},
		"bytes":   {func(context.Context, *registry.Run) error { return errors.New("a\x00b\xffc") }, nil, failed, "a\uFFFDb\uFFFDc"},
		"panic": {func(context.Context, *registry.Run) error {
			panic("no such bridge")
		}, nil, panicked, "panic: no such bridge\ngoroutine"},
		"panic nil": {func(context.Context, *registry.Run) error { panic(nil) }, nil, panicked, "panic called with nil"},
		"goexit": {func(context.Context, *registry.Run) error {
			runtime.Goexit()
			return nil
		}, nil, panicked, "runtime.Goexit"},
		"panic of an error": {func(context.Context, *registry.Run) error { return badError{} }, nil, panicked, "panic: no text"},
		"refused to the writer of another term": {func(context.Context, *registry.Run) error {
			return fmt.Errorf("write: %w", fence.ErrFenced)
		}, nil, failed, "write: fenced"},
		"cancelled what it called by itself": {func(context.Context, *registry.Run) error {
			return fmt.Errorf("ping LP-3: %w", context.Canceled)
		}, nil, failed, "ping LP-3: context canceled"},
		"timed out": {takes(time.Minute), nil, timedOut, "timeout (10s)"},
		"timed out, and says it is well": {func(ctx context.Context, _ *registry.Run) error {
			<-ctx.Done()
			return nil
		}, nil, timedOut, "timeout (10s)"},
		"term fenced": {takes(time.Minute), fmt.Errorf("%w: LP-3", fence.ErrFenced), refused, "LP-3"},
		"term lost":   {takes(time.Minute), lease.ErrLost, lost, lease.ErrLost.Error()},
		"term's deadline, and fails by it": {func(ctx context.Context, _ *registry.Run) error {
			<-ctx.Done()
			return fmt.Errorf("ping: %w", context.Cause(ctx))
		}, lease.ErrDeadline, lost, lease.ErrDeadline.Error()},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				j := job("job", c.run)
				j.Timeout = 10 * time.Second
				b := newBench(t, j)
				term := newFakeTerm()
				returned := b.leads(term, "job", 1)
				after(6 * time.Second)
				if c.end != nil {
					term.End(c.end)
				}
				after(10 * time.Second)
				row := b.store.first()
				if row.outcome != c.want || !strings.Contains(row.fault, c.fault) || c.fault == "" && row.fault != "" {
					t.Errorf("it is %s: %q, want %s: %q", row.outcome, row.fault, c.want, c.fault)
				}
				if n := b.sample("rota_runs_total", "job_name=job", "outcome="+string(c.want)); n == 0 {
					t.Errorf("no run with outcome %s was counted", c.want)
				}
				if c.end == nil && closed(returned) {
					t.Error("the lead returned although its term goes on")
				}
				term.End(lease.ErrLost)
				b.closes()
			})
		})
	}
}

// P3: a process that slept is told by its own watchdog that its term is over; what it writes after
// that is refused, and on record as such.
func TestLateWriteOfASleeperIsRecordedAsFenced(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		rows := fence.Table{Name: "rows", Key: []string{"id"}}
		j := job("job", func(ctx context.Context, r *registry.Run) error {
			<-ctx.Done()
			return r.Fence.Upsert(context.WithoutCancel(ctx), rows, struct {
				ID int `db:"id"`
			}{1})
		})
		j.Protects = []fence.Table{rows}
		b := newBench(t, j)
		term := newFakeTerm()
		returned := b.leads(term, "job", 1)
		after(6 * time.Second)
		term.End(lease.ErrDeadline)
		<-returned
		b.closes()
		if row := b.store.first(); row.outcome != refused || row.refused != 1 {
			t.Errorf("the run is %s with %d writes refused", row.outcome, row.refused)
		}
		if n := b.sample("rota_fenced_writes_total", "job_name=job"); n != 1 {
			t.Errorf("%v late writes are counted", n)
		}
	})
}

// badError panics when it is read.
type badError struct{}

func (badError) Error() string { panic("no text") }

func TestContinuousJobIsStartedAgainWithGrowingRests(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var book notebook[time.Time]
		j := registry.Job{Name: "job", Schedule: registry.Continuous, Run: func(ctx context.Context, _ *registry.Run) error {
			book.add(time.Now())
			if len(book.read()) < 4 {
				return errors.New("the stream ended")
			}
			<-ctx.Done()
			return context.Cause(ctx)
		}}
		b := newBench(t, j)
		term := newFakeTerm()
		returned := b.leads(term, "job", 1)
		synctest.Wait()
		starts := book.read()
		if len(starts) != 1 || !starts[0].Equal(bubble) {
			t.Errorf("at first it was started at %v", starts)
		}
		after(time.Minute)
		starts = book.read()
		if len(starts) != 4 {
			t.Errorf("it was started %d times", len(starts))
		}
		for n, least := range []time.Duration{750 * time.Millisecond, 1500 * time.Millisecond, 3 * time.Second} {
			if n+1 >= len(starts) {
				break
			}
			if rest := starts[n+1].Sub(starts[n]); rest < least || rest > least*4/3 {
				t.Errorf("rest %d was %v", n, rest)
			}
		}
		term.End(lease.ErrLost)
		<-returned
		b.closes()
		if h := b.store.history("job"); !strings.HasPrefix(h, "+0s failed, ") || !strings.HasSuffix(h, " lost") {
			t.Errorf("the history is %s", h)
		}
	})
}

func TestJobOnDemandIsLedAndNeverTicks(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t, registry.Job{Name: "job", Schedule: registry.OnDemand, Run: idle})
		term := newFakeTerm()
		ready := make(chan struct{})
		term.ready = func() { close(ready) }
		returned := b.leads(term, "job", 1)
		after(24 * time.Hour)
		if !closed(ready) || closed(returned) || b.store.count("claim") != 0 {
			t.Errorf("ready %v, returned %v, %d claims", closed(ready), closed(returned), b.store.count("claim"))
		}
		b.closes(term)
	})
}
