package control

import "testing"

// A form that is sent twice must not end the successor's term as well.
func TestAnOrderForATermLeavesTheNextAlone(t *testing.T) {
	t.Parallel()
	o := newOffice(t)
	ctx := t.Context()
	o.led("prices", "a/1", 7)
	meant := order("x")
	meant.Epoch = 7
	first := must[Asked](t)(o.StepDown(ctx, meant, "prices"))
	if again := must[Asked](t)(o.StepDown(ctx, meant, "prices")); again.ID != first.ID {
		t.Errorf("%+v after %+v", again, first)
	}
	must[Revoked](t)(o.Revoke(ctx, meant, "prices", 0))
	_, err := o.Revoke(ctx, meant, "prices", 0)
	wantRefusal(t, err, ErrRefused, `the term of "prices" under epoch 7 is over; its epoch is 8 by now`)
	o.led("prices", "b/1", 9)
	_, err = o.Revoke(ctx, meant, "prices", 0)
	wantRefusal(t, err, ErrRefused, "its epoch is 9 by now")
	_, err = o.StepDown(ctx, meant, "prices")
	wantRefusal(t, err, ErrRefused, "its epoch is 9 by now")
	if done := must[Revoked](t)(o.Revoke(ctx, order("x"), "prices", 0)); done.Epoch != 9 {
		t.Errorf("%+v", done)
	}
}
