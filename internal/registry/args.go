package registry

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"reflect"
	"regexp"
	"strings"
	"time"
)

// WithArgs returns a copy of the job's Args in which the fields of a JSON object have its values.
// A field is named by its JSON name or by its Go name, in any case; a time.Duration is a text such
// as "30s", or a number of nanoseconds. Empty JSON changes nothing. The error joins every field
// that the job does not have and every value that does not fit, each in one line.
func (j Job) WithArgs(object json.RawMessage) (any, error) {
	if len(bytes.TrimSpace(object)) == 0 {
		return j.Args, nil
	}
	members, err := membersOf(object)
	if err != nil {
		return nil, err
	}
	if len(members) == 0 {
		return j.Args, nil
	}
	args, err := j.arguments()
	if err != nil {
		return nil, err
	}
	if err := args.changeAll(members); err != nil {
		return nil, err
	}
	return args.value.Interface(), nil
}

// ArgsJSON is Args as WithArgs and a jobs file take them: an object with its durations as people write
// them. Nil: the job has none that others may set.
func (j Job) ArgsJSON() json.RawMessage {
	if j.Args == nil || reflect.TypeOf(j.Args).Kind() != reflect.Struct {
		return nil
	}
	text, err := written(reflect.ValueOf(j.Args))
	if err != nil || string(text) == "{}" {
		return nil
	}
	return text
}

// written is what assign takes.
func written(v reflect.Value) ([]byte, error) {
	_, itself := v.Interface().(json.Marshaler)
	switch {
	case v.Type() == durationType:
		return json.Marshal(Span(v.Interface().(time.Duration)))
	case v.Kind() == reflect.Slice && v.Type().Elem() == durationType && !v.IsNil():
		items := make([]json.RawMessage, v.Len())
		for i := range items {
			items[i], _ = written(v.Index(i))
		}
		return json.Marshal(items)
	case v.Kind() != reflect.Struct || itself:
		return json.Marshal(v.Interface())
	}
	object := []byte{'{'}
	for i := range v.NumField() {
		name, ok := jsonName(v.Type().Field(i))
		if !ok {
			continue
		}
		value, err := written(v.Field(i))
		if err != nil {
			return nil, fmt.Errorf("%s: %w", name, err)
		}
		key, err := json.Marshal(name)
		if err != nil {
			return nil, err
		}
		if len(object) > 1 {
			object = append(object, ',')
		}
		object = append(append(append(object, key...), ':'), value...)
	}
	return append(object, '}'), nil
}

// arguments is a struct that is changed field by field. It is a copy: what the original points to
// is never written to.
type arguments struct {
	value reflect.Value // of a struct, and addressable
	given map[string]bool
}

func (j Job) arguments() (arguments, error) {
	if j.Args == nil || reflect.TypeOf(j.Args).Kind() != reflect.Struct {
		return arguments{}, errors.New("the job takes none: leave them out")
	}
	value := reflect.New(reflect.TypeOf(j.Args)).Elem()
	value.Set(reflect.ValueOf(j.Args))
	return arguments{value, map[string]bool{}}, nil
}

func (a arguments) changeAll(members []member) error {
	var errs []error
	for _, m := range members {
		errs = append(errs, a.change(m.name, m.value))
	}
	return errors.Join(errs...)
}

func (a arguments) change(name string, value json.RawMessage) error {
	var known []string
	for i := range a.value.NumField() {
		field := a.value.Type().Field(i)
		called, ok := jsonName(field)
		if !ok {
			continue
		}
		if !strings.EqualFold(name, called) && !strings.EqualFold(name, field.Name) {
			known = append(known, called)
			continue
		}
		if a.given[field.Name] {
			return fmt.Errorf("%s is given twice: leave one out", called)
		}
		a.given[field.Name] = true
		var errs []error
		for _, err := range unjoined(assign(a.value.Field(i), value)) {
			errs = append(errs, fmt.Errorf("%s: %w", called, err))
		}
		return errors.Join(errs...)
	}
	if len(known) == 0 {
		return fmt.Errorf("there is no field %.80q, nor any other", name)
	}
	return fmt.Errorf("there is no field %.80q; there are: %s", name, strings.Join(known, ", "))
}

// jsonName is what the field is called in JSON; false: it is not for others to set.
func jsonName(field reflect.StructField) (string, bool) {
	tag := field.Tag.Get("json")
	name, _, _ := strings.Cut(tag, ",")
	if name == "" {
		name = field.Name
	}
	return name, field.IsExported() && tag != "-"
}

var (
	durationType = reflect.TypeFor[time.Duration]()
	timeType     = reflect.TypeFor[time.Time]()
)

