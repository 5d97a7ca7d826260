package status

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgtype"
)

// A Line is one line of the audit: who did what, and why.
type Line struct {
	ID      int64
	At      time.Time
	Actor   string
	Via     string // cli, page, api or replica
	Action  string
	Job     string
	Lease   string
	Replica string
	Run     int64
	Request int64
	Reason  string
	Detail  json.RawMessage // nil: none
}

// An AuditOf says which lines are wanted; the zero value: the newest of all.
type AuditOf struct {
	Job    string // empty: of all jobs; AllJobs: what was done to all at once
	Actor  string // empty: whoever it was
	Before int64  // only lines with a lower id; zero: from the newest
	Limit  int    // 1 to Most; zero: 50
}

// An AuditPage is a part of the audit, newest first.
type AuditPage struct {
	AsOf  time.Time
	Lines []Line
	Next  int64 // the Before of the page that follows; zero: there is none
}

const auditSQL = `
SELECT id, at, actor, via, action, job, lease, replica, run_id, request_id, left(reason, 1000), detail
  FROM audit
 WHERE id < $1`

func scanLine(row pgx.CollectableRow) (l Line, err error) {
	var (
		job, lease, replica *string
		run, request        *int64
		detail              []byte
		at                  pgtype.Timestamptz
	)
	err = row.Scan(&l.ID, &at, &l.Actor, &l.Via, &l.Action, &job, &lease, &replica, &run, &request, &l.Reason, &detail)
	l.At, l.Job, l.Lease, l.Replica = instant(at), value(job), value(lease), value(replica)
	l.Run, l.Request, l.Detail = value(run), value(request), detail
	return l, err
}

// Validate says what is wrong with the question.
func (q AuditOf) Validate() error { return validPage(q.Before, q.Limit) }

// Audit reads a page of the audit.
func (r *Reader) Audit(ctx context.Context, q AuditOf) (AuditPage, error) {
	if err := q.Validate(); err != nil {
		return AuditPage{}, err
	}
	q.Limit = cmp.Or(q.Limit, usual)
	sql, args := auditSQL, []any{before(q.Before), q.Limit + 1}
	if q.Job != "" {
		sql, args = sql+` AND job = $3`, append(args, q.Job)
	}
	if q.Actor != "" {
		args = append(args, q.Actor)
		sql += fmt.Sprintf(` AND actor = $%d`, len(args))
	}
	var p AuditPage
	var err error
	p.AsOf, err = r.ask(ctx, []question{{sql + newestSQL, args}}, func(_ time.Time, res pgx.BatchResults) (err error) {
		p.Lines, err = collect(res, scanLine)
		return err
	})
	if err != nil {
		return AuditPage{}, fmt.Errorf("read the audit: %w", err)
	}
	if len(p.Lines) > q.Limit {
		p.Lines = p.Lines[:q.Limit]
		p.Next = p.Lines[q.Limit-1].ID
	}
	return p, nil
}

const knownSQL = `
SELECT EXISTS (SELECT FROM leadership WHERE job_name = $1) OR EXISTS (SELECT FROM runs WHERE job = $1)
    OR EXISTS (SELECT FROM audit WHERE job = $1)`

// Knows reports whether the database has anything of a job of that name.
func (r *Reader) Knows(ctx context.Context, job string) (known bool, err error) {
	_, err = r.ask(ctx, []question{{knownSQL, []any{job}}}, func(_ time.Time, res pgx.BatchResults) error {
		return res.QueryRow().Scan(&known)
	})
	if err != nil {
		return false, fmt.Errorf("look for the job %q: %w", job, err)
	}
	return known, nil
}
