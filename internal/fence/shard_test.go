package fence_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"

	"rota/internal/fence"
)

// By which of two answers a key's rows are raised and its work is done must not differ.
func TestKeyHasOneShardInGoAndInSQL(t *testing.T) {
	t.Parallel()
	db := newDB(t)
	keys := []string{"", " ", "XETR", "xetr", "ключ", "a\nb", "🙂", strings.Repeat("long ", 1000), "1", "-1", "123e4567-e89b-12d3-a456-426614174000"}
	for i := range 500 {
		keys = append(keys, fmt.Sprintf("account %d", i*7919))
	}
	for _, of := range []int{1, 2, 3, 4, 6, 7, 100, fence.MostShards} {
		found := map[int]bool{}
		for _, key := range keys {
			k := value[int](t, db, `SELECT rota_shard($1, $2)`, key, of)
			if got := fence.ShardOf(key, of); got != k || k < 1 || k > of {
				t.Fatalf("%.40q is of shard %d of %d in Go, and %d in SQL", key, got, of, k)
			}
			found[k] = true
		}
		if len(found) < min(of, 90) {
			t.Errorf("%d keys are spread over %d of %d shards", len(keys), len(found), of)
		}
	}
	if k := fence.ShardOf("XETR", 4); k != 2 {
		t.Errorf("XETR is of shard %d of 4, and was of shard 2 for as long as there have been shards", k)
	}
}

func TestLeaseNamesSayTheShard(t *testing.T) {
	t.Parallel()
	for _, of := range []int{0, 1, 2, 12, fence.MostShards} {
		for _, s := range fence.Shards(of) {
			job, got := fence.SplitLease(s.Lease("symbol_sync"))
			if job != "symbol_sync" || got != s {
				t.Errorf("%s is taken for shard %v of %s", s.Lease("symbol_sync"), got, job)
			}
		}
	}
	for _, name := range []string{
		"symbol_sync", "", ".", ".1of2", "a.", "a.b", "a.of", "a.1of", "a.of2", "a.0of2", "a.3of2", "a.1of1", "a.01of2", "a.1of2of3",
		"a.1of2.1of2", "a.-1of2", "a.1of02", "a.+1of2", "a.1of1025", "a.1of99999999999999999999", "a. 1of2",
	} {
		if job, s := fence.SplitLease(name); job != name || s != (fence.Shard{}) {
			t.Errorf("%q is taken for shard %v of %q", name, s, job)
		}
	}
}

// shardedTables have a shard's column each, one as the second of its key.
var (
	shardedStatus   = fence.Table{Name: "bridge_status", Key: []string{"bridge_id"}, Shard: "bridge_id", Stamp: "checked_at"}
	shardedReadings = fence.Table{Name: "desk.readings", Key: []string{"bridge_id", "day"}, Shard: "bridge_id"}
)

// lead takes the lease of a shard, with the epoch that is given.
func lead(t testing.TB, db *pgxpool.Pool, owner string, s fence.Shard, epoch int64) *leader {
	t.Helper()
	token := fence.Token{Lease: s.Lease(lease), Owner: owner, Epoch: epoch}
	exec(t, db, `INSERT INTO leadership VALUES ($1, $2, clock_timestamp() + '1 hour', $3)
		ON CONFLICT (job_name) DO UPDATE SET owner = $2, expires_at = EXCLUDED.expires_at, epoch = $3`, token.Lease, owner, epoch)
	l := writerOf(t, db, token)
	l.Writer = fence.NewWriter(l.term, l.end, db, token, s, shardedStatus, shardedReadings)
	return l
}

// keysOf are n keys of a shard.
func keysOf(s fence.Shard, n int) (keys []string) {
	for i := 0; len(keys) < n; i++ {
		if key := fmt.Sprintf("LP-%d", i); s.Owns(key) {
			keys = append(keys, key)
		}
	}
	return keys
}

