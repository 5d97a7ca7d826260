package lease

import (
	"testing"
	"time"
)

// P7: how long the database works on a heartbeat does not put the estimate of its clock off: ticks that
// are claimed too early are claimed in vain.
func TestClockIsEstimatedWhateverAHeartbeatTakes(t *testing.T) {
	t.Parallel()
	db, s := singles(t)
	exec(t, db, `CREATE FUNCTION works() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN PERFORM pg_sleep(0.3); RETURN NEW; END $$;
		CREATE TRIGGER works BEFORE UPDATE ON leadership FOR EACH ROW EXECUTE FUNCTION works()`)
	grants, err := s.acquire(t.Context(), "r1", hour, []claim{{name: "a"}}, false)
	must(t, err)
	for name, held := range map[string][]holding{"with a renewal": {{"a", grants[0].epoch}}, "without one": nil} {
		var c clock
		began := time.Now()
		_, l, err := s.beat(t.Context(), member{owner: "r1", host: "h", version: "v", started: began, lease: hour, lasts: hour}, held)
		must(t, err)
		took := time.Since(began)
		c.set(l.received, l.answered, 0, took)
		worked := l.answered.Sub(l.received)
		if len(held) > 0 && worked < 300*time.Millisecond {
			t.Errorf("%s it worked for %v", name, worked)
		}
		if off := c.now(took).Sub(began.Add(took)).Abs(); off > (took-worked)/2+time.Millisecond {
			t.Errorf("%s the estimate is off by %v, and the way took %v", name, off, took-worked)
		}
	}
}

// The middle of what the database says is that of the round trip.
func TestClockIsOffByHalfTheWayAtMost(t *testing.T) {
	t.Parallel()
	var c clock
	at := time.Date(2026, 1, 1, 8, 0, 0, 0, time.UTC)
	c.set(at, at.Add(60*time.Millisecond), time.Second, time.Second+80*time.Millisecond)
	if got := c.now(2 * time.Second).Sub(at); got != 990*time.Millisecond {
		t.Errorf("a second after it was sent, which took 10 ms, it is %v", got)
	}
}
