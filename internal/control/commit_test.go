package control

import (
	"errors"
	"testing"
)

// What is executed too late is not done, whatever was sent in time, and is told for what it is.
func TestWhatComesTooLateIsNotCommitted(t *testing.T) {
	t.Parallel()
	o := newOffice(t)
	ctx := t.Context()
	for tooLate, want := range map[string]int{"2000-01-01Z": 0, "2999-01-01Z": 1} {
		conn, err := o.db.Acquire(ctx)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := conn.Exec(ctx, `BEGIN; INSERT INTO pauses (job, reason, paused_by) VALUES ('prices', 'x', 'alice')`); err != nil {
			t.Fatal(err)
		}
		sent, err := commit(ctx, conn.Conn().PgConn(), tooLate)
		rollback(ctx, conn.Conn())
		conn.Release()
		told := explain(ctx, err, "pause prices", sent)
		if n := one[int](o, `SELECT count(*) FROM pauses`); n != want || sent != (want == 1) || errors.Is(told, ErrSilent) == (want == 1) {
			t.Errorf("until %s: %d rows, sent %t: %v", tooLate, n, sent, told)
		}
		o.exec(`DELETE FROM pauses`)
	}
}
