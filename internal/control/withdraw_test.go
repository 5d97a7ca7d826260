package control

import (
	"testing"

	"github.com/google/go-cmp/cmp"
)

func TestWaitingRequestIsWithdrawnWithItsLineOfTheAudit(t *testing.T) {
	t.Parallel()
	o := newOffice(t)
	a := must[Asked](t)(o.RunNow(t.Context(), order("late"), "prices", nil, "k"))
	w := must[Withdrawn](t)(o.Withdraw(t.Context(), Order{By: "bob", Via: CLI, Reason: "the file came"}, a.ID))
	if want := (Withdrawn{ID: a.ID, Job: "prices", Lease: "prices", Result: "withdrawn by bob: the file came"}); w != want {
		t.Errorf("%+v, want %+v", w, want)
	}
	if result := one[string](o, `SELECT result FROM requests WHERE id = $1 AND done_at IS NOT NULL`, a.ID); result != w.Result {
		t.Errorf("its result is %q", result)
	}
	want := written{
		Actor: "bob", Via: CLI, Action: "withdraw", Job: "prices", Lease: "prices", Reason: "the file came", Request: a.ID,
		Detail: map[string]any{"result": w.Result},
	}
	if lines := o.audit(); len(lines) != 2 || cmp.Diff(want, lines[1]) != "" {
		t.Errorf("%+v", lines)
	}
	last, err := o.AwaitRun(t.Context(), a, func(Attempt) {})
	if err != nil || last.Run != 0 || last.Error != w.Result {
		t.Errorf("who waits for it is told %+v, %v", last, err)
	}
}

func TestOnlyAWaitingRequestForARunIsWithdrawn(t *testing.T) {
	t.Parallel()
	o := newOffice(t)
	ctx := t.Context()
	o.led("prices", "a/1", 1)
	begun := must[Asked](t)(o.RunNow(ctx, order(""), "prices", nil, ""))
	run := o.running("prices")
	o.exec(`UPDATE runs SET request_id = $1 WHERE id = $2`, begun.ID, run)
	cancel := must[Asked](t)(o.Cancel(ctx, order("x"), run))
	settled := must[Asked](t)(o.RunNow(ctx, order(""), "plain", nil, ""))
	o.exec(`UPDATE requests SET done_at = now(), result = 'refused: no' WHERE id = $1`, settled.ID)
	held := must[Asked](t)(o.RunNow(ctx, order(""), "plain", nil, ""))
	before := len(o.audit())
	for id, want := range map[int64]struct {
		kind  error
		words string
	}{
		begun.ID:   {ErrRefused, "has begun already: runs cancel 1 ends its run"},
		cancel.ID:  {ErrInvalid, "is no request to run a job (cancel)"},
		settled.ID: {ErrRefused, "is settled already: refused: no"},
		99:         {ErrNotFound, "there is no request 99"},
	} {
		_, err := o.Withdraw(ctx, order("x"), id)
		wantRefusal(t, err, want.kind, want.words)
	}
	o.exec(`UPDATE runs SET ended_at = now(), outcome = 'success' WHERE id = $1`, run)
	_, err := o.Withdraw(ctx, order("x"), begun.ID)
	wantRefusal(t, err, ErrRefused, "has been carried out already, by run 1")
	_, err = o.Withdraw(ctx, order(" "), held.ID)
	wantRefusal(t, err, ErrInvalid, "say why")
	// As a claim holds it whose run has not been committed.
	defer o.hold(`SELECT FROM requests WHERE id = $1 FOR SHARE`, held.ID)()
	_, err = o.Withdraw(ctx, order("x"), held.ID)
	wantRefusal(t, err, ErrBusy, "try again")
	if n := len(o.audit()); n != before {
		t.Errorf("%d lines of the audit for orders that were refused", n-before)
	}
}
