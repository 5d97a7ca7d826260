package scheduler

import (
	"context"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"

	"rota/internal/fence"
	"rota/internal/pgtest"
)

// counted says by how many leases a job is led, in a generation.
func counted(t testing.TB, db *pgxpool.Pool, job string, n int, generation int64) {
	t.Helper()
	mustExec(t, db, `INSERT INTO job_shards (job, n, acting, generation) VALUES ($1, $2, $2, $3)
		ON CONFLICT (job) DO UPDATE SET n = EXCLUDED.n, acting = EXCLUDED.acting, generation = EXCLUDED.generation`, job, n, generation)
}

const progressesSQL = `SELECT concat_ws(' ', lease, to_char(last_tick AT TIME ZONE 'UTC', 'HH24:MI:SS.US'), generation) FROM progress ORDER BY generation, lease`

// noteSQL notes what is open as claims do.
const noteSQL = `UPDATE progress p SET open = ARRAY(SELECT id FROM runs r WHERE r.lease = p.lease AND r.ended_at IS NULL)`

func wantProgress(t testing.TB, db *pgxpool.Pool, what string, want ...string) {
	t.Helper()
	got := lines(t, db, progressesSQL)
	got = got[max(0, len(got)-len(want)):]
	for i := range want {
		if got[i] != want[i] {
			t.Errorf("%s: progress is %q, want %q", what, got, want)
			return
		}
	}
}

// P7: at a change of the count no key's tick is skipped, whether all of the former leases had claimed
// it, one had not, or one was cut short at it.
func TestLeasesOfANewCountInheritTheProgressOfTheFormer(t *testing.T) {
	t.Parallel()
	db := pgtest.New(t)
	s := &postgres{db, "me"}
	begins(t, s, leads(t, db, "s", "me", 1))
	mustExec(t, db, `UPDATE progress SET last_tick = '2026-01-01 08:00Z'`)

	counted(t, db, "s", 2, 1)
	second := leads(t, db, "s.2of2", "me", 3)
	if got := begins(t, s, second).last; !got.Equal(tick) {
		t.Errorf("a shard counts from %v, want %v", got, tick)
	}
	wantProgress(t, db, "from the whole", "s.1of2 08:00:00.000000 1", "s.2of2 08:00:00.000000 1")

	// One is ahead. Of what they left open, a request and what has had its tries are not run again.
	mustExec(t, db, `UPDATE progress SET last_tick = CASE lease WHEN 's.1of2' THEN '2026-01-01 08:05Z' ELSE '2026-01-01 08:03Z' END::timestamptz WHERE generation = 1`)
	mustExec(t, db, `INSERT INTO runs (lease, job, tick, attempt, epoch, owner, ended_at, outcome, again, request_id) VALUES
		('s.1of2', 's', '2026-01-01 08:01Z', 1, 1, 'old', NULL, NULL, false, 7),
		('s.1of2', 's', '2026-01-01 08:02Z', 3, 1, 'old', NULL, NULL, false, NULL),
		('s.2of2', 's', '2026-01-01 08:02Z', 1, 1, 'old', now(), 'lost', false, NULL)`)
	mustExec(t, db, noteSQL)
	counted(t, db, "s", 3, 2)
	begins(t, s, leads(t, db, "s.1of3", "me", 5))
	wantProgress(t, db, "from the slowest", "s.1of3 08:03:00.000000 2", "s.2of3 08:03:00.000000 2", "s.3of3 08:03:00.000000 2")
	if open := lines(t, db, `SELECT lease FROM runs WHERE ended_at IS NULL OR again`); len(open) != 0 {
		t.Errorf("runs of %v stay open, with nobody to close them", open)
	}
	mustExec(t, db, `UPDATE progress SET last_tick = '2026-01-01 08:09Z' WHERE lease = 's.1of3'`)
	begins(t, s, leads(t, db, "s.2of3", "me", 6))
	wantProgress(t, db, "the next of them changes nothing", "s.1of3 08:09:00.000000 2", "s.2of3 08:03:00.000000 2", "s.3of3 08:03:00.000000 2")

	// A run of the tick 08:08 was cut short; the count was 4 for a while, in which nothing began.
	mustExec(t, db, `UPDATE progress SET last_tick = '2026-01-01 08:09Z' WHERE generation = 2`)
	mustExec(t, db, `INSERT INTO runs (lease, job, tick, attempt, epoch, owner, ended_at, outcome, again) VALUES
		('s.3of3', 's', '2026-01-01 08:07Z', 1, 6, 'old', now(), 'lost', true), ('s.3of3', 's', '2026-01-01 08:07Z', 2, 7, 'old', now(), 'success', false),
		('s.3of3', 's', '2026-01-01 08:08Z', 2, 7, 'old', NULL, NULL, false)`)
	mustExec(t, db, noteSQL)
	counted(t, db, "s", 2, 4)
	begins(t, s, leads(t, db, "s.1of2", "me", 9))
	wantProgress(t, db, "from what was cut short", "s.1of2 08:07:59.999999 4", "s.2of2 08:07:59.999999 4")

	counted(t, db, "s", 1, 5)
	if got := begins(t, s, leads(t, db, "s", "me", 12)).last; !got.Equal(tick.Add(8*time.Minute - time.Microsecond)) {
		t.Errorf("the whole counts from %v", got)
	}
}

