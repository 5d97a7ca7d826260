package main

import (
	"io"
	"net/http"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/jackc/pgx/v5"

	"rota/internal/pgtest"
)

func startTestSamples(t *testing.T) *samples {
	t.Helper()
	s, err := startSamples(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(s.Close)
	return s
}

// answer is what a sample address answers: its status and its body.
func answer(t *testing.T, url, etag string) (*http.Response, string) {
	t.Helper()
	req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, url, nil)
	if err != nil {
		t.Fatal(err)
	}
	req.Header.Set("If-None-Match", etag)
	res, err := http.DefaultClient.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer res.Body.Close()
	body, err := io.ReadAll(res.Body)
	if err != nil {
		t.Fatal(err)
	}
	return res, string(body)
}

func TestHeldBridgeAnswersOnlyOnceItIsReleased(t *testing.T) {
	t.Parallel()
	s := startTestSamples(t)
	arrived, release := s.Hold(storyBridge)
	answered := make(chan error, 1)
	go func() {
		res, err := http.Get(s.base + "/bridges/" + storyBridge)
		if err == nil {
			res.Body.Close()
		}
		answered <- err
	}()
	<-arrived
	// The successor's ping and the other bridges' are not held.
	for _, id := range []string{storyBridge, "LP-1"} {
		if res, _ := answer(t, s.base+"/bridges/"+id, ""); res.StatusCode != http.StatusOK {
			t.Errorf("%s answers %s", id, res.Status)
		}
	}
	select {
	case err := <-answered:
		t.Errorf("the bridge answered while it was held (%v)", err)
	default:
	}
	release()
	release()
	if err := <-answered; err != nil {
		t.Errorf("after its release: %v", err)
	}
}

func TestClosedSamplesLeaveNoAnswerUnderWay(t *testing.T) {
	t.Parallel()
	s := startTestSamples(t)
	arrived, _ := s.Hold(storyBridge)
	ended := make(chan struct{})
	for _, path := range []string{"/bridges/" + storyBridge, "/quotes"} {
		go func() {
			if res, err := http.Get(s.base + path); err == nil {
				_, _ = io.Copy(io.Discard, res.Body)
				res.Body.Close()
			}
			ended <- struct{}{}
		}()
	}
	<-arrived
	s.Close()
	<-ended
	<-ended
}

func TestSampleWorldHasSomethingToFind(t *testing.T) {
	t.Parallel()
	s := startTestSamples(t)
	var seen []int
	for range 6 {
		res, _ := answer(t, s.base+"/bridges/"+flakyBridge, "")
		seen = append(seen, res.StatusCode)
	}
	if diff := cmp.Diff([]int{200, 200, 200, 503, 503, 200}, seen); diff != "" {
		t.Errorf("the flaky bridge: %s", diff)
	}
	_, csv := answer(t, s.base+"/statement.csv?account="+sampleAccount, "")
	if strings.Count(csv, "\n") != 1+len(sampleTrades(s.day)) || !strings.Contains(csv, "n/a") {
		t.Errorf("the statement is\n%s", csv)
	}
	first, list := answer(t, s.base+"/symbols/XETR", "")
	again, none := answer(t, s.base+"/symbols/XETR", first.Header.Get("ETag"))
	if first.StatusCode != 200 || !strings.Contains(list, "BMW") || again.StatusCode != 304 || none != "" {
		t.Errorf("the list: %s %s, then %s %q", first.Status, list, again.Status, none)
	}
	later, _ := sampleSymbols("XETR", 1)
	if len(later) != 3 || len(sampleVenues["XETR"]) != 4 {
		t.Errorf("a later list has %d symbols, the first %d", len(later), len(sampleVenues["XETR"]))
	}
}

func TestSamplesMayBeFilledInAgain(t *testing.T) {
	t.Parallel()
	db := pgtest.New(t)
	var bridges []string
	for range 2 { // as with a kept database, under other ports
		s := startTestSamples(t)
		if err := s.Fill(t.Context(), db); err != nil {
			t.Fatal(err)
		}
		rows, _ := db.Query(t.Context(), `SELECT address FROM bridges ORDER BY id`)
		var err error
		if bridges, err = pgx.CollectRows(rows, pgx.RowTo[string]); err != nil {
			t.Fatal(err)
		}
		if len(bridges) != 5 || bridges[0] != s.base+"/bridges/LP-1" || bridges[4] != s.tcp {
			t.Errorf("bridges are at %v, not at %s and %s", bridges, s.base, s.tcp)
		}
	}
}
