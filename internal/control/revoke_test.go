package control

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/jackc/pgx/v5/pgconn"
)

// A leaseRow is a lease as a test finds it.
type leaseRow struct {
	Owner string
	Epoch int64
	Held  bool
}

func (o *office) lease(name string) (l leaseRow) {
	o.t.Helper()
	err := o.db.QueryRow(o.t.Context(), `SELECT owner, epoch, expires_at > clock_timestamp() FROM leadership WHERE job_name = $1`, name).
		Scan(&l.Owner, &l.Epoch, &l.Held)
	if err != nil {
		o.t.Fatal(err)
	}
	return l
}

func (o *office) endReason(name string, epoch int64) string {
	o.t.Helper()
	return one[string](o, `SELECT coalesce((SELECT coalesce(end_reason, 'it lasts') FROM terms WHERE job_name = $1 AND epoch = $2), 'none')`, name, epoch)
}

// refused reports whether the fence's guard refuses the term.
func (o *office) refused(name, owner string, epoch int64) bool {
	o.t.Helper()
	_, err := o.db.Exec(o.t.Context(), `SELECT rota_guard($1, $2, $3)`, name, owner, epoch)
	var pg *pgconn.PgError
	if err != nil && (!errors.As(err, &pg) || pg.Code != "RF001") {
		o.t.Fatal(err)
	}
	return err != nil
}

// P2, P3: a revoked term writes nothing more, and the next one is above the epoch that it left.
func TestRevokeEndsATermAndRaisesTheEpoch(t *testing.T) {
	t.Parallel()
	o := newOffice(t)
	o.led("prices", "a/1", 7)
	if o.refused("prices", "a/1", 7) {
		t.Fatal("the guard refuses the term that leads")
	}
	got := must[Revoked](t)(o.Revoke(t.Context(), order("it hangs"), "prices", 0))
	if diff := cmp.Diff(Revoked{Job: "prices", Lease: "prices", Owner: "a/1", Epoch: 7, NewEpoch: 8}, got); diff != "" {
		t.Error(diff)
	}
	if diff := cmp.Diff(leaseRow{"revoked by alice", 8, false}, o.lease("prices")); diff != "" {
		t.Error(diff)
	}
	if !o.refused("prices", "a/1", 7) {
		t.Error("the guard lets the revoked term write")
	}
	for epoch, want := range map[int64]string{7: "revoked", 8: "revoked", 9: "none"} {
		if reason := o.endReason("prices", epoch); reason != want {
			t.Errorf("the term under epoch %d ended: %s, want %s", epoch, reason, want)
		}
	}
	line := written{Actor: "alice", Via: CLI, Action: "revoke", Job: "prices", Lease: "prices", Replica: "a/1", Reason: "it hangs"}
	first, second := line, line
	first.Detail = map[string]any{"owner": "a/1", "epoch": 7.0}
	second.Detail = map[string]any{"owner": "a/1", "epoch": 7.0, "new_epoch": 8.0}
	if diff := cmp.Diff([]written{first, second}, o.audit()); diff != "" {
		t.Error(diff)
	}
	_, err := o.Revoke(t.Context(), order("again"), "prices", 0)
	wantRefusal(t, err, ErrRefused, `nobody leads "prices": it was revoked by alice, and the next term will be above epoch 8`)
}

// P2: after a restore, the next term is above what is known from elsewhere, and above the history.
func TestRevokeLiftsTheEpochAboveWhatIsKnown(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		given func(*office)
		above int64
		want  Revoked
	}{
		"a led lease":       {func(o *office) { o.led("prices", "a/1", 7) }, 100, Revoked{Owner: "a/1", Epoch: 7, NewEpoch: 101}},
		"an epoch below it": {func(o *office) { o.led("prices", "a/1", 7) }, 3, Revoked{Owner: "a/1", Epoch: 7, NewEpoch: 8}},
		"a free lease": {func(o *office) {
			o.led("prices", "a/1", 7)
			o.exec(`UPDATE leadership SET expires_at = now()`)
		}, 100, Revoked{Epoch: 7, NewEpoch: 101}},
		"a lease that was never led": {func(o *office) {
			o.exec(`INSERT INTO leadership VALUES ('prices', '', now(), 0)`)
		}, 100, Revoked{Epoch: 0, NewEpoch: 101}},
		"a row that was restored": {func(o *office) {
			o.led("prices", "a/1", 50)
			o.exec(`UPDATE leadership SET epoch = 7, owner = 'b/1'`)
		}, 0, Revoked{Owner: "b/1", Epoch: 7, NewEpoch: 51}},
		"the highest epoch that may be asked for": {func(o *office) { o.led("prices", "a/1", 7) }, highestAbove, Revoked{Owner: "a/1", Epoch: 7, NewEpoch: highestAbove + 1}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			o := newOffice(t)
			c.given(o)
			c.want.Job, c.want.Lease = "prices", "prices"
			if diff := cmp.Diff(c.want, must[Revoked](t)(o.Revoke(t.Context(), order("restored"), "prices", c.above))); diff != "" {
				t.Error(diff)
			}
			if l := o.lease("prices"); l.Epoch != c.want.NewEpoch || l.Held {
				t.Errorf("%+v", l)
			}
		})
	}
}

