package status

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgtype"
)

// The kinds of events.
const (
	Began = "began" // a term
	Ended = "ended" // a term
	Asked = "asked" // an operator did something: a line of the audit
)

// An Event is one thing that happened to a lease, or was done to it.
type Event struct {
	At     time.Time
	Kind   string
	Lease  string // or the job, of a line of the audit that names no lease
	Epoch  int64  // of a term
	Owner  string // of a term
	Reason string
	Line   *Line // of Asked
}

// An EventsOf asks for events; the zero value: the newest of all.
type EventsOf struct {
	Kind   string // one of Began, Ended and Asked, or "terms" for the first two; empty: all
	Lease  string // of one lease or job; empty: of all
	Actor  string // of Asked alone: who did it; empty: whoever it was
	Before string // a Next; empty: from the newest
	Limit  int    // 1 to Most; zero: 100
}

// Terms is the kind that asks for both ends of terms.
const Terms = "terms"

// An EventsPage is a part of the events, newest first.
type EventsPage struct {
	AsOf   time.Time
	Events []Event
	Next   string // the Before of the page that follows; empty: there is none
}

const usualEvents = 100

// Each part begins below the cursor (at, kind, id, name), where no two events are alike. A renewal
// gives many leases one expiry, so that many terms end at one instant.
const (
	beganSQL = `
SELECT acquired_at AS at, 'began' AS kind, epoch AS n, job_name AS name, owner, NULL AS reason
  FROM terms WHERE NOT starts_with(owner, '` + nobodys + `') AND ($3::text = '' OR job_name = $3) AND acquired_at <= $1 AND (acquired_at, 'began', epoch, job_name COLLATE "C") < ($1::timestamptz, $4::text, $5::bigint, $6::text)
 ORDER BY at DESC, n DESC, job_name COLLATE "C" DESC LIMIT $2`

	endedSQL = `
SELECT ended_at AS at, 'ended' AS kind, epoch AS n, job_name AS name, owner, end_reason AS reason
  FROM terms WHERE NOT starts_with(owner, '` + nobodys + `') AND ($3::text = '' OR job_name = $3) AND ended_at <= $1 AND (ended_at, 'ended', epoch, job_name COLLATE "C") < ($1::timestamptz, $4::text, $5::bigint, $6::text)
 ORDER BY at DESC, n DESC, job_name COLLATE "C" DESC LIMIT $2`

	askedSQL = `
SELECT id, at, actor, via, action, job, lease, replica, run_id, request_id, left(reason, 1000), detail
  FROM audit WHERE ($3::text = '' OR job = $3 OR lease = $3) AND at <= $1 AND (at, 'asked', id, '') < ($1::timestamptz, $4::text, $5::bigint, $6::text) AND ($7::text = '' OR actor = $7)
 ORDER BY id DESC LIMIT $2`
)

// Validate says what is wrong with the question.
func (q EventsOf) Validate() error {
	if q.Kind != "" && !slices.Contains([]string{Began, Ended, Asked, Terms}, q.Kind) {
		return fmt.Errorf("kind %q: it must be began, ended, asked or terms", q.Kind)
	}
	_, err := q.cursor()
	return errors.Join(err, validPage(0, q.Limit))
}

// A cursor is the place of an event among all.
type cursor struct {
	at   time.Time
	kind string
	n    int64
	name string
}

func (c cursor) String() string {
	return fmt.Sprintf("%d~%s~%d~%s", c.at.UnixMicro(), c.kind, c.n, c.name)
}

func (q EventsOf) cursor() (cursor, error) {
	if q.Before == "" {
		return cursor{at: time.Date(9999, 1, 1, 0, 0, 0, 0, time.UTC)}, nil
	}
	parts := strings.SplitN(q.Before, "~", 4)
	if len(parts) == 4 {
		at, err := strconv.ParseInt(parts[0], 10, 64)
		n, wrong := strconv.ParseInt(parts[2], 10, 64)
		if t := time.UnixMicro(at).UTC(); err == nil && wrong == nil && t.Year() >= 1 && t.Year() <= 9999 {
			return cursor{t, parts[1], n, parts[3]}, nil
		}
	}
	return cursor{}, fmt.Errorf("before %.40q: it must be what the page before it said", q.Before)
}

