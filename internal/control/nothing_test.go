package control

import (
	"strings"
	"testing"
	"time"
)

// An order about what there is not says so, whatever the name looks like, and does nothing.
func TestWhatThereIsNotIsNotFound(t *testing.T) {
	t.Parallel()
	o := newOffice(t)
	ctx := t.Context()
	o.led("prices", "a/1", 7)
	o.exec(`INSERT INTO job_shards (job, n, acting) VALUES ('split', 2, 2)`)
	o.led("split.1of2", "a/1", 7)
	o.led("split.2of2", "a/1", 7)
	jobs := map[string]func(name string) error{
		"run":           func(name string) error { _, err := o.RunNow(ctx, order("x"), name, nil, ""); return err },
		"run its shard": func(name string) error { _, err := o.RunShard(ctx, order("x"), name, 2, nil, ""); return err },
		"pause":         func(name string) error { _, err := o.Pause(ctx, order("x"), name, time.Time{}); return err },
		"resume":        func(name string) error { _, err := o.Resume(ctx, order("x"), name); return err },
	}
	for what, give := range jobs {
		for _, name := range []string{"pricse", "pricse.1of2", "prices.1of2", "split.1of2", "", "a\x00b", "\xff", "no such/name"} {
			err := give(name)
			wantRefusal(t, err, ErrNotFound, "there is no job")
			if strings.Contains(err.Error(), "count of shards") {
				t.Errorf("%s of %q: %v", what, name, err)
			}
		}
	}
	leases := map[string]func(name string) error{
		"step down": func(name string) error { _, err := o.StepDown(ctx, order("x"), name); return err },
		"revoke":    func(name string) error { _, err := o.Revoke(ctx, order("x"), name, 0); return err },
	}
	for what, give := range leases {
		for _, name := range []string{"pricse", "pricse.1of2", "prices.1of2", "split.1of3", "", "a\x00b", "\xff"} {
			err := give(name)
			wantRefusal(t, err, ErrNotFound, "there is no lease")
			if strings.Contains(err.Error(), "count of shards") {
				t.Errorf("%s of %q: %v", what, name, err)
			}
		}
	}
	for _, name := range []string{"nobody", "a\x00b", "\xff"} {
		_, err := o.Drain(ctx, order("x"), name)
		wantRefusal(t, err, ErrNotFound, "there is no replica")
	}
	for _, id := range []int64{-1, 0, 999} {
		_, err := o.Cancel(ctx, order("x"), id)
		wantRefusal(t, err, ErrNotFound, "there is no run")
		_, err = o.Withdraw(ctx, order("x"), id)
		wantRefusal(t, err, ErrNotFound, "there is no request")
	}
	if n := one[int](o, `SELECT (SELECT count(*) FROM audit) + (SELECT count(*) FROM requests) + (SELECT count(*) FROM pauses)`); n != 0 {
		t.Errorf("%d rows were written", n)
	}
	// Another version's job is known by its shards.
	must[Paused](t)(o.Pause(ctx, order("x"), "split", time.Time{}))
}
