package web

import (
	"net/http"
	"net/url"
	"strings"
	"testing"

	"rota/internal/pgtest"
)

// goWords begin what Go's own libraries say, which means nothing to whoever gives an order.
var goWords = []string{"strconv", "json:", "Go struct", "parsing time", "time:", "invalid character", "unmarshal", "ERROR:", "SQLSTATE", "context deadline"}

// A wrong field is told by its name, by what it is and by what it must be, in our words, and nothing is done.
func TestWrongFieldsAreToldInOurWords(t *testing.T) {
	t.Parallel()
	db := pgtest.New(t)
	h := serve(db, told(t, db))
	get(t, h, "/")
	before := stored(t, db)
	const run, pause, revoke = "/jobs/bridge_health/run", "/jobs/bridge_health/pause", "/leases/bridge_health/revoke"
	for _, tt := range []struct{ address, body, want string }{
		{revoke, `{"reason": "x", "typed": "bridge_health", "above": 1e30}`, `The field above is "1e30": it must be a whole number from 0 to`},
		{revoke, `{"reason": "x", "typed": "bridge_health", "above": -1}`, `The field above is "-1": it must be a whole number from 0 to`},
		{revoke, `{"reason": "x", "typed": "bridge_health", "above": "7"}`, `it must be a whole number, without quotes`},
		{revoke, `{"reason": "x", "typed": "bridge_health", "above": 99999999999999999999}`, `it must be a whole number from 0 to`},
		{pause, `{"reason": "x", "until": "tomorrow"}`, `The field until is "tomorrow": it must be a time with its zone, as in`},
		{pause, `{"reason": "x", "until": "2999-01-01T00:00"}`, `it must be a time with its zone`},
		{pause, `{"reason": "x", "until": 5}`, `The field until is 5: it must be text, in quotes`},
		{pause, `{"reason": "x", "until": "0001-01-01T00:00:00Z"}`, `a time that is still to come`},
		{pause, `{"reason": 5}`, `The field reason is 5: it must be text`},
		{pause, `{"reason": "x", "untl": "2999-01-01T00:00:00Z"}`, `There is no field "untl" here. There are: reason, until`},
		{pause, `{"reason": "x", "args": {}}`, `There is no field "args" here`},
		{pause, `{"reason": "x", "reason": "y"}`, `The field reason is given twice`},
		{pause, `{"reason": "x"} {}`, `no JSON from its byte 17 on`},
		{pause, `{"reason": }`, `no JSON from its byte 12 on`},
		{pause, `["x"]`, `JSON, but no object`},
		{pause, "{\"reason\": \"\xff\"}", `no text in UTF-8`},
		{pause, `{"reason": "a\u0000b"}`, `The reason holds a zero byte`},
		{pause, `{"reason": "\u200b\u200b"}`, `characters that nobody sees`},
		{pause, `{"reason": "` + strings.Repeat("x", 10_000) + `"}`, `has 10000 bytes, and at most 1000 are kept`},
		{run, `{"shard": 1.5}`, `it must be a whole number`},
		{run, `{"args": {"Patient": "-5s"}}`, `Patient: "-5s": it must not be negative`},
		{run, `{"args": {"Patient": -5000000000}}`, `must not be negative`},
		{run, `{"args": {"Patient": "99999999999h"}}`, `it must be at most 292 years`},
		{run, `{"args": {"Patient": "soon"}}`, `it must be a duration with its unit`},
		{run, `{"args": {"Limit": 1e30}}`, `Limit: 1e30: it must be a whole number`},
		{run, `{"args": {"Limit": "\u0000"}}`, `zero byte`},
		{run, `{"args": [1]}`, `no object`},
		{run, `{"key": "a\u0000"}`, `The key holds a zero byte`},
		{run, `{"key": "` + strings.Repeat("k", 201) + `"}`, `The key has 201 bytes, and at most 200`},

		{pause, "reason=x&until=tomorrow", `The field until is "tomorrow"`},
		{pause, "reason=x&until=0001-01-01T00:00", `still to come`},
		{pause, "reason=x&reason=y", `reason: it is given 2 times`},
		{pause, "reason=x&shard=1", `"shard": there is no such field`},
		{pause, "reason=a%00b", `reason "a\x00b": it must be UTF-8, without zero bytes`},
		{pause, "reason=%ff", `it must be UTF-8`},
		{pause, "reason=%zz", `a percent sign stands before two hexadecimal digits`},
		{pause, "reason=%E2%80%8B", `characters that nobody sees`},
		{run, "shard=x", `The field shard is "x": it must be a whole number`},
		{run, "args=" + url.QueryEscape("{\"Limit\": \"\xff\"}"), `it must be UTF-8`},
		{revoke, "reason=x&typed=bridge_health&above=1e30", `The field above is "1e30"`},
	} {
		address, kind := tt.address, "application/x-www-form-urlencoded"
		if tt.body[0] == '{' || tt.body[0] == '[' {
			address, kind = apiPath+tt.address, kindJSON
		}
		w := giveOrder(h, address, kind, tt.body)
		body := strings.NewReplacer("&#34;", `"`, `\"`, `"`, `\\`, `\`).Replace(w.Body.String())
		if w.Code != http.StatusBadRequest || !strings.Contains(body, tt.want) || !strings.Contains(body, "Nothing was done") {
			t.Errorf("%s %.60s: %d, want %q\n%.2000s", tt.address, tt.body, w.Code, tt.want, body)
		}
		for _, words := range goWords {
			if strings.Contains(body, words) {
				t.Errorf("%s %.60s says %q:\n%s", tt.address, tt.body, words, body)
			}
		}
		isTold(t, w, address)
	}
	if after := stored(t, db); after != before {
		t.Errorf("something was done:\n%s\nbefore:\n%s", after, before)
	}
}
