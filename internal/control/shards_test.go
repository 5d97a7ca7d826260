package control

import (
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

// sharded makes a job of so many shards, all led, after it was led as a whole.
func (o *office) sharded(job string, leases ...string) {
	o.t.Helper()
	o.exec(`INSERT INTO job_shards (job, n, acting, generation, epoch_high) VALUES ($1, $2, $2, 1, 40)`, job, len(leases))
	o.exec(`INSERT INTO leadership (job_name, owner, expires_at, epoch) VALUES ($1, '', clock_timestamp() + interval '100 years', 20)`, job)
	for i, lease := range leases {
		o.led(lease, "a/1", int64(30+i))
	}
}

func TestRunNowAsksEachShardOrOne(t *testing.T) {
	t.Parallel()
	o := newOffice(t)
	o.sharded("prices", "prices.1of3", "prices.2of3", "prices.3of3")
	all := must[Asked](t)(o.RunNow(t.Context(), order(""), "prices", nil, "k"))
	var leases []string
	for _, a := range all.Shards {
		leases = append(leases, a.Lease)
	}
	if diff := cmp.Diff([]string{"prices.1of3", "prices.2of3", "prices.3of3"}, leases); diff != "" || all.Existed || all.ID != all.Shards[0].ID {
		t.Errorf("asked: %+v\n%s", all, diff)
	}
	if again := must[Asked](t)(o.RunNow(t.Context(), order(""), "prices", nil, "k")); !again.Existed || again.ID != all.ID {
		t.Errorf("asked again with the key: %+v", again)
	}
	one := must[Asked](t)(o.RunShard(t.Context(), order(""), "prices", 2, nil, ""))
	if one.Lease != "prices.2of3" || one.Job != "prices" || len(one.Shards) != 0 {
		t.Errorf("asked of one: %+v", one)
	}
	for shard, says := range map[int]string{0: "from 1", -1: "from 1", 4: "has 3"} {
		if _, err := o.RunShard(t.Context(), order(""), "prices", shard, nil, ""); !errors.Is(err, ErrInvalid) || !strings.Contains(err.Error(), says) {
			t.Errorf("shard %d: %v", shard, err)
		}
	}
	if _, err := o.RunShard(t.Context(), order(""), "plain", 1, nil, ""); !errors.Is(err, ErrInvalid) || !strings.Contains(err.Error(), "none") {
		t.Errorf("a shard of a job that has none: %v", err)
	}
	if _, err := o.RunNow(t.Context(), order(""), "prices.1of3", nil, ""); !errors.Is(err, ErrNotFound) || !strings.Contains(err.Error(), "shard") {
		t.Errorf("a lease in place of a job: %v", err)
	}
}

// What was asked of a shard that is no more is settled, and what was asked of one that is, is not.
func TestRequestOfAShardThatIsNoMoreIsSettled(t *testing.T) {
	t.Parallel()
	o := newOffice(t)
	o.sharded("prices", "prices.1of2", "prices.2of2")
	asked := must[Asked](t)(o.RunNow(t.Context(), order(""), "prices", nil, ""))
	w := NewWatch(o.db, "a/1", nil)
	state := must[State](t)(w.look(t.Context()))
	if len(state.Requests) != 2 {
		t.Fatalf("open are %+v", state.Requests)
	}
	o.exec(`UPDATE job_shards SET n = 3, acting = 3`)
	o.exec(`UPDATE leadership SET owner = '', expires_at = clock_timestamp() + interval '100 years' WHERE job_name = 'prices.1of2'`)
	state = must[State](t)(w.look(t.Context()))
	if len(state.Requests) != 1 || state.Requests[0].Lease != "prices.2of2" {
		t.Errorf("open are %+v", state.Requests)
	}
	if result := one[string](o, `SELECT result FROM requests WHERE id = $1`, asked.ID); !strings.Contains(result, "another count of shards") {
		t.Errorf("it is settled by %q", result)
	}
}

// P2: the epoch of a revoked shard is above those of all leases of its job, and the next of any of
// them is above it.
func TestRevokedShardsEpochIsAboveAllOfItsJob(t *testing.T) {
	t.Parallel()
	o := newOffice(t)
	o.sharded("prices", "prices.1of2", "prices.2of2")
	r := must[Revoked](t)(o.Revoke(t.Context(), order("hangs"), "prices.1of2", 0))
	if r.NewEpoch != 41 || r.Job != "prices" || one[int64](o, `SELECT epoch_high FROM job_shards`) != 41 {
		t.Errorf("revoked: %+v, the job's highest epoch is %d", r, one[int64](o, `SELECT epoch_high FROM job_shards`))
	}
	if r = must[Revoked](t)(o.Revoke(t.Context(), order("restored"), "prices.1of2", 99)); r.NewEpoch != 100 || one[int64](o, `SELECT epoch_high FROM job_shards`) != 100 {
		t.Errorf("revoked above 99: %+v", r)
	}
	letGo := o.hold(`SELECT FROM job_shards FOR UPDATE`)
	time.AfterFunc(100*time.Millisecond, letGo)
	if r = must[Revoked](t)(o.Revoke(t.Context(), order("x"), "prices.2of2", 0)); r.NewEpoch != 101 {
		t.Errorf("revoked behind an acquisition: %+v", r)
	}
}

func TestOrdersAboutALeaseOutOfForceNameThoseThatAreNot(t *testing.T) {
	t.Parallel()
	o := newOffice(t)
	o.sharded("prices", "prices.1of2", "prices.2of2")
	_, err := o.StepDown(t.Context(), order("x"), "prices")
	if !errors.Is(err, ErrNotFound) || !strings.Contains(err.Error(), "prices.1of2 to prices.2of2") {
		t.Errorf("step down: %v", err)
	}
	_, err = o.Revoke(t.Context(), order("x"), "prices", 0)
	if !errors.Is(err, ErrNotFound) || !strings.Contains(err.Error(), "another count") {
		t.Errorf("revoke: %v", err)
	}
	if a := must[Asked](t)(o.StepDown(t.Context(), order("x"), "prices.2of2")); a.Job != "prices" || a.Epoch != 31 {
		t.Errorf("step down of a shard: %+v", a)
	}
}
