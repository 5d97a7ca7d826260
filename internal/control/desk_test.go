package control

import (
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

func TestRunNowSaysWhatToExpect(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		given func(*office)
		want  string
	}{
		"nobody leads":         {func(*office) {}, "nobody leads the job: it waits"},
		"a lease that ran out": {func(o *office) { o.led("prices", "a/1", 1); o.exec(`UPDATE leadership SET expires_at = now()`) }, "nobody leads the job"},
		"led and idle":         {func(o *office) { o.led("prices", "a/1", 1) }, "it starts at once on a/1"},
		"running":              {func(o *office) { o.led("prices", "a/1", 1); o.running("prices") }, "it waits for the run under way on a/1"},
		"asked for before": {func(o *office) {
			o.led("prices", "a/1", 1)
			must[Asked](o.t)(o.RunNow(o.t.Context(), order(""), "prices", nil, ""))
		}, "it waits for the run under way"},
		"paused":     {func(o *office) { must[Paused](o.t)(o.Pause(o.t.Context(), order("x"), "prices", time.Time{})) }, "does not keep a requested run back"},
		"all paused": {func(o *office) { must[Paused](o.t)(o.Pause(o.t.Context(), order("x"), AllJobs, time.Time{})) }, "does not keep a requested run back"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			o := newOffice(t)
			c.given(o)
			a := must[Asked](t)(o.RunNow(t.Context(), order("why"), "prices", object(`{"Limit": 7}`), ""))
			if a.ID == 0 || a.Existed || a.Job != "prices" || !strings.Contains(a.Expect, c.want) {
				t.Errorf("%+v, want %q", a, c.want)
			}
			lines := o.audit()
			want := written{
				Actor: "alice", Via: CLI, Action: "run", Job: "prices", Lease: "prices", Reason: "why", Request: a.ID,
				Detail: map[string]any{"args": map[string]any{"Limit": 7.0}},
			}
			if diff := cmp.Diff(want, lines[len(lines)-1]); diff != "" {
				t.Error(diff)
			}
		})
	}
}

func TestRunNowRefusesWhatTheJobWouldNotTake(t *testing.T) {
	t.Parallel()
	o := newOffice(t)
	o.led("another_version", "a/1", 1)
	for _, c := range []struct {
		job, args, key string
		kind           error
		words          string
	}{
		{"nothing", "", "", ErrNotFound, `there is no job "nothing"; there are: plain, prices, stream`},
		{"", "", "", ErrNotFound, "there is no job"},
		{"stream", "", "", ErrInvalid, "continuous"},
		{"prices", `[1]`, "", ErrInvalid, "no object"},
		{"prices", `null`, "", ErrInvalid, "no object"},
		{"prices", `"a"`, "", ErrInvalid, "no object"},
		{"prices", `{"Limit": 5} {}`, "", ErrInvalid, "no JSON"},
		{"prices", `{"Limit":`, "", ErrInvalid, "no JSON"},
		{"prices", `{"Limt": 5}`, "", ErrInvalid, "Limt"},
		{"prices", `{"Limit": "x", "Wait": "y"}`, "", ErrInvalid, "Limit"},
		{"plain", `{"Limit": 5}`, "", ErrInvalid, "takes none"},
		{"another_version", `{"x": "\u0000"}`, "", ErrInvalid, "cannot be stored"},
		{"another_version", `{"x": "` + strings.Repeat("x", longestArgs) + `"}`, "", ErrInvalid, "at most"},
		{"prices", "", strings.Repeat("k", longestKey+1), ErrInvalid, "key"},
		{"prices", "", "a\x00b", ErrInvalid, "key"},
	} {
		_, err := o.RunNow(t.Context(), order(""), c.job, object(c.args), c.key)
		wantRefusal(t, err, c.kind, c.words)
	}
	for _, ok := range []string{"", " ", "{}", `{"wait": "5s"}`} {
		must[Asked](t)(o.RunNow(t.Context(), order(""), "prices", object(ok), ""))
	}
	must[Asked](t)(o.RunNow(t.Context(), order(""), "another_version", object(`{"whatever": 1}`), ""))
	if n := one[int](o, `SELECT count(*) FROM audit`); n != 5 {
		t.Errorf("%d lines of the audit for 5 requests", n)
	}
}

