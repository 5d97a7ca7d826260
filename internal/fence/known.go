package fence

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"
)

// A known is what the upsert of a single row has learned on a connection: until when the lease is known
// to be held by the writer's term, and that the session's lock_timeout is set. For a second the next ones
// there need not look, which is most of what the guard takes.
//
// Order is not touched by it: whoever takes over changes the lease's epoch, which every statement locks.
// A release by hand is seen a second late at most, if nobody has taken over before.
type known struct {
	until time.Time // by the database's clock
	asked time.Time // by this process's
}

const knownFor = time.Second

// A statement that comes late finds that what was known has run out, and no row, as one whose term has
// passed does. The term stands in its text, for each parameter costs a hundredth of a small upsert; so each
// term's is prepared anew, by a connection's second row.
const guardKnownSQL = `
SELECT FROM lease_epochs e
 WHERE e.job_name = %s AND e.epoch = %d AND e.owner = %s AND $1::timestamptz > clock_timestamp()
   FOR KEY SHARE OF e`

func (t Token) guardKnownSQL() string {
	return fmt.Sprintf(guardKnownSQL, literal(t.Lease), t.Epoch, literal(t.Owner))
}

// literal is a text as SQL has it, whatever standard_conforming_strings says.
func literal(s string) string {
	return `E'` + strings.NewReplacer(`'`, `''`, `\`, `\\`).Replace(s) + `'`
}

// knownSQL is what the upsert that looks returns.
const knownSQL = `
RETURNING (SELECT least(expires_at, clock_timestamp() + interval '1 second') FROM leadership WHERE job_name = $1::text)`

// sendOne sends a single row, and does not say why it wrote nothing if it did not.
func (w *Writer) sendOne(ctx context.Context, conn *pgx.Conn, s *statement, row []cell) (wrote bool, err error) {
	if until, ok := w.known(conn); ok {
		tag, err := conn.Exec(ctx, s.again, single(append(make([]any, 0, 1+len(row)), until), row)...)
		if wrote = tag.RowsAffected() > 0; !wrote {
			w.know(conn, known{})
		}
		return wrote, err
	}
	k := known{asked: time.Now()}
	own := ownSession(conn)
	err = conn.QueryRow(ctx, s.one, single(w.token.args(!own), row)...).Scan(&k.until)
	switch {
	case errors.Is(err, pgx.ErrNoRows):
		return false, nil
	case err == nil && own:
		w.know(conn, k)
	}
	return err == nil, err
}

func (w *Writer) known(conn *pgx.Conn) (until time.Time, ok bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	k, ok := w.knowns[conn]
	return k.until, ok && time.Since(k.asked) < knownFor
}

// know forgets what is no longer new, of connections that have been closed too.
func (w *Writer) know(conn *pgx.Conn, k known) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.knowns[conn] = k
	for c, k := range w.knowns {
		if time.Since(k.asked) >= knownFor {
			delete(w.knowns, c)
		}
	}
}

// sessionKey is where a connection says that its session in the server is nobody else's.
const sessionKey = "rota.own_session"

func ownSession(conn *pgx.Conn) bool {
	return conn.PgConn().CustomData()[sessionKey] != nil
}