// P4: and the rows of the others, which others write at the same time, are left alone.
func TestShardRaisesItsOwnRows(t *testing.T) {
	t.Parallel()
	db := newDB(t)
	// More than one statement raises, and more than one range of pages.
	exec(t, db, `INSERT INTO bridge_status SELECT 'LP-' || i, 'UP', now(), 3 FROM generate_series(1, 18000) AS i`)
	exec(t, db, `INSERT INTO readings SELECT 'LP-' || i, '2026-01-01', i, 4 FROM generate_series(1, 100) AS i`)
	const below = `SELECT count(*) FROM (SELECT bridge_id, epoch FROM bridge_status UNION ALL SELECT bridge_id, epoch FROM readings) r WHERE rota_shard(bridge_id, 4) = $1 AND epoch < $2`
	const above = `SELECT count(*) FROM (SELECT bridge_id, epoch FROM bridge_status UNION ALL SELECT bridge_id, epoch FROM readings) r WHERE rota_shard(bridge_id, 4) <> $1 AND epoch > 4`
	two := fence.Shard{K: 2, Of: 4}
	highest, err := fence.Raise(within(t), db, lead(t, db, "a", two, 10).token, two, shardedStatus, shardedReadings)
	if err != nil || highest != 4 {
		t.Errorf("it met epoch %d and the error %v, want 4", highest, err)
	}
	if n, m := value[int](t, db, below, 2, 10), value[int](t, db, above, 2); n != 0 || m != 0 {
		t.Errorf("%d of its rows are not raised, and %d of others are", n, m)
	}
	// A shard whose epoch is lower does not meet what the others have raised.
	three := fence.Shard{K: 3, Of: 4}
	highest, err = fence.Raise(within(t), db, lead(t, db, "b", three, 9).token, three, shardedStatus, shardedReadings)
	if err != nil || highest != 4 || value[int](t, db, below, 3, 9) != 0 {
		t.Errorf("beside a shard with a higher epoch it met epoch %d and the error %v, want 4", highest, err)
	}
	if highest, err := fence.Raise(within(t), db, lead(t, db, "c", two, 8).token, two, shardedStatus); err != nil || highest != 10 {
		t.Errorf("behind its own rows it met epoch %d and the error %v, want 10", highest, err)
	}
}

func TestShardsWriterRefusesRowsOfOthers(t *testing.T) {
	t.Parallel()
	db := newDB(t)
	one, two := fence.Shard{K: 1, Of: 2}, fence.Shard{K: 2, Of: 2}
	w := lead(t, db, "a", one, 1)
	own, others := keysOf(one, 2), keysOf(two, 1)
	wantNoError(t, w.Upsert(within(t), shardedStatus, []status{{own[0], "UP"}, {own[1], "UP"}}))
	err := w.Upsert(within(t), shardedStatus, []status{{own[0], "DOWN"}, {others[0], "DOWN"}})
	if err == nil || !strings.Contains(err.Error(), others[0]) || !strings.Contains(err.Error(), "2of2") || errors.Is(err, fence.ErrFenced) {
		t.Errorf("the error on another shard's row is %v", err)
	}
	if n := value[int](t, db, `SELECT count(*) FROM bridge_status WHERE health = 'DOWN'`); n != 0 || w.term.Err() != nil {
		t.Errorf("%d rows were written beside it, and its term ended with %v", n, context.Cause(w.term))
	}
	// The other shard's writer may.
	wantNoError(t, lead(t, db, "b", two, 2).Upsert(within(t), shardedStatus, status{others[0], "UP"}))
}

// A key that the database would write in another way has its shard by that.
func TestShardsKeyIsGivenAsTheDatabaseWritesIt(t *testing.T) {
	t.Parallel()
	db := newDB(t)
	exec(t, db, `CREATE TABLE accounts (id bigint PRIMARY KEY); SELECT fence_protect('accounts');
		CREATE TABLE desks (id uuid PRIMARY KEY); SELECT fence_protect('desks');
		CREATE TABLE days (id date PRIMARY KEY); SELECT fence_protect('days')`)
	const upper = "123E4567-E89B-12D3-A456-426614174000"
	type number struct {
		ID int64 `db:"id"`
	}
	type text struct {
		ID string `db:"id"`
	}
	type raw struct {
		ID [16]byte `db:"id"`
	}
	for _, c := range []struct {
		table string
		key   string // as stored
		row   any
		want  string // in the error; empty: none
	}{
		{"accounts", "7", number{7}, ""},
		{"accounts", "-70", text{"-70"}, ""},
		{"accounts", "7", text{"007"}, "as text"},
		{"desks", strings.ToLower(upper), text{strings.ToLower(upper)}, ""},
		{"desks", strings.ToLower(upper), text{upper}, "as text"},
		{"desks", "01000000-0000-0000-0000-000000000000", raw{[16]byte{1}}, ""},
		{"days", "2026-01-01", text{"2026-01-01"}, "as text"},
	} {
		s := fence.Shard{K: fence.ShardOf(c.key, 3), Of: 3}
		table := fence.Table{Name: c.table, Key: []string{"id"}, Shard: "id"}
		l := lead(t, db, "a", s, 1)
		err := fence.NewWriter(l.term, l.end, db, l.token, s, table).Upsert(within(t), table, c.row)
		if (err == nil) != (c.want == "") || err != nil && !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s, %v: error is %v, want %q", c.table, c.row, err, c.want)
		}
	}
	for _, s := range fence.Shards(3) {
		if n := value[int](t, db, `SELECT count(*) FROM accounts WHERE rota_shard(id::text, 3) = $1 AND NOT id = ANY ($2)`, s.K, []int64{7, -70}); n != 0 {
			t.Errorf("%d further accounts of shard %v", n, s)
		}
	}
}