func TestSameKeyIsTheSameRequest(t *testing.T) {
	t.Parallel()
	o := newOffice(t)
	ctx := t.Context()
	first := must[Asked](t)(o.RunNow(ctx, order(""), "prices", object(`{"Limit": 7, "Wait": "1s"}`), "k"))
	again := must[Asked](t)(o.RunNow(ctx, order("other"), "prices", object(` {"Wait":"1s","Limit":7}`), "k"))
	if again.ID != first.ID || !again.Existed || first.Existed {
		t.Errorf("%+v after %+v", again, first)
	}
	for _, args := range []string{`{"Limit": 8}`, `{}`, ``} {
		_, err := o.RunNow(ctx, order(""), "prices", object(args), "k")
		wantRefusal(t, err, ErrRefused, "with other arguments")
	}
	if other := must[Asked](t)(o.RunNow(ctx, order(""), "plain", nil, "k")); other.ID == first.ID || other.Existed {
		t.Errorf("another job's request is taken for the same: %+v", other)
	}
	o.exec(`UPDATE requests SET done_at = now(), result = 'success' WHERE id = $1`, first.ID)
	if late := must[Asked](t)(o.RunNow(ctx, order(""), "prices", object(`{"Limit": 7, "Wait": "1s"}`), "k")); !late.Existed || late.Expect != "it was settled: success" {
		t.Errorf("%+v", late)
	}
	if n := len(o.audit()); n != 2 {
		t.Errorf("%d lines of the audit for 2 requests", n)
	}
}

func TestSameKeyIsTheSameRequestAtTheSameMoment(t *testing.T) {
	t.Parallel()
	o := newOffice(t)
	var all sync.WaitGroup
	ids := make([]int64, 12)
	for i := range ids {
		all.Go(func() {
			a, err := o.RunNow(t.Context(), order(""), "prices", object(`{"Limit": 7}`), "k")
			if err != nil {
				t.Error(err)
			}
			ids[i] = a.ID
		})
	}
	all.Wait()
	for _, id := range ids {
		if id != ids[0] {
			t.Fatalf("requests %v", ids)
		}
	}
	if n := one[int](o, `SELECT count(*) FROM audit`); n != 1 {
		t.Errorf("%d lines of the audit", n)
	}
}

func TestRequestsThatNobodyTakesAreBounded(t *testing.T) {
	t.Parallel()
	o := newOffice(t)
	o.exec(`INSERT INTO requests (kind, job, lease, asked_by) SELECT 'run', 'prices', 'prices', 'x' FROM generate_series(1, $1)`, mostWaiting)
	_, err := o.RunNow(t.Context(), order(""), "prices", nil, "")
	wantRefusal(t, err, ErrRefused, "wait already")
	must[Asked](t)(o.RunNow(t.Context(), order(""), "plain", nil, ""))
}

func TestOrdersSayWhoAndWhy(t *testing.T) {
	t.Parallel()
	o := newOffice(t)
	o.led("prices", "a/1", 1)
	run := o.running("prices")
	ctx := t.Context()
	orders := map[string]func(Order) error{
		"pause":     func(w Order) error { _, err := o.Pause(ctx, w, "prices", time.Time{}); return err },
		"step down": func(w Order) error { _, err := o.StepDown(ctx, w, "prices"); return err },
		"drain":     func(w Order) error { _, err := o.Drain(ctx, w, "a/1"); return err },
		"revoke":    func(w Order) error { _, err := o.Revoke(ctx, w, "prices", 0); return err },
		"run":       func(w Order) error { _, err := o.RunNow(ctx, w, "prices", nil, ""); return err },
		"cancel":    func(w Order) error { _, err := o.Cancel(ctx, w, run); return err },
		"resume":    func(w Order) error { _, err := o.Resume(ctx, w, "prices"); return err },
	}
	for name, give := range orders {
		wantRefusal(t, give(Order{Via: CLI, Reason: "x"}), ErrInvalid, "say who")
		wantRefusal(t, give(Order{By: " \n", Via: CLI, Reason: "x"}), ErrInvalid, "say who")
		wantRefusal(t, give(Order{By: "x", Via: "replica", Reason: "x"}), ErrInvalid, "via")
		wantRefusal(t, give(Order{By: "x", Via: CLI, Reason: strings.Repeat("x", 10_000)}), ErrInvalid, "the reason has 10000 bytes, and at most 1000 are kept")
		wantRefusal(t, give(Order{By: strings.Repeat("x", 201), Via: CLI, Reason: "x"}), ErrInvalid, "has 201 bytes, and at most 200 are kept")
		wantRefusal(t, give(Order{By: "x", Via: CLI, Reason: "a\x00b"}), ErrInvalid, "the reason holds a zero byte")
		wantRefusal(t, give(Order{By: "x", Via: CLI, Reason: "a\xffb"}), ErrInvalid, "the reason is no text in UTF-8")
		wantRefusal(t, give(Order{By: "\u200b", Via: CLI, Reason: "x"}), ErrInvalid, "say who")
		if name == "run" {
			continue
		}
		wantRefusal(t, give(Order{By: "x", Via: CLI, Reason: " \t"}), ErrInvalid, "say why")
		for _, unseen := range []string{"\u200b\u200b", "\u00ad", "\u2060 \ufeff", "\u3164", "\u2800", "\u115f", "\u0301", "\ufe0f", "\u202e\u2066", "\U000e0041", "\u00a0\u2003"} {
			wantRefusal(t, give(Order{By: "x", Via: CLI, Reason: unseen}), ErrInvalid, "say why")
		}
	}
	if n := len(o.audit()); n != 0 {
		t.Errorf("%d lines of the audit for orders that were refused", n)
	}
	must[Paused](t)(o.Pause(ctx, Order{By: "al\n ice", Via: API, Reason: "two\nlines"}, "prices", time.Time{}))
	if l := o.audit()[0]; l.Actor != "al ice" || l.Reason != "two lines" || l.Via != API {
		t.Errorf("%+v", l)
	}
}