func TestRevokeRefusesWhatItCannotDo(t *testing.T) {
	t.Parallel()
	o := newOffice(t)
	o.led("prices", "a/1", 7)
	o.led("absurd", "a/1", 1<<63-1)
	o.led("old", "a/1", absurdEpoch-1)
	o.exec(`UPDATE leadership SET epoch = 1, owner = 'b/1' WHERE job_name = 'old'`)
	o.led("free", "a/1", 7)
	o.exec(`UPDATE leadership SET expires_at = now() WHERE job_name = 'free'`)
	o.exec(`INSERT INTO leadership (job_name, owner, expires_at, epoch) VALUES ('never', '', now(), 0)`)
	for _, c := range []struct {
		lease string
		above int64
		kind  error
		words string
	}{
		{"nothing", 0, ErrNotFound, "there is no lease"},
		{"plain", 3, ErrRefused, `nobody has led "plain" yet`},
		{"never", 0, ErrRefused, `nobody has led "never" yet`},
		{"prices", -1, ErrInvalid, "above -1"},
		{"prices", 1<<63 - 1, ErrInvalid, "above 9223372036854775807: it must be an epoch, from 0 to 2305843009213693952"},
		{"prices", highestAbove + 1, ErrInvalid, "above"},
		{"absurd", 0, ErrRefused, "is 9223372036854775807, too near the end of what a bigint holds"},
		{"old", 0, ErrRefused, "too near the end"},
		{"free", 0, ErrRefused, "there is no term to end"},
		{"free", 7, ErrRefused, "the next term is above 7 already"},
		{"free", 3, ErrRefused, "the next term is above 3 already"},
	} {
		_, err := o.Revoke(t.Context(), order("x"), c.lease, c.above)
		wantRefusal(t, err, c.kind, c.words)
	}
	if n := len(o.audit()); n != 0 {
		t.Errorf("%d lines of the audit", n)
	}
	if n := one[int](o, `SELECT count(*) FROM leadership WHERE expires_at > now()`); n != 3 {
		t.Errorf("%d leases are held, want 3", n)
	}
}

// P3: the first commit waits for no fenced write, and refuses the next one; the second waits.
func TestRevokeEndsATermUnderItsFencedWrites(t *testing.T) {
	t.Parallel()
	o := newOffice(t)
	o.led("prices", "a/1", 7)
	letGo := o.hold(`SELECT rota_guard('prices', 'a/1', 7)`)
	defer letGo()
	answer := make(chan Revoked, 1)
	go func() { answer <- must[Revoked](t)(o.Revoke(context.Background(), order("x"), "prices", 0)) }()
	eventually(t, "the term is over", func() bool { return !o.lease("prices").Held })
	if !o.refused("prices", "a/1", 7) {
		t.Error("the guard lets the term write")
	}
	if l := o.lease("prices"); l.Epoch != 7 || l.Owner != "a/1" {
		t.Errorf("the epoch has changed under a fenced write: %+v", l)
	}
	letGo()
	if got := <-answer; got.NewEpoch != 8 {
		t.Errorf("%+v", got)
	}
}

