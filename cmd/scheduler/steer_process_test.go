package main

import (
	"context"
	"encoding/json"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"rota/internal/control"
	"rota/internal/pgtest"
	"rota/internal/registry"
)

func init() {
	// Its runs last until they are cancelled or asked to end.
	testJobs["steered"] = []registry.Job{{
		Name: "steered", Schedule: registry.OnDemand, Args: struct{ Fail bool }{},
		Run: func(ctx context.Context, run *registry.Run) error {
			if run.Args.(struct{ Fail bool }).Fail {
				return context.DeadlineExceeded
			}
			select {
			case <-run.Draining:
				return nil
			case <-ctx.Done():
				return context.Cause(ctx)
			}
		},
	}}
}

// deaf cuts announcements for a test's database: the channel that is announced on is one that
// nobody listens on.
func (e eye) deaf() {
	e.t.Helper()
	if _, err := e.Exec(e.t.Context(), `CREATE OR REPLACE FUNCTION rota_channel() RETURNS text LANGUAGE sql VOLATILE AS
		$$ SELECT 'nobody hears ' || gen_random_uuid() $$`, pgx.QueryExecModeSimpleProtocol); err != nil {
		e.t.Fatal(err)
	}
}

// order gives an order as an operator would, and returns what it printed.
func order(t *testing.T, url string, want int, args ...string) map[string]any {
	t.Helper()
	stdout, stderr, code := command(t, "steered", []string{"DATABASE_URL=" + url}, append(args, "--json", "--by", "alice")...)
	if code != want {
		t.Fatalf("%s: exit code %d, want %d:\n%s%s", strings.Join(args, " "), code, want, stdout, stderr)
	}
	var out map[string]any
	if err := json.Unmarshal([]byte(stdout), &out); err != nil {
		t.Fatalf("%s: %v:\n%s", strings.Join(args, " "), err, stdout)
	}
	return out
}

// lines are the audit's, in short.
func (e eye) lines(action string) (all []string) {
	e.t.Helper()
	rows, err := e.Query(e.t.Context(), `SELECT actor || ' via ' || via || ': ' || coalesce(detail->>'result', '') FROM audit WHERE action = $1 ORDER BY id`, action)
	if err != nil {
		e.t.Fatal(err)
	}
	all, err = pgx.CollectRows(rows, pgx.RowTo[string])
	if err != nil {
		e.t.Fatal(err)
	}
	return all
}

// An order that is announced to the elector waits for no look of the watch: ten looks in turn would take
// nine times their interval.
func TestAnnouncementWakesTheWatch(t *testing.T) {
	t.Parallel()
	watch := control.NewWatch(pgtest.New(t), "me", nil)
	announced := electorConfig(Defaults(), "me", watch, nil, nil).Steer
	ctx, stop := context.WithCancel(t.Context())
	defer stop()
	began, looks := time.Now(), 0
	watch.Run(ctx, func(control.State) {
		if looks++; looks == 10 {
			stop()
		}
		announced()
	})
	if took := time.Since(began); took >= 9*control.Interval {
		t.Errorf("ten looks took %v", took)
	}
}

// P6, P8: each of these moves a lease, by announcement and without any, and is on record twice. A run
// is under way each time.
func TestOrdersMoveALease(t *testing.T) {
	t.Parallel()
	for _, deaf := range []bool{false, true} {
		name := "announced"
		if deaf {
			name = "found by polling"
		}
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			url, args := pgtest.URL(t), withoutOurs(t)
			db := lookAt(t, url)
			if deaf {
				db.deaf()
			}
			replicas := map[string]*proc{}
			for range 3 {
				p := launch(t, url, "steered", args...).serving()
				replicas[p.id()] = p
			}
			for _, o := range []struct {
				action, reason string
				args           func(leaseState) []string
			}{
				{"step_down", "step down", func(leaseState) []string { return []string{"leases", "step-down", "steered"} }},
				{"revoke", "revoked", func(leaseState) []string { return []string{"leases", "revoke", "steered", "--yes"} }},
				{"drain", "drain", func(l leaseState) []string { return []string{"replicas", "drain", l.Owner} }},
			} {
				var held leaseState
				eventually(t, 30*time.Second, "steered is led, and nothing is to be moved", func() bool {
					held = db.lease("steered")
					most, least, all := db.spread()
					return held.held() && replicas[held.Owner] != nil && all == 2 && most-least <= 1
				})
				order(t, url, exitOK, "jobs", "run", "steered")
				db.running("steered")
				order(t, url, exitOK, append(o.args(held), "--reason", "a test")...)
				asked := db.asked(o.action)
				took := db.after("steered", held.Epoch)
				if o.action == "revoke" { // the epoch between is nobody's
					took = db.after("steered", held.Epoch+1)
				}
				if replicas[took.Owner] == nil || took.Epoch <= held.Epoch {
					t.Errorf("%s: %s leads under epoch %d after %d", o.action, took.Owner, took.Epoch, held.Epoch)
				}
				var reason string
				if err := db.QueryRow(t.Context(), `SELECT end_reason FROM terms WHERE job_name = 'steered' AND epoch = $1`, held.Epoch).Scan(&reason); err != nil || reason != o.reason {
					t.Errorf("%s: the term ended: %s %v", o.action, reason, err)
				}
				moved := took.AcquiredAt.Sub(asked)
				t.Logf("%s moved the lease in %v", o.action, moved)
				if bar := time.Second; !deaf && moved > 5*bar {
					t.Errorf("%s moved the lease in %v, want %v", o.action, moved, bar)
				} else if deaf && moved > 5*(control.Interval+testRenew) {
					t.Errorf("%s moved the lease in %v, want %v", o.action, moved, control.Interval+testRenew)
				}
				eventually(t, 10*time.Second, o.action+" has its second line", func() bool { return len(db.lines(o.action)) == 2 })
				if l := db.lines(o.action); !strings.HasPrefix(l[0], "alice via cli") || o.action != "revoke" && !strings.Contains(l[1], "via replica: ") {
					t.Errorf("audit: %q", l)
				}
			}
		})
	}
}