func TestCancelNamesARunThatLasts(t *testing.T) {
	t.Parallel()
	o := newOffice(t)
	ctx := t.Context()
	o.led("prices", "a/1", 1)
	run := o.running("prices")
	first := must[Asked](t)(o.Cancel(ctx, order("stuck"), run))
	if first.Run != run || first.Replica != "a/1" || !strings.Contains(first.Expect, "its context ends on a/1") {
		t.Errorf("%+v", first)
	}
	if again := must[Asked](t)(o.Cancel(ctx, order("x"), run)); again.ID != first.ID || !again.Existed {
		t.Errorf("%+v after %+v", again, first)
	}
	if diff := cmp.Diff([]written{{
		Actor: "alice", Via: CLI, Action: "cancel", Job: "prices", Lease: "prices", Reason: "stuck", Run: run, Request: first.ID, Detail: map[string]any{},
	}}, o.audit()); diff != "" {
		t.Error(diff)
	}
	o.exec(`UPDATE leadership SET epoch = 2`)
	if late := must[Asked](t)(o.Cancel(ctx, order("x"), run)); !strings.Contains(late.Expect, "closes it as lost") {
		t.Errorf("%+v", late)
	}
	o.exec(`UPDATE runs SET ended_at = now(), outcome = 'failed'`)
	_, err := o.Cancel(ctx, order("x"), run)
	wantRefusal(t, err, ErrRefused, "has ended already: failed")
	_, err = o.Cancel(ctx, order("x"), run+1)
	wantRefusal(t, err, ErrNotFound, "there is no run")
}

func TestPauseLastsUntilItsTimeOrUntilItIsResumed(t *testing.T) {
	t.Parallel()
	o := newOffice(t)
	ctx := t.Context()
	until := time.Now().Add(time.Hour).Truncate(time.Microsecond).UTC()
	p := must[Paused](t)(o.Pause(ctx, order("incident 7"), "prices", until))
	if p.Replaced != nil || p.Pause.Job != "prices" || !p.Pause.Until.Equal(until) || p.Pause.At.IsZero() {
		t.Errorf("%+v", p)
	}
	second := must[Paused](t)(o.Pause(ctx, Order{By: "bob", Via: Page, Reason: "longer"}, "prices", time.Time{}))
	if second.Replaced == nil || second.Replaced.Reason != "incident 7" || second.Replaced.By != "alice" {
		t.Errorf("%+v", second)
	}
	_, err := o.Pause(ctx, order("x"), "prices", time.Now().Add(-time.Second))
	wantRefusal(t, err, ErrInvalid, "past by the database's clock")
	_, err = o.Pause(ctx, order("x"), "nothing", time.Time{})
	wantRefusal(t, err, ErrNotFound, "there is no job")

	must[Paused](t)(o.Pause(ctx, order("all"), AllJobs, time.Time{}))
	r := must[Resumed](t)(o.Resume(ctx, order("x"), "prices"))
	if r.Ended.By != "bob" || r.Still == nil || r.Still.Reason != "all" {
		t.Errorf("%+v", r)
	}
	_, err = o.Resume(ctx, order("x"), "prices")
	wantRefusal(t, err, ErrRefused, "all jobs are paused by alice (all); resume all")
	if r := must[Resumed](t)(o.Resume(ctx, order("x"), AllJobs)); r.Still != nil || r.Ended.Job != AllJobs {
		t.Errorf("%+v", r)
	}
	_, err = o.Resume(ctx, order("x"), AllJobs)
	wantRefusal(t, err, ErrRefused, "nothing to resume")
	_, err = o.Resume(ctx, order("x"), "prices")
	wantRefusal(t, err, ErrRefused, "is not paused")
	_, err = o.Resume(ctx, order("x"), "nothing")
	wantRefusal(t, err, ErrNotFound, "there is no job")
	o.exec(`INSERT INTO pauses (job, reason, paused_by, paused_at, until) VALUES ('prices', 'old', 'bob', now() - interval '2 hours', now() - interval '1 hour')`)
	_, err = o.Resume(ctx, order("x"), "prices")
	wantRefusal(t, err, ErrRefused, "is not paused")

	var actions []string
	for _, l := range o.audit() {
		actions = append(actions, l.Action+" "+l.Job)
	}
	if diff := cmp.Diff([]string{"pause prices", "pause prices", "pause *", "resume prices", "resume *"}, actions); diff != "" {
		t.Error(diff)
	}
}

