package jobs

import (
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"rota/internal/fence"
	"rota/internal/jobtest"
	"rota/internal/pgtest"
)

const statementHeader = "trade_id,trade_date,symbol,side,quantity,price\n"

func TestBadRowsOfAStatementAreNotedAndPassedOver(t *testing.T) {
	t.Parallel()
	st, err := parseStatement(strings.NewReader("\ufeffprice,trade_id,side,trade_date,symbol,quantity,broker_note\r\n"+
		"10.50,T1,Buy,2026-03-02,SAP,100,\r\n"+
		"n/a,T2,buy,2026-03-02,SAP,100,\r\n"+
		"1,\"T3,buy,2026-03-02,SAP,1,\r\n"+ // a stray quote spoils no more than its own line
		"\r\n"+
		"1,T4,short,2026-03-02,SAP,1,\r\n"+
		"1,T5,sell,2026-02-30,SAP,1,\r\n"+
		"1,T6\r\n"+
		"7,T1,buy,2026-03-02,SAP,1,\r\n"+
		"7,T\x007,buy,2026-03-02,SAP,1,\r\n"+
		"2,T8,sell,2026-03-03,SIE,007.0,\"x, y\""), 100)
	if err != nil {
		t.Fatal(err)
	}
	want := &statement{
		Trades: map[string]trade{
			"T1": {"T1", "2026-03-02", "SAP", "buy", "100", "10.5"},
			"T8": {"T8", "2026-03-03", "SIE", "sell", "7", "2"},
		},
		Unreadable: map[string]string{
			"T2": `line 3: price: "n/a" is no decimal number`,
			"T4": `line 6: side is "short", not buy or sell`,
			"T5": `line 7: "2026-02-30" is no date (YYYY-MM-DD)`,
			"T6": `line 8: 2 fields instead of 7`,
			"T1": `line 9: its trade was listed before`,
		},
		First: "2026-03-02", Last: "2026-03-03", Rows: 9, Bad: 7,
	}
	if len(st.BadRows) != 5 {
		t.Errorf("%d bad rows are quoted, want the first 5", len(st.BadRows))
	}
	st.BadRows = nil
	if diff := cmp.Diff(want, st); diff != "" {
		t.Error(diff)
	}
}

func TestStatementThatIsNotWholeIsAnError(t *testing.T) {
	t.Parallel()
	row := "T1,2026-03-02,SAP,buy,1,1\n"
	broken := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		switch r.URL.Path {
		case "/breaks-off":
			w.Header().Set("Content-Length", "1000")
			fmt.Fprint(w, statementHeader+row)
		case "/gone":
			w.WriteHeader(http.StatusNotFound)
		}
	}))
	t.Cleanup(broken.Close)
	args := reconciliationArgs{Timeout: time.Minute, MaxBytes: 200, MaxRows: 3, MaxDays: 7}
	for text, want := range map[string]string{
		broken.URL + "/breaks-off":               "unexpected EOF",
		broken.URL + "/gone":                     "answered 404",
		"/no/such/file":                          "no such file",
		"":                                       "header",
		"trade_id,symbol\n" + row:                "no column trade_date",
		statementHeader:                          "no readable row",
		statementHeader + "T1,x\n":               "no readable row (1 bad)",
		statementHeader + strings.Repeat(row, 4): "more than 3 rows",
		statementHeader + row + strings.Repeat("\n", 200):     "too large",
		statementHeader + row + "T2,2025-03-02,SAP,buy,1,1\n": "covers 366 days",
	} {
		source := text
		if text == "" || strings.Contains(text, "\n") {
			source = filepath.Join(t.TempDir(), "statement.csv")
			if err := os.WriteFile(source, []byte(text), 0o600); err != nil {
				t.Fatal(err)
			}
		}
		if _, err := readStatement(t.Context(), source, args); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("statement %.50q: error is %v, want %q", text, err, want)
		}
	}
}

func TestBreaksAreWhatTheTwoSidesDisagreeOn(t *testing.T) {
	t.Parallel()
	st, err := parseStatement(strings.NewReader(statementHeader+
		"same,2026-03-02,SAP,buy,100,10.50\n"+
		"both,2026-03-02,SAP,buy,101,10.500000000001\n"+
		"moved,2026-03-03,SAP,sell,1,1\n"+
		"extra,2026-03-02,SIE,buy,5,2\n"+
		"bad,2026-03-02,SIE,buy,many,2\n"), 100)
	if err != nil {
		t.Fatal(err)
	}
	engine := []trade{
		{"same", "2026-03-02", "SAP", "buy", "100", "10.5"},
		{"both", "2026-03-02", "SAP", "buy", "100", "10.5"},
		{"moved", "2026-03-01", "SIE", "sell", "1", "1"},
		{"lost", "2026-03-02", "SAP", "buy", "3", "4"},
		{"bad", "2026-03-02", "SIE", "buy", "1", "2"},
	}
	want := []tradeBreak{
		{"bad", "unreadable", "2026-03-03", "", `line 6: quantity: "many" is no decimal number`},
		{"both", "price", "2026-03-02", "10.5", "10.500000000001"},
		{"both", "quantity", "2026-03-02", "100", "101"},
		{"extra", "missing_at_engine", "2026-03-02", "", "buy 5 SIE at 2"},
		{"lost", "missing_at_broker", "2026-03-02", "buy 3 SAP at 4", ""},
		{"moved", "symbol", "2026-03-03", "SIE", "SAP"},
		{"moved", "trade_date", "2026-03-03", "2026-03-01", "2026-03-03"},
	}
	got := findBreaks(st, engine)
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
	slices.Reverse(engine)
	if diff := cmp.Diff(got, findBreaks(st, engine)); diff != "" {
		t.Errorf("in another order the breaks are others: %s", diff)
	}
}