// asked is when the first line of an order was written.
func (e eye) asked(action string) (at time.Time) {
	e.t.Helper()
	if err := e.QueryRow(e.t.Context(), `SELECT min(at) FROM audit WHERE action = $1`, action).Scan(&at); err != nil {
		e.t.Fatal(err)
	}
	return at
}

// P9, P10: a drained replica stays a member, leads nothing even when it is the last one left, and is
// stopped as any other.
func TestDrainedReplicaStaysAndLeadsNothing(t *testing.T) {
	t.Parallel()
	url := pgtest.URL(t)
	db := lookAt(t, url)
	drained := launch(t, url, "steered").serving()
	db.ledBy("steered", drained)
	got := order(t, url, exitOK, "replicas", "drain", drained.name, "--reason", "a test", "--wait")
	if got["replica"] != drained.id() || got["result"] == "" {
		t.Errorf("%v", got)
	}
	eventually(t, 10*time.Second, "it leads nothing", func() bool {
		return db.number(`SELECT count(*) FROM leadership WHERE owner <> '' AND expires_at > clock_timestamp()`) == 0
	})
	// Whoever led the leases before could take them again by its next heartbeats.
	beats := db.number(`SELECT extract(epoch FROM seen_at)::int FROM replicas`)
	eventually(t, 30*time.Second, "it has gone on with its heartbeats", func() bool {
		return db.number(`SELECT extract(epoch FROM seen_at)::int FROM replicas WHERE draining`) >= beats+3
	})
	if n := db.number(`SELECT count(*) FROM leadership WHERE owner <> '' AND expires_at > clock_timestamp()`); n != 0 {
		t.Errorf("it leads %d", n)
	}
	other := launch(t, url, "steered").serving()
	db.ledBy("steered", other)
	if code, why := drained.probe("/readyz"); code != 503 || !strings.Contains(why, "draining") {
		t.Errorf("it says that it is ready: %d %s", code, why)
	}
	drained.send(syscall.SIGTERM)
	if code := drained.code(10 * time.Second); code != exitOK {
		t.Errorf("exit code %d", code)
	}
}

// A run that is asked for is made once, ends when it is cancelled, and says so to whom waits.
func TestRunIsMadeOnRequestAndCancelled(t *testing.T) {
	t.Parallel()
	url := pgtest.URL(t)
	db := lookAt(t, url)
	replica := launch(t, url, "steered").serving()
	db.ledBy("steered", replica)
	first := order(t, url, exitOK, "jobs", "run", "steered", "--key", "k")
	db.running("steered")
	if again := order(t, url, exitOK, "jobs", "run", "steered", "--key", "k"); again["request"] != first["request"] || again["existed"] != true {
		t.Errorf("%v after %v", again, first)
	}
	run := db.number(`SELECT id FROM runs WHERE lease = 'steered'`)
	got := order(t, url, exitOK, "runs", "cancel", strconv.Itoa(run), "--reason", "enough", "--wait")
	if result, _ := got["result"].(string); !strings.Contains(result, "cancelled") {
		t.Errorf("%v", got)
	}
	failed := order(t, url, exitRun, "jobs", "run", "steered", "--args", `{"fail": true}`, "--wait")
	if last, _ := failed["last"].(map[string]any); last["outcome"] != "failed" {
		t.Errorf("%v", failed)
	}
	if n := db.number(`SELECT count(*) FROM runs WHERE lease = 'steered'`); n != 2 {
		t.Errorf("%d runs for 2 requests", n)
	}
	if l := db.lines("run"); len(l) != 4 {
		t.Errorf("audit: %q", l)
	}
}