func TestStepDownNamesTheTermThatLeads(t *testing.T) {
	t.Parallel()
	o := newOffice(t)
	ctx := t.Context()
	o.led("prices", "a/1", 7)
	first := must[Asked](t)(o.StepDown(ctx, order("x"), "prices"))
	if first.Epoch != 7 || first.Replica != "a/1" || !strings.Contains(first.Expect, "no other replica is there") {
		t.Errorf("%+v", first)
	}
	if again := must[Asked](t)(o.StepDown(ctx, order("x"), "prices")); again.ID != first.ID || !again.Existed {
		t.Errorf("%+v after %+v", again, first)
	}
	o.led("prices", "b/1", 8)
	if next := must[Asked](t)(o.StepDown(ctx, order("x"), "prices")); !strings.Contains(next.Expect, "no other replica that is there can lead it") {
		t.Errorf("%+v", next)
	}
	o.exec(`UPDATE requests SET done_at = now(), result = 'x'`)
	o.able("a/1", "prices")
	if next := must[Asked](t)(o.StepDown(ctx, order("x"), "prices")); next.Existed || next.Epoch != 8 || !strings.Contains(next.Expect, "another takes over") {
		t.Errorf("%+v", next)
	}
	o.exec(`DELETE FROM replicas WHERE id = 'b/1'`)
	if next := must[Asked](t)(o.StepDown(ctx, order("x"), "prices")); !strings.Contains(next.Expect, "leases revoke ends its term") {
		t.Errorf("%+v", next)
	}
	o.exec(`UPDATE leadership SET expires_at = now()`)
	_, err := o.StepDown(ctx, order("x"), "prices")
	wantRefusal(t, err, ErrRefused, "nobody leads")
	_, err = o.StepDown(ctx, order("x"), "plain")
	wantRefusal(t, err, ErrRefused, "nobody leads")
	_, err = o.StepDown(ctx, order("x"), "nothing")
	wantRefusal(t, err, ErrNotFound, "there is no lease")
}

func TestDrainFindsTheOneReplicaThatIsMeant(t *testing.T) {
	t.Parallel()
	o := newOffice(t)
	ctx := t.Context()
	for _, id := range []string{"host-1/aa1", "host-1/ab2", "host-10/cc3", "solo/dd4", "gone/ee5"} {
		o.member(id)
	}
	o.exec(`UPDATE replicas SET expires_at = now() WHERE id = 'gone/ee5'`)
	for _, c := range []struct {
		name, want string
		kind       error
		words      string
	}{
		{"host-1/aa1", "host-1/aa1", nil, ""},
		{"host-1/ab", "host-1/ab2", nil, ""},
		{"solo", "solo/dd4", nil, ""},
		{"host-10", "host-10/cc3", nil, ""},
		{"host-1", "", ErrInvalid, "may be any of 3 replicas: give more of the id: host-1/aa1, host-1/ab2, host-10/cc3"},
		{"gone", "", ErrNotFound, "there is no replica"},
		{"%", "", ErrNotFound, "there is no replica"},
		{"", "", ErrInvalid, "no replica is named"},
	} {
		a, err := o.Drain(ctx, order("x"), c.name)
		if c.kind != nil {
			wantRefusal(t, err, c.kind, c.words)
			continue
		}
		if err != nil || a.Replica != c.want || a.ID == 0 {
			t.Errorf("%s: %+v %v", c.name, a, err)
		}
	}
	if again := must[Asked](t)(o.Drain(ctx, order("x"), "solo")); !again.Existed {
		t.Errorf("%+v", again)
	}
	o.exec(`UPDATE requests SET done_at = now(), result = 'x'`)
	o.exec(`UPDATE replicas SET draining = true WHERE id = 'solo/dd4'`)
	_, err := o.Drain(ctx, order("x"), "solo")
	wantRefusal(t, err, ErrRefused, "is draining already")
	o.able("solo/dd4", "prices")
	o.able("host-1/ab2", "plain", "prices.of2")
	for _, lease := range []string{"prices", "plain", "prices.1of2", "prices.1of3"} {
		o.led(lease, "host-1/aa1", 1)
	}
	if one := must[Asked](t)(o.Drain(ctx, order("x"), "host-1/aa1")); !strings.Contains(one.Expect, "2 of its leases no other replica that is there can lead") {
		t.Errorf("%+v", one) // solo drains
	}
	o.exec(`UPDATE requests SET done_at = now(), result = 'x'`)
	o.exec(`DELETE FROM replicas WHERE NOT draining AND id <> 'host-1/aa1'`)
	if last := must[Asked](t)(o.Drain(ctx, order("x"), "host-1/aa1")); !strings.Contains(last.Expect, "nobody will lead anything") {
		t.Errorf("%+v", last)
	}
}