// Events reads a page of what happened; it is kept as a snapshot is. Where asking is false it returns
// what is remembered.
func (r *Reader) Events(ctx context.Context, q EventsOf, asking bool) (Reading[EventsPage], error) {
	from, err := q.cursor()
	if err == nil {
		err = q.Validate()
	}
	if err != nil {
		return Reading[EventsPage]{}, err
	}
	q.Limit = cmp.Or(q.Limit, usualEvents)
	k := r.events.of(q)
	if !asking {
		return k.peek()
	}
	return k.get(ctx, r.fresh, r.patience, func(ctx context.Context) (EventsPage, error) {
		var p EventsPage
		var err error
		p.AsOf, err = r.ask(ctx, q.questions(from), func(_ time.Time, res pgx.BatchResults) error { return p.load(q, res) })
		if err != nil {
			return EventsPage{}, fmt.Errorf("read the events: %w", err)
		}
		return p, nil
	})
}

// wants reports whether events of the kind are asked for.
func (q EventsOf) wants(kind string) bool {
	return q.Kind == "" || q.Kind == kind || q.Kind == Terms && kind != Asked
}

func (q EventsOf) questions(from cursor) []question {
	args := []any{from.at, q.Limit + 1, q.Lease, from.kind, from.n, from.name}
	var all []question
	if q.wants(Began) && q.Actor == "" {
		all = append(all, question{beganSQL, args})
	}
	if q.wants(Ended) && q.Actor == "" {
		all = append(all, question{endedSQL, args})
	}
	if q.wants(Asked) {
		all = append(all, question{askedSQL, append(slices.Clone(args), q.Actor)})
	}
	return all
}

func (p *EventsPage) load(q EventsOf, res pgx.BatchResults) error {
	for _, kind := range []string{Began, Ended} {
		if !q.wants(kind) || q.Actor != "" {
			continue
		}
		terms, err := collect(res, scanEvent)
		if err != nil {
			return err
		}
		p.Events = append(p.Events, terms...)
	}
	if q.wants(Asked) {
		lines, err := collect(res, scanLine)
		if err != nil {
			return err
		}
		for _, l := range lines {
			name := l.Lease
			if name == "" {
				name = l.Job
			}
			p.Events = append(p.Events, Event{At: l.At, Kind: Asked, Lease: name, Reason: l.Reason, Line: &l})
		}
	}
	slices.SortFunc(p.Events, func(a, b Event) int { return b.place().compare(a.place()) })
	if len(p.Events) > q.Limit {
		p.Events = p.Events[:q.Limit]
		p.Next = p.Events[q.Limit-1].place().String()
	}
	return nil
}

func (e Event) place() cursor {
	if e.Line != nil {
		return cursor{e.At, e.Kind, e.Line.ID, ""}
	}
	return cursor{e.At, e.Kind, e.Epoch, e.Lease}
}

func (c cursor) compare(d cursor) int {
	if n := c.at.Compare(d.at); n != 0 {
		return n
	}
	if n := strings.Compare(c.kind, d.kind); n != 0 {
		return n
	}
	if c.n != d.n {
		if c.n < d.n {
			return -1
		}
		return 1
	}
	return strings.Compare(c.name, d.name)
}

func scanEvent(row pgx.CollectableRow) (e Event, err error) {
	var at pgtype.Timestamptz
	var reason *string
	err = row.Scan(&at, &e.Kind, &e.Epoch, &e.Lease, &e.Owner, &reason)
	e.At, e.Reason = instant(at), value(reason)
	return e, err
}