// assign gives v the value. Only a struct is changed in part; all else is made anew, since the
// defaults are shared by every run.
func assign(v reflect.Value, value json.RawMessage) error {
	_, itself := v.Addr().Interface().(json.Unmarshaler)
	null := string(bytes.TrimSpace(value)) == "null"
	switch {
	case null && !itself && !nullable(v.Kind()):
		return fmt.Errorf("null: it must be %s; leave it out to keep the job's own", form(v.Type()))
	case v.Type() == durationType:
		d, err := durationOf(value)
		v.SetInt(int64(d))
		return err
	case v.Kind() == reflect.Struct && !itself:
		members, err := membersOf(value)
		if err != nil {
			return err
		}
		return arguments{v, map[string]bool{}}.changeAll(members)
	case v.Kind() == reflect.Slice && v.Type().Elem() == durationType && !null:
		return assignDurations(v, value)
	}
	fresh := reflect.New(v.Type())
	strict := json.NewDecoder(bytes.NewReader(value))
	strict.DisallowUnknownFields()
	if err := strict.Decode(fresh.Interface()); err != nil {
		if itself && v.Type() != timeType {
			return fmt.Errorf("%.80s: %w", value, err) // the words are the type's own
		}
		if _, name, unknown := strings.Cut(err.Error(), "unknown field "); unknown {
			return fmt.Errorf("%.80s: there is no field %s in it", value, name)
		}
		return fmt.Errorf("%.80s: it must be %s", value, form(v.Type()))
	}
	v.Set(fresh.Elem())
	return nil
}

func assignDurations(v reflect.Value, value json.RawMessage) error {
	var items []json.RawMessage
	if err := json.Unmarshal(value, &items); err != nil {
		return fmt.Errorf("%.80s: it must be %s", value, form(v.Type()))
	}
	all := reflect.MakeSlice(v.Type(), len(items), len(items))
	for i, item := range items {
		d, err := durationOf(item)
		if err != nil {
			return err
		}
		all.Index(i).SetInt(int64(d))
	}
	v.Set(all)
	return nil
}

// durationOf takes numbers for nanoseconds, as encoding/json writes them, but not the small ones
// that somebody has written who thought of seconds.
func durationOf(value json.RawMessage) (time.Duration, error) {
	var text string
	var d time.Duration
	good := json.Unmarshal(value, &d) == nil && (d == 0 || d.Abs() >= time.Millisecond)
	if json.Unmarshal(value, &text) == nil {
		var err error
		if d, err = time.ParseDuration(text); err != nil && durationLike.MatchString(text) {
			return 0, fmt.Errorf(`%.80s: it must be at most 292 years, or "2562047h"`, value)
		}
		good = err == nil
	}
	switch {
	case !good:
		return 0, fmt.Errorf(`%.80s: it must be a duration with its unit, such as "30s"`, value)
	case d < 0:
		return 0, fmt.Errorf("%.80s: it must not be negative", value)
	}
	return d, nil
}

// durationLike is a duration in its form, which may be more than a time.Duration holds.
var durationLike = regexp.MustCompile(`^[+-]?(\d+(\.\d*)?(ns|us|µs|ms|s|m|h))+$`)

func nullable(k reflect.Kind) bool {
	return k == reflect.Pointer || k == reflect.Slice || k == reflect.Map || k == reflect.Interface
}

// form says what a value of the type looks like, to those who write JSON or YAML.
func form(t reflect.Type) string {
	switch kind := t.Kind(); {
	case t == timeType:
		return "a time with its zone, such as \"2026-03-01T08:00:00Z\""
	case t == durationType:
		return `a duration with its unit, such as "30s"`
	case kind == reflect.Bool:
		return "true or false"
	case kind == reflect.String:
		return "a text; put it in quotes"
	case kind == reflect.Struct:
		return "an object"
	case kind == reflect.Slice && t.Elem().Kind() != reflect.Uint8:
		return "a list, each of it " + form(t.Elem())
	case kind >= reflect.Int && kind <= reflect.Uint64:
		return "a whole number that fits " + kind.String()
	case kind == reflect.Float32 || kind == reflect.Float64:
		return "a number"
	}
	return "a " + t.String()
}

// unjoined is each of the errors that were joined.
func unjoined(err error) []error {
	if joined, ok := err.(interface{ Unwrap() []error }); ok {
		return joined.Unwrap()
	}
	if err == nil {
		return nil
	}
	return []error{err}
}

// A member is one of a JSON object.
type member struct {
	name  string
	value json.RawMessage
}

// membersOf keeps the order, and a name that comes twice, which a map would lose.
func membersOf(object json.RawMessage) ([]member, error) {
	if !json.Valid(object) {
		return nil, fmt.Errorf("%.80q is no JSON", object)
	}
	in := json.NewDecoder(bytes.NewReader(object))
	if open, err := in.Token(); err != nil || open != json.Delim('{') {
		return nil, fmt.Errorf(`%.80s: it must be a JSON object, such as {"Limit": 5}`, object)
	}
	var members []member
	for in.More() {
		name, err := in.Token()
		if err != nil {
			return nil, err
		}
		m := member{name: name.(string)} // as every name in valid JSON
		if err := in.Decode(&m.value); err != nil {
			return nil, err
		}
		members = append(members, m)
	}
	return members, nil
}
