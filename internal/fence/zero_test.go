package fence_test

import (
	"bytes"
	"context"
	"errors"
	"net"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5/pgxpool"

	"rota/internal/fence"
)

// keepOutSQL has the table turn away every row without an error, as a user's own trigger may.
const keepOutSQL = `
CREATE FUNCTION keep_out() RETURNS trigger LANGUAGE plpgsql AS 'BEGIN RETURN NULL; END';
CREATE TRIGGER keep_out BEFORE INSERT ON bridge_status FOR EACH ROW EXECUTE FUNCTION keep_out()`

// P3: no row written is a refusal where the term is over or the row has a higher epoch, each with
// its reason, and none where the table's own trigger kept the rows out.
func TestUpsertThatWroteNothingSaysWhy(t *testing.T) {
	t.Parallel()
	for _, c := range []struct{ name, sql, why string }{
		{"a trigger keeps rows out", keepOutSQL, ""},
		{"a trigger keeps rows out, and the lease has run out", keepOutSQL + `; UPDATE leadership SET expires_at = now() - interval '1 s'`, "its lease has passed on or has expired"},
		{"the lease has run out", `UPDATE leadership SET expires_at = now() - interval '1 s'`, "its lease has passed on or has expired"},
		{"another term", `UPDATE leadership SET owner = 'b', epoch = epoch + 1`, "its lease has passed on or has expired"},
		{"another owner under the same epoch", `UPDATE leadership SET owner = 'b'`, "its lease has passed on or has expired"},
		{"a row has a higher epoch", `INSERT INTO bridge_status VALUES ('LP-1', 'UP', now(), 99)`, "a row was written or raised under a higher epoch"},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			db := newDB(t)
			one, many := takeOver(t, db, "a"), (*leader)(nil)
			many = writerOf(t, db, one.token)
			exec(t, db, c.sql)
			before := value[string](t, db, everythingSQL)
			for rows, err := range map[string]error{
				"one row":   one.Upsert(within(t), bridgeStatus, status{"LP-1", "DOWN"}),
				"many rows": many.Upsert(within(t), bridgeStatus, []status{{"LP-1", "DOWN"}, {"LP-2", "DOWN"}}),
			} {
				switch {
				case c.why == "" && err != nil:
					t.Errorf("%s: got %v, want no error", rows, err)
				case c.why != "" && (!errors.Is(err, fence.ErrFenced) || !strings.Contains(err.Error(), c.why)):
					t.Errorf("%s: got %v, want ErrFenced: %s", rows, err, c.why)
				}
			}
			if now := value[string](t, db, everythingSQL); now != before {
				t.Errorf("written all the same:\n%s\n%s", before, now)
			}
		})
	}
}

// A prepared connection waits half a second for locks, and only one that reaches its server itself:
// a session behind a pooler belongs to others too.
func TestPrepareSparesTheSettingOnDirectConnections(t *testing.T) {
	t.Parallel()
	const now = `SELECT current_setting('lock_timeout')`
	url := newDB(t).Config().ConnString()
	direct := poolOn(t, url, func(cfg *pgxpool.Config) { cfg.AfterConnect = fence.Prepare })
	if got := value[string](t, direct, now); got != "500ms" {
		t.Errorf("on a direct connection: lock_timeout is %s", got)
	}
	pooled := poolOn(t, url, func(cfg *pgxpool.Config) {
		cfg.AfterConnect = fence.Prepare
		dial := cfg.ConnConfig.DialFunc
		cfg.ConnConfig.DialFunc = func(ctx context.Context, network, address string) (net.Conn, error) {
			conn, err := dial(ctx, network, address)
			return &renaming{conn}, err
		}
	})
	if got := value[string](t, pooled, now); got != "0" {
		t.Errorf("behind a pooler: lock_timeout is %s", got)
	}
}

// renaming gives the server's process another number, as a pooler does.
type renaming struct{ net.Conn }

func (r *renaming) Read(b []byte) (int, error) {
	n, err := r.Conn.Read(b)
	key := []byte{'K', 0, 0, 0, 12} // BackendKeyData: the process's number follows
	if i := bytes.Index(b[:n], key); i >= 0 && i+len(key) < n {
		b[i+len(key)] ^= 0xc0 // above what an integer holds, as poolers make them up
	}
	return n, err
}