func TestBreaksFollowTheStatementAndStayAsTheyAreWithoutAChange(t *testing.T) {
	t.Parallel()
	db := pgtest.New(t)
	csv := filepath.Join(t.TempDir(), "statement.csv")
	says := func(rows ...string) {
		t.Helper()
		if err := os.WriteFile(csv, []byte(statementHeader+strings.Join(rows, "\n")), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	mustExec(t, db, `INSERT INTO accounts VALUES ('A-broken', '/no/such/file'), ('B', $1)`, csv)
	mustExec(t, db, `INSERT INTO trades VALUES
		('B', 'T1', '2026-03-02', 'SAP', 'buy', 100, 10.500), ('B', 'T2', '2026-03-02', 'SAP', 'buy', 5, 7),
		('B', 'T3', '2026-03-01', 'SAP', 'buy', 5, 7), ('B', 'T4', '2026-03-01', 'SAP', 'buy', 5, 7)`)
	mustExec(t, db, `INSERT INTO breaks (account, trade_id, kind, trade_date) VALUES ('B', 'T3', 'price', '2026-03-01')`)
	leader := jobtest.Lead(t, db, "reconciliation")
	reconcile := func(want string) (rows string) {
		t.Helper()
		err := leader.Do()
		if err == nil || !strings.Contains(err.Error(), "account A-broken") || strings.Contains(err.Error(), "account B") {
			t.Fatalf("the run returned %v, want only the broken account's error", err)
		}
		got := lines(t, db, `SELECT concat_ws(' ', trade_id, kind, engine, broker) FROM breaks WHERE closed_at IS NULL ORDER BY 1`)
		if got != want {
			t.Errorf("open breaks are\n%s\nwant\n%s", got, want)
		}
		return lines(t, db, `SELECT b::text || ' written by ' || xmin FROM breaks b ORDER BY 1`)
	}

	// T3's day is not in the statement: neither is its break closed nor is it missing.
	says("T1,2026-03-02,SAP,buy,101,10.5", "T4,2026-03-02,SAP,buy,5,7", "T9,2026-03-02,SAP,buy,1,1")
	const found = `
T1 quantity 100 101
T2 missing_at_broker buy 5 SAP at 7 
T3 price  
T4 trade_date 2026-03-01 2026-03-02
T9 missing_at_engine  buy 1 SAP at 1`
	first := reconcile(found[1:])
	if again := reconcile(found[1:]); again != first {
		t.Errorf("a second run made\n%s\nof\n%s", again, first)
	}
	const foundSQL = `SELECT found_at::text FROM breaks WHERE trade_id = 'T1'`
	since := lines(t, db, foundSQL)
	says("T1,2026-03-02,SAP,buy,102,10.5", "T2,2026-03-02,SAP,buy,5,7")
	reconcile("T1 quantity 100 102\nT3 price  ")
	if got := lines(t, db, foundSQL); got != since {
		t.Errorf("a break that only changed is open since %s, want %s", got, since)
	}
	says("T1,2026-03-02,SAP,buy,100,10.5", "T2,2026-03-02,SAP,buy,many,7")
	reconcile(`T2 unreadable  line 3: quantity: "many" is no decimal number` + "\nT3 price  ")
	says("T1,2026-03-02,SAP,buy,102,10.5", "T2,2026-03-02,SAP,buy,5,7")
	reconcile("T1 quantity 100 102\nT3 price  ")
	if got := lines(t, db, foundSQL); got == since {
		t.Errorf("a break that was closed in between is open since %s still", got)
	}
}

// P3: whatever it has found, breaks opened and closed, is refused as a whole.
func TestSupersededLeaderOpensAndClosesNoBreak(t *testing.T) {
	t.Parallel()
	db := pgtest.New(t)
	csv := filepath.Join(t.TempDir(), "statement.csv")
	if err := os.WriteFile(csv, []byte(statementHeader+"T1,2026-03-02,SAP,buy,1,1\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	mustExec(t, db, `INSERT INTO accounts VALUES ('B', $1)`, csv)
	mustExec(t, db, `INSERT INTO breaks (account, trade_id, kind, trade_date) VALUES ('B', 'T0', 'price', '2026-03-02')`)
	leader := jobtest.Lead(t, db, "reconciliation")
	successor := leader.Successor()
	before := lines(t, db, `SELECT b::text FROM breaks b`)
	if err := leader.Do(); !errors.Is(err, fence.ErrFenced) {
		t.Errorf("the superseded leader returned %v, want ErrFenced", err)
	}
	if after := lines(t, db, `SELECT b::text FROM breaks b`); after != before {
		t.Errorf("it changed the breaks from %q to %q", before, after)
	}
	if err := successor.Do(); err != nil {
		t.Fatal(err)
	}
	if got := lines(t, db, `SELECT trade_id FROM breaks WHERE closed_at IS NULL AND epoch = 2`); got != "T1" {
		t.Errorf("its successor left %q open, want T1", got)
	}
}