func TestShardsNeedTablesThatSayWhoseARowIs(t *testing.T) {
	t.Parallel()
	db := newDB(t)
	s := fence.Shard{K: 1, Of: 2}
	l := lead(t, db, "a", s, 1)
	large := prices
	large.Shard = "symbol"
	left := shardedStatus
	exec(t, db, `SELECT fence_protect('bridge_status', true)`)
	for want, table := range map[string]fence.Table{
		"in Shard":             bridgeStatus,
		"no column of its Key": {Name: "bridge_status", Key: []string{"bridge_id"}, Shard: "health"},
		"it is Large":          large,
		"fence_protect('\"bridge_status\"', false)": left,
	} {
		if _, err := fence.Raise(within(t), db, l.token, s, table); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("raise: got %v, want %q", err, want)
		}
	}
	w := fence.NewWriter(l.term, l.end, db, l.token, s, bridgeStatus)
	if err := w.Upsert(within(t), bridgeStatus, status{keysOf(s, 1)[0], "UP"}); err == nil || !strings.Contains(err.Error(), "in Shard") {
		t.Errorf("upsert: got %v", err)
	}
}

// P8: the backends of a replica that leads another shard are not those of a former leader.
func TestShardsRaiseLeavesTheWritersOfOthersAlone(t *testing.T) {
	t.Parallel()
	db := newDB(t)
	one, two := fence.Shard{K: 1, Of: 2}, fence.Shard{K: 2, Of: 2}
	own := keysOf(one, 1)
	for _, c := range []struct {
		holder string // of a row of the first shard
		ended  bool
	}{{"host/former", true}, {"host/other", false}} {
		lead(t, db, "host/other", two, 2)
		next := lead(t, db, "host/next", one, 3)
		exec(t, db, `INSERT INTO bridge_status VALUES ($1, 'UP', now(), 0) ON CONFLICT (bridge_id) DO UPDATE SET epoch = 1`, own[0])
		_, uuid, _ := strings.Cut(c.holder, "/")
		tx, err := poolNamed(t, db, "rota "+uuid).Begin(within(t))
		if err != nil {
			t.Fatal(err)
		}
		if _, err := tx.Exec(within(t), `SELECT FROM bridge_status WHERE bridge_id = $1 FOR UPDATE`, own[0]); err != nil {
			t.Fatal(err)
		}
		ctx, cancel := context.WithTimeout(t.Context(), 2*time.Second)
		if !c.ended {
			cancel()
			ctx, cancel = context.WithTimeout(t.Context(), 700*time.Millisecond)
		}
		_, err = fence.Raise(ctx, poolNamed(t, db, "rota next"), next.token, one, shardedStatus)
		cancel()
		if (err == nil) != c.ended {
			t.Errorf("a row held by %s: the raise returned %v", c.holder, err)
		}
		if err := tx.Commit(within(t)); (err == nil) == c.ended {
			t.Errorf("the transaction of %s: %v", c.holder, err)
		}
		exec(t, db, `TRUNCATE leadership, bridge_status`)
	}
}

func poolNamed(t testing.TB, db *pgxpool.Pool, name string) *pgxpool.Pool {
	t.Helper()
	return poolOn(t, db.Config().ConnString(), func(cfg *pgxpool.Config) { cfg.ConnConfig.RuntimeParams["application_name"] = name })
}
