package control

import (
	"context"
	"encoding/json"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"rota/internal/pgtest"
	"rota/internal/registry"
)

// An office is a desk at a fresh database, and the hands of others on its rows.
type office struct {
	*Desk
	t  *testing.T
	db *pgxpool.Pool
}

type limits struct {
	Limit int
	Wait  time.Duration
}

func testJobs() []registry.Job {
	return []registry.Job{
		{Name: "prices", Schedule: registry.OnDemand, Args: limits{Limit: 5}},
		{Name: "plain", Schedule: registry.OnDemand},
		{Name: "stream", Schedule: registry.Continuous},
	}
}

func newOffice(t *testing.T) *office {
	t.Helper()
	db := pgtest.New(t)
	return &office{Desk: NewDesk(db, testJobs()), t: t, db: db}
}

// order is one of alice's.
func order(reason string) Order { return Order{By: "alice", Via: CLI, Reason: reason} }

func (o *office) exec(sql string, args ...any) {
	o.t.Helper()
	if _, err := o.db.Exec(o.t.Context(), sql, args...); err != nil {
		o.t.Fatal(err)
	}
}

func one[T any](o *office, sql string, args ...any) (v T) {
	o.t.Helper()
	if err := o.db.QueryRow(o.t.Context(), sql, args...).Scan(&v); err != nil {
		o.t.Fatalf("%s: %v", sql, err)
	}
	return v
}

// led makes an owner, who is a member, lead the lease for an hour.
func (o *office) led(name, owner string, epoch int64) {
	o.t.Helper()
	o.exec(`INSERT INTO leadership (job_name, owner, expires_at, epoch) VALUES ($1, $2, clock_timestamp() + interval '1 hour', $3)
		ON CONFLICT (job_name) DO UPDATE SET owner = EXCLUDED.owner, expires_at = EXCLUDED.expires_at, epoch = EXCLUDED.epoch`, name, owner, epoch)
	o.member(owner)
}

func (o *office) member(owner string) {
	o.t.Helper()
	host, _, _ := strings.Cut(owner, "/")
	o.exec(`INSERT INTO replicas (id, host, pid, version, started_at, seen_at, expires_at)
		VALUES ($1, $2, 1, 'test', now(), now(), now() + interval '1 hour') ON CONFLICT DO NOTHING`, owner, host)
}

// able says which jobs the replica can lead.
func (o *office) able(replica string, jobs ...string) {
	o.t.Helper()
	o.exec(`INSERT INTO abilities VALUES ($1, $2)`, replica, jobs)
	o.exec(`UPDATE replicas SET ability = $1 WHERE id = $1`, replica)
}

// running is a run of the job under its lease's term.
func (o *office) running(job string) int64 {
	o.t.Helper()
	id := one[int64](o, `INSERT INTO runs (lease, job, tick, epoch, owner)
		SELECT job_name, job_name, clock_timestamp(), epoch, owner FROM leadership WHERE job_name = $1 RETURNING id`, job)
	pgtest.Note(o.t, o.db)
	return id
}

// A written line of the audit.
type written struct {
	Actor, Via, Action, Job, Lease, Replica, Reason string
	Run, Request                                    int64
	Detail                                          map[string]any
}

func (o *office) audit() []written {
	o.t.Helper()
	rows, err := o.db.Query(o.t.Context(), `SELECT actor, via, action, coalesce(job, ''), coalesce(lease, ''), coalesce(replica, ''),
		reason, coalesce(run_id, 0), coalesce(request_id, 0), coalesce(detail, '{}') FROM audit ORDER BY id`)
	if err != nil {
		o.t.Fatal(err)
	}
	lines, err := pgx.CollectRows(rows, pgx.RowToStructByPos[written])
	if err != nil {
		o.t.Fatal(err)
	}
	return lines
}

// hold locks rows until it is let go.
func (o *office) hold(sql string, args ...any) (letGo func()) {
	o.t.Helper()
	tx, err := o.db.Begin(context.Background())
	if err != nil {
		o.t.Fatal(err)
	}
	if _, err := tx.Exec(context.Background(), sql, args...); err != nil {
		o.t.Fatal(err)
	}
	return func() {
		if err := tx.Rollback(context.Background()); err != nil && !errors.Is(err, pgx.ErrTxClosed) {
			o.t.Error(err)
		}
	}
}

// listening returns what is announced from now on.
func (o *office) listening() func() string {
	o.t.Helper()
	conn, err := o.db.Acquire(o.t.Context())
	if err != nil {
		o.t.Fatal(err)
	}
	o.t.Cleanup(conn.Release)
	channel := one[string](o, `SELECT rota_channel()`)
	if _, err := conn.Exec(o.t.Context(), "LISTEN "+pgx.Identifier{channel}.Sanitize()); err != nil {
		o.t.Fatal(err)
	}
	return func() string {
		ctx, cancel := context.WithTimeout(o.t.Context(), 10*time.Second)
		defer cancel()
		n, err := conn.Conn().WaitForNotification(ctx)
		if err != nil {
			o.t.Fatalf("nothing was announced: %v", err)
		}
		return n.Payload
	}
}

func object(s string) json.RawMessage { return json.RawMessage(s) }

// wantRefusal holds an error to its kind and to words of its text, which is one line.
func wantRefusal(t *testing.T, err, kind error, words string) {
	t.Helper()
	if !errors.Is(err, kind) {
		t.Fatalf("error %v, want one that is %q", err, kind)
	}
	if !strings.Contains(err.Error(), words) || strings.Contains(err.Error(), "\n") {
		t.Errorf("error %q, want one line with %q", err, words)
	}
}

func must[T any](t *testing.T) func(T, error) T {
	t.Helper()
	return func(v T, err error) T {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
		return v
	}
}

// eventually polls until it is so.
func eventually(t *testing.T, what string, is func() bool) {
	t.Helper()
	tick := time.NewTicker(5 * time.Millisecond)
	defer tick.Stop()
	for deadline := time.Now().Add(30 * time.Second); !is(); <-tick.C {
		if time.Now().After(deadline) {
			t.Fatalf("waited in vain until %s", what)
		}
	}
}
