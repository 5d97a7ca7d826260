package jobs

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
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