// Half a revoke is a release, says so, and is finished by revoking again.
func TestRevokeThatComesToItsFirstCommitIsFinishedByAnother(t *testing.T) {
	t.Parallel()
	o := newOffice(t)
	o.led("prices", "a/1", 7)
	next := o.listening()
	letGo := o.hold(`SELECT rota_guard('prices', 'a/1', 7)`)
	defer letGo()
	_, err := o.Revoke(t.Context(), order("x"), "prices", 20)
	wantRefusal(t, err, ErrBusy, `the term of "prices" under epoch 7 is over, but its epoch was not raised; revoke it again`)
	if l := o.lease("prices"); l.Held || l.Epoch != 7 {
		t.Errorf("%+v", l)
	}
	if got := next(); got != "prices" {
		t.Errorf("the standbys were told %q", got)
	}
	letGo()
	if got := must[Revoked](t)(o.Revoke(t.Context(), order("y"), "prices", 0)); got.NewEpoch != 8 || got.Owner != "" || got.Epoch != 7 {
		t.Errorf("%+v", got)
	}
	if lines := o.audit(); len(lines) != 2 || lines[0].Detail["above"] != 20.0 || lines[1].Detail["new_epoch"] != 8.0 {
		t.Errorf("audit: %+v", lines)
	}
}

// A row that somebody holds costs a while, and changes nothing.
func TestRevokeOfALockedRowGivesUp(t *testing.T) {
	t.Parallel()
	o := newOffice(t)
	o.led("prices", "a/1", 7)
	letGo := o.hold(`SELECT 1 FROM leadership WHERE job_name = 'prices' FOR UPDATE`)
	defer letGo()
	_, err := o.Revoke(t.Context(), order("x"), "prices", 0)
	wantRefusal(t, err, ErrBusy, "somebody holds a row that it needs; try again")
	if l := o.lease("prices"); !l.Held || l.Owner != "a/1" || l.Epoch != 7 || len(o.audit()) != 0 {
		t.Errorf("%+v, audit %+v", l, o.audit())
	}
}

func TestRevokeOfARowThatIsHeldForAMomentWaits(t *testing.T) {
	t.Parallel()
	o := newOffice(t)
	o.led("prices", "a/1", 7)
	letGo := o.hold(`SELECT 1 FROM leadership WHERE job_name = 'prices' FOR UPDATE`)
	defer letGo()
	answer := make(chan Revoked, 1)
	go func() { answer <- must[Revoked](t)(o.Revoke(context.Background(), order("x"), "prices", 0)) }()
	eventually(t, "it waits", func() bool {
		return one[int](o, `SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() AND wait_event_type = 'Lock'`) > 0
	})
	letGo()
	if got := <-answer; got.NewEpoch != 8 {
		t.Errorf("%+v", got)
	}
}

// Each statement names the term by owner and epoch: however late it executes, it ends no other.
func TestLateRevokeEndsNoLaterTerm(t *testing.T) {
	t.Parallel()
	o := newOffice(t)
	ctx := t.Context()
	o.led("prices", "a/1", 7)
	seen := must[term](t)(o.termOf(ctx, "prices"))
	done := Revoked{Job: "prices", Lease: "prices", Epoch: 7}
	for _, later := range []leaseRow{{"b/1", 8, true}, {"a/1", 9, true}, {"b/1", 7, true}} {
		o.led("prices", later.Owner, later.Epoch)
		if ended, err := o.expire(ctx, order("x"), done, seen, 0); ended || err != nil {
			t.Errorf("it ended %+v, %v", later, err)
		}
		for _, held := range []bool{true, false} {
			if !held {
				o.exec(`UPDATE leadership SET expires_at = now()`)
			}
			if epoch, err := o.lift(ctx, order("x"), done, seen, 0); epoch != 0 || err != nil {
				t.Errorf("it raised the epoch of %+v to %d, %v", later, epoch, err)
			}
			later.Held = held
			if diff := cmp.Diff(later, o.lease("prices")); diff != "" {
				t.Error(diff)
			}
		}
	}
	// Nor does it raise the epoch of the term itself, as long as that lasts.
	o.led("prices", "a/1", 7)
	if epoch, err := o.lift(ctx, order("x"), done, seen, 0); epoch != 0 || err != nil {
		t.Errorf("it raised the epoch of a term that lasts to %d, %v", epoch, err)
	}
	if n := len(o.audit()); n != 0 {
		t.Errorf("%d lines of the audit for nothing", n)
	}
}

