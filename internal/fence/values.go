package fence

import (
	"cmp"
	"fmt"
	"reflect"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"github.com/jackc/pgx/v5/pgtype"
)

// A cell is a value in PostgreSQL's text form.
type cell struct {
	text string
	null bool
}

// encode makes rows of the values, in the order of their keys, so that two upserts that meet the same
// rows do not deadlock. It refuses those that are another shard's.
func (s *statement) encode(values []reflect.Value, own Shard) ([][]cell, error) {
	rows, err := s.cells(values)
	if err != nil {
		return nil, err
	}
	slices.SortFunc(rows, s.compareKeys)
	if i := s.repeated(rows); i >= 0 {
		return nil, fmt.Errorf("two rows have the key %s", s.keyText(rows[i]))
	}
	return rows, s.checkShard(rows, own)
}

func (s *statement) cells(values []reflect.Value) ([][]cell, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	rows := make([][]cell, len(values))
	cells := make([]cell, len(values)*len(s.fields))
	var buf []byte
	for i, v := range values {
		row := cells[i*len(s.fields) : (i+1)*len(s.fields)]
		for j, f := range s.fields {
			var err error
			if row[j], buf, err = cellOf(s.types, s.oids[j], v, f, buf[:0]); err != nil {
				return nil, fmt.Errorf("row %d: %w", i, err)
			}
		}
		for _, k := range s.key {
			if row[k].null {
				return nil, fmt.Errorf("row %d: its key column %s is NULL", i, s.fields[k].column)
			}
		}
		rows[i] = row
	}
	return rows, nil
}

// repeated is the place of a row, among rows in order, with the key of the one before; below 0: there is none.
func (s *statement) repeated(rows [][]cell) int {
	for i := 1; i < len(rows); i++ {
		if s.compareKeys(rows[i-1], rows[i]) == 0 {
			return i
		}
	}
	return -1
}

// checkShard refuses rows that are another shard's.
func (s *statement) checkShard(rows [][]cell, own Shard) error {
	if own.Whole() {
		return nil
	}
	f := s.fields[s.shard]
	for _, row := range rows {
		key := row[s.shard].text
		if !asStored(s.oids[s.shard], key) {
			return fmt.Errorf("the row %s: its %s is not in the form that the database gives it as text, by which its shard is found: give the text that is stored, an integer, or a UUID", s.keyText(row), f.column)
		}
		if k := ShardOf(key, own.Of); k != own.K {
			return fmt.Errorf("the row %s is of shard %s, and this is the writer of %s: write what Run.Owns", s.keyText(row), Shard{k, own.Of}, own)
		}
	}
	return nil
}

var uuidPattern = regexp.MustCompile(`^[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}$`)

// asStored reports whether a value is as it will be once it is cast to text in the database, where
// its shard is found by that. Of other types than these it is not known here.
func asStored(oid uint32, text string) bool {
	switch oid {
	case pgtype.TextOID, pgtype.VarcharOID:
		return true
	case pgtype.Int2OID, pgtype.Int4OID, pgtype.Int8OID:
		n, err := strconv.ParseInt(text, 10, 64)
		return err == nil && strconv.FormatInt(n, 10) == text
	case pgtype.UUIDOID:
		return uuidPattern.MatchString(text)
	}
	return false
}

var stringType = reflect.TypeFor[string]()

// cellOf is a field's value. A string is its own text form, whatever the column's type; all else is
// encoded, into buf.
func cellOf(m *pgtype.Map, oid uint32, row reflect.Value, f field, buf []byte) (cell, []byte, error) {
	v, err := row.FieldByIndexErr(f.index)
	if err != nil { // an embedded pointer is nil
		return cell{null: true}, buf, nil //nolint:nilerr // all of its columns are NULL
	}
	if v.Type() == stringType {
		return cell{text: v.String()}, buf, nil
	}
	if buf == nil { // which would mean NULL
		buf = make([]byte, 0, 64)
	}
	encoded, err := m.Encode(oid, pgtype.TextFormatCode, v.Interface(), buf)
	if err != nil {
		return cell{}, buf, fmt.Errorf("column %s: %w", f.column, err)
	}
	if encoded == nil {
		return cell{null: true}, buf, nil
	}
	return cell{text: string(encoded)}, encoded, nil
}

func (s *statement) compareKeys(a, b []cell) int {
	for _, k := range s.key {
		if c := cmp.Compare(a[k].text, b[k].text); c != 0 {
			return c
		}
	}
	return 0
}

func (s *statement) keyText(row []cell) string {
	var parts []string
	for _, k := range s.key {
		parts = append(parts, fmt.Sprintf("%s=%s", s.fields[k].column, row[k].text))
	}
	return strings.Join(parts, " ")
}

// single adds the parameters for one row.
func single(args []any, row []cell) []any {
	for _, c := range row {
		if c.null {
			args = append(args, nil)
		} else {
			args = append(args, c.text)
		}
	}
	return args
}

// columns adds the parameters for many rows, an array for each column.
func columns(args []any, rows [][]cell) []any {
	for j := range rows[0] {
		args = append(args, column(rows, j))
	}
	return args
}

// column is an array of texts; of pointers to them, which cost more, where there are NULLs.
func column(rows [][]cell, j int) any {
	texts := make([]string, len(rows))
	nulls := false
	for i, row := range rows {
		texts[i] = row[j].text
		nulls = nulls || row[j].null
	}
	if !nulls {
		return texts
	}
	pointers := make([]*string, len(rows))
	for i, row := range rows {
		if !row[j].null {
			pointers[i] = &texts[i]
		}
	}
	return pointers
}
