package fence

import (
	"errors"
	"fmt"
	"reflect"
	"strings"
)

// structs takes what Upsert was given apart into its structs, all of one type.
func structs(rows any) ([]reflect.Value, reflect.Type, error) {
	v := reflect.ValueOf(rows)
	if !v.IsValid() {
		return nil, nil, errors.New("rows are nil")
	}
	typ := v.Type()
	if typ.Kind() != reflect.Slice {
		row, err := structOf(v)
		if err != nil {
			return nil, nil, err
		}
		return []reflect.Value{row}, row.Type(), nil
	}
	typ = typ.Elem()
	if typ.Kind() == reflect.Pointer {
		typ = typ.Elem()
	}
	if typ.Kind() != reflect.Struct {
		return nil, nil, fmt.Errorf("rows are a %T: want a struct or a slice of structs", rows)
	}
	all := make([]reflect.Value, v.Len())
	for i := range all {
		row, err := structOf(v.Index(i))
		if err != nil {
			return nil, nil, fmt.Errorf("row %d: %w", i, err)
		}
		all[i] = row
	}
	return all, typ, nil
}

func structOf(v reflect.Value) (reflect.Value, error) {
	if v.Kind() == reflect.Pointer {
		if v.IsNil() {
			return v, errors.New("it is a nil pointer")
		}
		v = v.Elem()
	}
	if v.Kind() != reflect.Struct {
		return v, fmt.Errorf("rows are a %s: want a struct or a slice of structs", v.Type())
	}
	return v, nil
}

// A field of a struct that is written to a column.
type field struct {
	index  []int
	column string
}

// fieldsOf lists the columns of a struct by its db tags, those of embedded structs among them. A
// field is left out by the tag "-" only: one without a tag was more likely forgotten.
func fieldsOf(typ reflect.Type) ([]field, error) {
	var fields []field
	seen := map[string]bool{}
	for _, f := range reflect.VisibleFields(typ) {
		tag, tagged := f.Tag.Lookup("db")
		column, _, _ := strings.Cut(tag, ",")
		switch {
		case !f.IsExported() && !tagged, column == "-", f.Anonymous && !tagged:
			continue
		case !f.IsExported():
			return nil, fmt.Errorf("field %s of %s has a db tag but is not exported", f.Name, typ)
		case column == "":
			return nil, fmt.Errorf(`field %s of %s has no db tag: name its column, or leave it out by db:"-"`, f.Name, typ)
		case seen[column]:
			return nil, fmt.Errorf("column %s is the tag of two fields of %s", column, typ)
		}
		seen[column] = true
		fields = append(fields, field{index: f.Index, column: column})
	}
	return fields, nil
}