// P7, P8: a sibling's row that somebody holds keeps all leases of the count from beginning, and no
// other job's; a job whose schedule has changed counts from then.
func TestLeasesOfACountInheritTogether(t *testing.T) {
	t.Parallel()
	db := pgtest.New(t)
	s := &postgres{db, "me"}
	counted(t, db, "s", 2, 3)
	mustExec(t, db, `INSERT INTO progress (lease, last_tick, schedule, generation) VALUES
		('s.2of2', '2026-01-01 07:00Z', 'every 1s', 1), ('s', '2026-01-01 08:00Z', 'every 1s', 2)`)
	token, other := leads(t, db, "s.1of2", "me", 5), leads(t, db, "other", "me", 1)
	for _, sql := range []string{`SELECT FROM progress WHERE lease = 's.2of2' FOR UPDATE`, `SELECT FROM job_shards FOR UPDATE`} {
		holder, err := db.Begin(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		if _, err := holder.Exec(t.Context(), sql); err != nil {
			t.Fatal(err)
		}
		found, err := s.begin(t.Context(), []opening{{token, "every 1s", 3}, {other, "every 1s", 3}})
		if err != nil || found[token].verdict != locked || found[other].verdict != begun {
			t.Errorf("%s: %v, %v", sql, found, err)
		}
		if err := holder.Rollback(context.Background()); err != nil {
			t.Fatal(err)
		}
	}
	begins(t, s, token)
	wantProgress(t, db, "once nobody holds it", "s.1of2 08:00:00.000000 3", "s.2of2 08:00:00.000000 3")

	late := fence.Token{Lease: "s.1of3", Owner: "me", Epoch: 4} // it leads no more
	if found, err := s.begin(t.Context(), []opening{{late, "every 1s", 3}}); err != nil || found[late].verdict != fenced {
		t.Errorf("a begin that comes late: %v, %v", found, err)
	}
	wantProgress(t, db, "after a begin that came late", "s.1of2 08:00:00.000000 3", "s.2of2 08:00:00.000000 3")

	counted(t, db, "s", 1, 4)
	whole := leads(t, db, "s", "me", 9)
	found, err := s.begin(t.Context(), []opening{{whole, "every 2s", 3}})
	if err != nil || found[whole].verdict != begun || time.Since(found[whole].last) > time.Hour {
		t.Errorf("under another schedule: %v, %v", found[whole], err)
	}
}
