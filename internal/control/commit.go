package control

import (
	"context"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgtype"
)

// inTimeSQL fails, and so keeps the COMMIT behind it from being executed, once it is too late for it. A
// server that was frozen meanwhile executes minutes later what it was sent before, when whoever
// gave the order has long been told that nothing was done, and may have given another.
const inTimeSQL = `SELECT 1 / (clock_timestamp() < $1::timestamptz)::integer`

// tooLateState is the SQLSTATE of that failure, a division by zero.
const tooLateState = "22012"

// commit sends both without a Sync between them. sent says that it may have been done.
func commit(ctx context.Context, conn *pgconn.PgConn, tooLate string) (sent bool, err error) {
	p := conn.StartPipeline(ctx)
	p.SendQueryParams(inTimeSQL, [][]byte{[]byte(tooLate)}, []uint32{pgtype.TextOID}, nil, nil)
	p.SendQueryParams("COMMIT", nil, nil, nil, nil)
	err = p.Sync()
	var done string
	for range 2 {
		if err == nil {
			done, err = result(p)
		}
	}
	if closed := p.Close(); err == nil {
		err = closed
	}
	switch {
	case isState(err, tooLateState):
		return false, err
	case err == nil && done != "COMMIT":
		return false, fmt.Errorf("the server answered COMMIT by %s", done)
	}
	return true, err
}

// result is the tag of the next statement's answer.
func result(p *pgconn.Pipeline) (tag string, err error) {
	next, err := p.GetResults()
	if err != nil {
		return "", err
	}
	reader, ok := next.(*pgconn.ResultReader)
	if !ok {
		return "", fmt.Errorf("unexpected %T from the server", next)
	}
	r := reader.Read()
	return r.CommandTag.String(), r.Err
}

// rollbackTimeout bounds the rollback; a connection that does not answer within it is closed, which
// ends its transaction all the same.
const rollbackTimeout = 200 * time.Millisecond

// rollback ends the transaction if it is still open.
func rollback(ctx context.Context, conn *pgx.Conn) {
	if conn.IsClosed() || conn.PgConn().TxStatus() == 'I' {
		return
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), rollbackTimeout)
	defer cancel()
	_, _ = conn.Exec(ctx, "ROLLBACK")
}
