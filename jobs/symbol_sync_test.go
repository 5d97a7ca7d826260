package jobs

import (
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"rota/internal/fence"
	"rota/internal/jobtest"
	"rota/internal/pgtest"
)

func TestBadEntriesOfASymbolListAreNotedAndPassedOver(t *testing.T) {
	t.Parallel()
	listed, bad, err := parseSymbols([]byte(`{"venue": "XETR", "symbols": [
		{"symbol": "SIE", "name": "Siemens", "tick_size": "0.020"}, {"symbol": "ALV", "tick_size": 0.1},
		{"symbol": "", "tick_size": "1"}, {"symbol": "X", "tick_size": "small"}, {"symbol": "Y"}, null, 7,
		{"symbol": "SIE", "tick_size": "1"}, {"symbol": "A\u0000", "tick_size": "1"}]}`))
	if err != nil {
		t.Fatal(err)
	}
	want := []symbol{{"ALV", "", "0.1"}, {"SIE", "Siemens", "0.02"}}
	if diff := cmp.Diff(want, listed); diff != "" || len(bad) != 7 {
		t.Errorf("%d bad entries, want 7: %v\n%s", len(bad), bad, diff)
	}
}

func TestListWithoutAnySymbolRetiresNone(t *testing.T) {
	t.Parallel()
	for _, body := range []string{``, `{}`, `[]`, `{"symbols": []}`, `{"symbols": [{"symbol": "A"`, `{"symbols": [1]}`} {
		if listed, _, err := parseSymbols([]byte(body)); err == nil {
			t.Errorf("%s is taken for a list of %d symbols", body, len(listed))
		}
	}
}

func TestListIsFetchedOnlyWhereItsVersionIsNew(t *testing.T) {
	t.Parallel()
	web := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("ETag", `"v2"`)
		if r.Header.Get("If-None-Match") == `"v2"` || r.URL.Path == "/confused" {
			w.WriteHeader(http.StatusNotModified)
			return
		}
		fmt.Fprint(w, "the list")
	}))
	t.Cleanup(web.Close)
	args := symbolSyncArgs{Timeout: time.Minute, MaxBytes: 10}
	for _, have := range []string{"", `"v1"`} {
		body, etag, err := fetchSymbols(t.Context(), venue{URL: web.URL, Etag: have}, args)
		if string(body) != "the list" || etag != `"v2"` || err != nil {
			t.Errorf("with version %q: %q, %q, %v", have, body, etag, err)
		}
	}
	if body, _, err := fetchSymbols(t.Context(), venue{URL: web.URL, Etag: `"v2"`}, args); body != nil || err != nil {
		t.Errorf("the version at hand was fetched again: %q, %v", body, err)
	}
	_, _, err := fetchSymbols(t.Context(), venue{URL: web.URL + "/confused"}, args)
	if err == nil || !strings.Contains(err.Error(), "304") {
		t.Errorf("not modified since never: error is %v", err)
	}
	args.MaxBytes = 3
	if body, _, err := fetchSymbols(t.Context(), venue{URL: web.URL}, args); err == nil {
		t.Errorf("the beginning of a list passes for the list: %q", body)
	}
}

// A sampleVenue serves the list that it was last given, under its version.
type sampleVenue struct {
	list atomic.Value // of string
	sent atomic.Int64
	*httptest.Server
}

func newSampleVenue(t *testing.T) *sampleVenue {
	t.Helper()
	v := &sampleVenue{}
	v.Server = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		list := v.list.Load().(string)
		etag := fmt.Sprintf("%q", fmt.Sprint(len(list)))
		w.Header().Set("ETag", etag)
		if r.Header.Get("If-None-Match") == etag {
			w.WriteHeader(http.StatusNotModified)
			return
		}
		v.sent.Add(1)
		fmt.Fprint(w, list)
	}))
	t.Cleanup(v.Close)
	return v
}

const (
	symbolsSQL = `SELECT s::text FROM symbols s UNION ALL SELECT l::text FROM symbol_lists l ORDER BY 1`
	tradedSQL  = `SELECT symbol || ' ' || tick_size FROM symbols WHERE retired_at IS NULL ORDER BY 1`
)