func TestOrdersAreAnnounced(t *testing.T) {
	t.Parallel()
	o := newOffice(t)
	o.led("prices", "a/1", 1)
	next := o.listening()
	must[Asked](t)(o.RunNow(t.Context(), order(""), "prices", nil, ""))
	if got := next(); got != "steer" {
		t.Errorf("announced %q", got)
	}
	must[Revoked](t)(o.Revoke(t.Context(), order("x"), "prices", 0))
	if got := next(); got != "prices" {
		t.Errorf("announced %q", got)
	}
}

// A hint that cannot be given is no reason not to do what was asked.
func TestOrdersAreTakenWhereTheyCannotBeAnnounced(t *testing.T) {
	t.Parallel()
	o := newOffice(t)
	o.led("prices", "a/1", 1)
	// The channel's name is longer than a channel's may be, which only pg_notify finds out.
	o.exec(`CREATE OR REPLACE FUNCTION rota_channel() RETURNS text LANGUAGE sql STABLE AS $$ SELECT repeat('x', 100) $$`)
	must[Asked](t)(o.RunNow(t.Context(), order(""), "prices", nil, ""))
	must[Revoked](t)(o.Revoke(t.Context(), order("x"), "prices", 0))
	if lines := o.audit(); len(lines) != 3 {
		t.Errorf("audit: %+v", lines)
	}
}

// Request, effect and audit are one transaction: where the audit cannot be written nothing is done.
func TestNothingIsDoneWithoutItsLineInTheAudit(t *testing.T) {
	t.Parallel()
	o := newOffice(t)
	ctx := t.Context()
	o.led("prices", "a/1", 1)
	run := o.running("prices")
	must[Paused](t)(o.Pause(ctx, order("x"), "plain", time.Time{}))
	o.exec(`ALTER TABLE audit ADD CONSTRAINT closed CHECK (false) NOT VALID`)
	for name, give := range map[string]func() error{
		"pause":     func() error { _, err := o.Pause(ctx, order("x"), "prices", time.Time{}); return err },
		"resume":    func() error { _, err := o.Resume(ctx, order("x"), "plain"); return err },
		"step down": func() error { _, err := o.StepDown(ctx, order("x"), "prices"); return err },
		"drain":     func() error { _, err := o.Drain(ctx, order("x"), "a/1"); return err },
		"revoke":    func() error { _, err := o.Revoke(ctx, order("x"), "prices", 0); return err },
		"run":       func() error { _, err := o.RunNow(ctx, order("x"), "prices", nil, "k"); return err },
		"cancel":    func() error { _, err := o.Cancel(ctx, order("x"), run); return err },
	} {
		if err := give(); err == nil || !strings.Contains(err.Error(), "write the audit") {
			t.Errorf("%s: %v", name, err)
		}
	}
	if n := one[int](o, `SELECT count(*) FROM requests`); n != 0 {
		t.Errorf("%d requests were made", n)
	}
	if n := one[int](o, `SELECT count(*) FROM pauses WHERE job = 'plain'`); n != 1 {
		t.Error("the pauses have changed")
	}
	if !one[bool](o, `SELECT expires_at > clock_timestamp() FROM leadership`) {
		t.Error("the term was ended")
	}
}