// A lost answer is made up for by revoking again, whichever commit it was of.
func TestRevokeAfterALostAnswer(t *testing.T) {
	t.Parallel()
	ctx := context.Background()
	t.Run("of the first commit", func(t *testing.T) {
		t.Parallel()
		o := newOffice(t)
		o.led("prices", "a/1", 7)
		seen := must[term](t)(o.termOf(ctx, "prices"))
		must[bool](t)(o.expire(ctx, order("x"), Revoked{Lease: "prices"}, seen, 0))
		if got := must[Revoked](t)(o.Revoke(ctx, order("x"), "prices", 0)); got.NewEpoch != 8 {
			t.Errorf("%+v", got)
		}
	})
	t.Run("of the second commit", func(t *testing.T) {
		t.Parallel()
		o := newOffice(t)
		o.led("prices", "a/1", 7)
		must[Revoked](t)(o.Revoke(ctx, order("x"), "prices", 100))
		_, err := o.Revoke(ctx, order("x"), "prices", 100)
		wantRefusal(t, err, ErrRefused, "the next term is above 100 already")
		if l := o.lease("prices"); l.Epoch != 101 {
			t.Errorf("%+v", l)
		}
	})
	t.Run("with another term since", func(t *testing.T) {
		t.Parallel()
		o := newOffice(t)
		o.led("prices", "a/1", 7)
		must[Revoked](t)(o.Revoke(ctx, order("x"), "prices", 0))
		o.led("prices", "b/1", 9)
		// It is the operator's word that this one is meant too.
		if got := must[Revoked](t)(o.Revoke(ctx, order("x"), "prices", 0)); got.Owner != "b/1" || got.NewEpoch != 10 {
			t.Errorf("%+v", got)
		}
	})
}

// A standby that is quicker than the second commit has raised the epoch itself. If it is not above
// the one asked for, its term is revoked too.
func TestRevokeThatIsOvertakenByAStandby(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		above int64
		want  leaseRow
		last  string
	}{
		"which is what was wanted":   {0, leaseRow{"b/1", 8, true}, "taken_by"},
		"below the epoch asked for":  {50, leaseRow{"revoked by alice", 51, false}, "new_epoch"},
		"at the epoch asked for":     {8, leaseRow{"revoked by alice", 9, false}, "new_epoch"},
		"above the epoch asked for ": {7, leaseRow{"b/1", 8, true}, "taken_by"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			o := newOffice(t)
			ctx := context.Background()
			o.led("prices", "a/1", 7)
			tx, err := o.db.Begin(ctx)
			if err != nil {
				t.Fatal(err)
			}
			defer func() { _ = tx.Rollback(ctx) }()
			if _, err := tx.Exec(ctx, `SELECT FROM leadership WHERE job_name = 'prices' FOR KEY SHARE`); err != nil {
				t.Fatal(err)
			}
			answer := make(chan Revoked, 1)
			go func() { answer <- must[Revoked](t)(o.Revoke(ctx, order("x"), "prices", c.above)) }()
			eventually(t, "the term is over", func() bool { return !o.lease("prices").Held })
			if _, err := tx.Exec(ctx, `UPDATE leadership SET owner = 'b/1', epoch = 8, expires_at = clock_timestamp() + interval '1 hour'`); err != nil {
				t.Fatal(err)
			}
			if err := tx.Commit(ctx); err != nil {
				t.Fatal(err)
			}
			got := <-answer
			if got.Owner != "a/1" || got.Epoch != 7 || got.NewEpoch != c.want.Epoch {
				t.Errorf("%+v", got)
			}
			if diff := cmp.Diff(c.want, o.lease("prices")); diff != "" {
				t.Error(diff)
			}
			lines := o.audit()
			if _, ok := lines[len(lines)-1].Detail[c.last]; !ok {
				t.Errorf("audit: %+v", lines)
			}
		})
	}
}

func TestRevokeIsBounded(t *testing.T) {
	t.Parallel()
	o := newOffice(t)
	o.led("prices", "a/1", 7)
	letGo := o.hold(`SELECT 1 FROM leadership WHERE job_name = 'prices' FOR UPDATE`)
	defer letGo()
	begun := time.Now()
	ctx, cancel := context.WithTimeout(t.Context(), 300*time.Millisecond)
	defer cancel()
	_, err := o.Revoke(ctx, order("x"), "prices", 0)
	if err == nil || errors.Is(err, ErrUnknown) || !strings.Contains(err.Error(), "given up") {
		t.Errorf("error %v", err)
	}
	if took := time.Since(begun); took > 5*time.Second {
		t.Errorf("it took %v", took)
	}
}