func TestSymbolsFollowTheVenuesList(t *testing.T) {
	t.Parallel()
	db, web := pgtest.New(t), newSampleVenue(t)
	mustExec(t, db, `INSERT INTO venues VALUES ('A-gone', 'http://127.0.0.1:1/'), ('XETR', $1)`, web.URL)
	leader := jobtest.LeadOwner(t, db, "symbol_sync", "XETR")
	for _, c := range []struct {
		list, want string
		sent       int64
	}{
		{`{"symbols": [{"symbol": "BMW", "tick_size": "0.02"}, {"symbol": "SAP", "tick_size": "0.02"}]}`, "BMW 0.02\nSAP 0.02", 1},
		{`{"symbols": [{"symbol": "BMW", "tick_size": "0.02"}, {"symbol": "SAP", "tick_size": "0.02"}]}`, "BMW 0.02\nSAP 0.02", 1},
		{`{"symbols": [{"symbol": "SAP", "tick_size": "0.01"}]}`, "SAP 0.01", 2},
		// Of a list with a bad entry nothing is retired, and it is fetched again.
		{`{"symbols": [{"symbol": "BMW", "tick_size": "0.02"}, 7]}`, "BMW 0.02\nSAP 0.01", 3},
		{`{"symbols": [{"symbol": "BMW", "tick_size": "0.02"}, 7]}`, "BMW 0.02\nSAP 0.01", 4},
		{`{"symbols": []}`, "BMW 0.02\nSAP 0.01", 5},
	} {
		web.list.Store(c.list)
		err := leader.Do()
		if err == nil || !strings.Contains(err.Error(), "venue A-gone") {
			t.Errorf("the run returned %v, want the error of the venue that is gone", err)
		}
		if got := lines(t, db, tradedSQL); got != c.want || web.sent.Load() != c.sent {
			t.Errorf("after %s: traded are %q, want %q; %d lists were sent, want %d", c.list, got, c.want, web.sent.Load(), c.sent)
		}
	}
}

// Both shards together do every venue, and each its own alone.
func TestEachVenueIsSyncedByTheShardThatOwnsIt(t *testing.T) {
	t.Parallel()
	db, web := pgtest.New(t), newSampleVenue(t)
	web.list.Store(`{"symbols": [{"symbol": "BMW", "tick_size": "0.02"}]}`)
	mustExec(t, db, `INSERT INTO venues SELECT 'V' || i, $1 FROM generate_series(1, 8) AS i`, web.URL)
	if err := jobtest.LeadOwner(t, db, "symbol_sync", "XETR").Do(); err != nil {
		t.Fatal(err)
	}
	const wantSQL = `SELECT string_agg(name, ' ' ORDER BY name) FROM venues WHERE rota_shard(name, 2) = rota_shard('XETR', 2)`
	got, want := lines(t, db, `SELECT string_agg(venue, ' ' ORDER BY venue) FROM symbol_lists`), lines(t, db, wantSQL)
	if got != want || want == "" {
		t.Errorf("a shard has synced %q, want %q", got, want)
	}
	if err := jobtest.LeadOwner(t, db, "symbol_sync", "XLON").Do(); err != nil { // the other
		t.Fatal(err)
	}
	if got := lines(t, db, `SELECT count(*)::text FROM symbol_lists`); got != "8" {
		t.Errorf("%s of 8 venues are synced", got)
	}
}

// P3: neither the symbols nor the version, which would keep its successor from fetching them.
func TestSupersededLeaderChangesNoSymbolAndNoVersion(t *testing.T) {
	t.Parallel()
	db, web := pgtest.New(t), newSampleVenue(t)
	mustExec(t, db, `INSERT INTO venues VALUES ('XETR', $1)`, web.URL)
	leader := jobtest.LeadOwner(t, db, "symbol_sync", "XETR")
	web.list.Store(`{"symbols": [{"symbol": "BMW", "tick_size": "0.02"}]}`)
	if err := leader.Do(); err != nil {
		t.Fatal(err)
	}
	successor := leader.Successor()
	before := lines(t, db, symbolsSQL)
	web.list.Store(`{"symbols": [{"symbol": "SIEMENS", "tick_size": "0.02"}]}`)
	if err := leader.Do(); !errors.Is(err, fence.ErrFenced) {
		t.Errorf("the superseded leader returned %v, want ErrFenced", err)
	}
	if after := lines(t, db, symbolsSQL); after != before {
		t.Errorf("it changed the symbols from %q to %q", before, after)
	}
	if err := successor.Do(); err != nil {
		t.Fatal(err)
	}
	if got := lines(t, db, tradedSQL); got != "SIEMENS 0.02" {
		t.Errorf("its successor left %q, want SIEMENS", got)
	}
}
