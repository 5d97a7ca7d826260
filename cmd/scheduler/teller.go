package main

import (
	"context"
	"fmt"
	"io"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"rota/internal/lease"
	"rota/internal/web"
)

// A teller tells what happens, in lines that do not cut into each other.
type teller struct {
	mu    sync.Mutex
	out   io.Writer
	quiet bool       // of what it overhears; what is told on purpose is told
	lines []web.Told // the last that were overheard, the newest first
}

// say tells something on purpose.
func (t *teller) say(format string, args ...any) {
	t.mu.Lock()
	defer t.mu.Unlock()
	fmt.Fprintf(t.out, format+"\n", args...)
}

// note tells what was overheard, with the time.
func (t *teller) note(format string, args ...any) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.quiet {
		return
	}
	now := time.Now()
	fmt.Fprintf(t.out, now.Format("15:04:05")+"  "+format+"\n", args...)
	t.lines = slices.Insert(t.lines, 0, web.Told{At: now, Line: fmt.Sprintf(format, args...)})
	t.lines = t.lines[:min(len(t.lines), keptLines)]
}

// keptLines is how many lines the page shows.
const keptLines = 6

// told are the last lines, the newest first.
func (t *teller) told() []web.Told {
	t.mu.Lock()
	defer t.mu.Unlock()
	return slices.Clone(t.lines)
}

// hush makes it tell only what is told on purpose.
func (t *teller) hush() {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.quiet = true
}

// heard tells of a replica's log what somebody who watches wants to know.
func (t *teller) heard(c *child, e entry) {
	switch {
	case e.Msg == msgTermOver && e.Cause != "" && !strings.Contains(e.Cause, "the lead returned"):
		t.note("%s: its term of %s, epoch %d, is over: %s", c.name, e.Lease, e.Epoch, e.Cause)
	case e.Level == "WARN" || e.Level == "ERROR":
		t.note("%s: %s", c.name, e.words())
	}
}

// msgTermOver is what a replica logs when a lead has returned.
const msgTermOver = "term over"

func (e entry) words() string {
	words := []string{e.Msg}
	for _, pair := range [][2]string{{"job", e.Job}, {"lease", e.Lease}, {"cause", e.Cause}, {"error", e.Error}} {
		if pair[1] != "" {
			words = append(words, pair[0]+"="+strings.Join(strings.Fields(pair[1]), " "))
		}
	}
	return strings.Join(words, " ")
}

// A termRow is a term, with the one before it.
type termRow struct {
	JobName    string
	Epoch      int64
	Owner      string
	AcquiredAt time.Time
	PrevOwner  *string
	PrevEnded  *time.Time
	PrevReason *string
}

const newTermsSQL = `SELECT t.job_name, t.epoch, t.owner, t.acquired_at,
		p.owner AS prev_owner, p.ended_at AS prev_ended, p.end_reason AS prev_reason
	FROM terms t LEFT JOIN LATERAL
		(SELECT * FROM terms WHERE job_name = t.job_name AND epoch < t.epoch ORDER BY epoch DESC LIMIT 1) p ON true
	WHERE t.acquired_at > clock_timestamp() - interval '1 minute' ORDER BY t.acquired_at, t.job_name`

// watchTerms tells of each new term, from the database's own history, until ctx ends.
func (t *teller) watchTerms(ctx context.Context, db *pgxpool.Pool) {
	type key struct {
		job   string
		epoch int64
	}
	told := map[key]bool{}
	tick := time.NewTicker(100 * time.Millisecond)
	defer tick.Stop()
	for {
		rows, err := db.Query(ctx, newTermsSQL)
		if err == nil {
			terms, _ := pgx.CollectRows(rows, pgx.RowToStructByName[termRow])
			for _, r := range terms {
				if k := (key{r.JobName, r.Epoch}); !told[k] {
					told[k] = true
					t.note("%s", r.words())
				}
			}
		}
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
	}
}

func (r termRow) words() string {
	who := fmt.Sprintf("%s: led by %s from now on, epoch %d", r.JobName, hostOf(r.Owner), r.Epoch)
	if r.PrevOwner == nil || r.PrevEnded == nil || r.PrevReason == nil {
		return who
	}
	ago := r.AcquiredAt.Sub(*r.PrevEnded).Round(100 * time.Microsecond)
	if *r.PrevReason == "expired" {
		return fmt.Sprintf("%s (the lease of %s ran out %v before)", who, hostOf(*r.PrevOwner), ago)
	}
	return fmt.Sprintf("%s (%s gave it up %v before: %s)", who, hostOf(*r.PrevOwner), ago, whyGiven(*r.PrevReason))
}

// hostOf is the part of an owner id that people know a replica by.
func hostOf(owner string) string {
	if i := strings.LastIndexByte(owner, '/'); i > 0 {
		return owner[:i]
	}
	return owner
}

// whyGiven is why a term was given up, for one who sees it for the first time.
func whyGiven(reason string) string {
	if reason == string(lease.Yield) {
		return "to spread the load"
	}
	return reason
}
