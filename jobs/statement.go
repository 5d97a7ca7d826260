package jobs

import (
	"bufio"
	"context"
	"encoding/csv"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"slices"
	"strings"
	"time"
)

// A trade is one as either side has it, in a form in which equal trades are equal strings.
type trade struct{ ID, Date, Symbol, Side, Quantity, Price string }

func (t trade) String() string {
	return t.Side + " " + t.Quantity + " " + t.Symbol + " at " + t.Price
}

// A statement is what a broker says of one account. It covers the days that its rows name.
type statement struct {
	Trades      map[string]trade
	Unreadable  map[string]string // why, for each trade whose row is there but cannot be read
	First, Last string            // the days it covers
	Rows, Bad   int
	BadRows     []string // why the first few are bad
}

// readStatement reads a file, or fetches a URL. A bad row is noted and passed over; a statement
// that breaks off, is too large or has no row at all is an error, since it says nothing of the
// trades that it lacks.
func readStatement(ctx context.Context, source string, args reconciliationArgs) (*statement, error) {
	ctx, cancel := context.WithTimeout(ctx, args.Timeout)
	defer cancel()
	body, err := openStatement(ctx, source)
	if err != nil {
		return nil, err
	}
	defer body.Close()
	st, err := parseStatement(limited(body, args.MaxBytes), args.MaxRows)
	if err != nil {
		return nil, err
	}
	return st, st.checkDays(args.MaxDays)
}

func openStatement(ctx context.Context, source string) (io.ReadCloser, error) {
	if !strings.HasPrefix(source, "http://") && !strings.HasPrefix(source, "https://") {
		return os.Open(source)
	}
	req, err := newGet(ctx, source)
	if err != nil {
		return nil, err
	}
	res, err := client.Do(req)
	if err != nil {
		return nil, err
	}
	if res.StatusCode != http.StatusOK {
		res.Body.Close()
		return nil, unexpected(res)
	}
	return res.Body, nil
}

var statementColumns = []string{"trade_id", "trade_date", "symbol", "side", "quantity", "price"}

// parseStatement reads line by line, so that a stray quote spoils one row and not all that
// follow. Columns are found by the names in the first line, and may come in any order.
func parseStatement(r io.Reader, maxRows int) (*statement, error) {
	lines := bufio.NewScanner(r)
	lines.Scan()
	header, err := splitRow(strings.TrimPrefix(lines.Text(), "\ufeff"))
	if err := errors.Join(lines.Err(), err); err != nil {
		return nil, fmt.Errorf("header: %w", err)
	}
	column := make([]int, len(statementColumns))
	for i, name := range statementColumns {
		if column[i] = slices.Index(header, name); column[i] < 0 {
			return nil, fmt.Errorf("header has no column %s", name)
		}
	}
	st := &statement{Trades: map[string]trade{}, Unreadable: map[string]string{}}
	for line := 2; lines.Scan(); line++ {
		if strings.TrimSpace(lines.Text()) == "" {
			continue
		}
		if st.Rows++; st.Rows > maxRows {
			return nil, fmt.Errorf("more than %d rows", maxRows)
		}
		fields, err := splitRow(lines.Text())
		if err == nil && len(fields) != len(header) {
			err = fmt.Errorf("%d fields instead of %d", len(fields), len(header))
		}
		row := make([]string, len(column))
		for i, at := range column {
			if at < len(fields) {
				row[i] = fields[at]
			}
		}
		st.add(line, row, err)
	}
	if err := lines.Err(); err != nil {
		return nil, err
	}
	if len(st.Trades) == 0 {
		return nil, fmt.Errorf("no readable row (%d bad)", st.Bad)
	}
	return st, nil
}

func splitRow(line string) ([]string, error) {
	r := csv.NewReader(strings.NewReader(line))
	r.TrimLeadingSpace = true
	fields, err := r.Read()
	for i := range fields {
		fields[i] = strings.TrimSpace(fields[i])
	}
	return fields, err
}

// add takes one row, whose fields are in the order of statementColumns; err is what is wrong
// with it already.
func (s *statement) add(line int, row []string, err error) {
	t := trade{ID: row[0], Date: row[1], Symbol: row[2], Side: strings.ToLower(row[3])}
	if err == nil {
		t.Quantity, t.Price, err = t.check(row[4], row[5])
	}
	if _, again := s.Trades[t.ID]; again && err == nil {
		err = errors.New("its trade was listed before")
	}
	if err == nil {
		s.Trades[t.ID] = t
		if s.First == "" || t.Date < s.First {
			s.First = t.Date
		}
		s.Last = max(s.Last, t.Date)
		return
	}
	why := fmt.Sprintf("line %d: %v", line, err)
	if s.Bad++; s.Bad <= 5 {
		s.BadRows = append(s.BadRows, why)
	}
	if isName(t.ID) {
		s.Unreadable[t.ID] = printable(why)
	}
}

// check returns the quantity and the price in their one form, or what is wrong with the row.
func (t trade) check(quantity, price string) (q, p string, err error) {
	for _, text := range []string{t.ID, t.Symbol} {
		if !isName(text) {
			return "", "", fmt.Errorf("%.40q is no trade id or symbol", text)
		}
	}
	if _, err := time.Parse(time.DateOnly, t.Date); err != nil {
		return "", "", fmt.Errorf("%.40q is no date (YYYY-MM-DD)", t.Date)
	}
	if t.Side != "buy" && t.Side != "sell" {
		return "", "", fmt.Errorf("side is %.40q, not buy or sell", t.Side)
	}
	if q, err = decimal(quantity); err != nil {
		return "", "", fmt.Errorf("quantity: %w", err)
	}
	if p, err = decimal(price); err != nil {
		return "", "", fmt.Errorf("price: %w", err)
	}
	return q, p, nil
}

// checkDays refuses a statement that covers more than max days.
func (s *statement) checkDays(most int) error {
	first, _ := time.Parse(time.DateOnly, s.First)
	last, _ := time.Parse(time.DateOnly, s.Last)
	if days := int(last.Sub(first).Hours()/24) + 1; days > most {
		return fmt.Errorf("covers %d days (%s to %s), more than %d", days, s.First, s.Last, most)
	}
	return nil
}
