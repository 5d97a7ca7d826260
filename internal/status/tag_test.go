package status

import (
	"reflect"
	"testing"
	"time"
)

// P10: whatever the rows say differently makes another tag, so that nobody keeps what is no longer so.
// A field that is added later is told of here.
func TestEveryFieldOfASnapshotIsInItsTag(t *testing.T) {
	t.Parallel()
	whole := func() *Snapshot {
		return &Snapshot{
			Leases:   []Lease{{LastEnd: &Term{}, Paused: &Pause{}, Last: &Run{}}},
			Replicas: []Replica{{}}, Pauses: []Pause{{}},
		}
	}
	seen := map[string]string{tag(whole()): "nothing"}
	differs := func(what string, s *Snapshot) {
		t.Helper()
		got := tag(s)
		if same, is := seen[got]; is {
			t.Errorf("with %s the tag is that with %s", what, same)
		}
		seen[got] = what
	}
	for name, of := range map[string]func(*Snapshot) any{
		"lease": func(s *Snapshot) any { return &s.Leases[0] }, "term": func(s *Snapshot) any { return s.Leases[0].LastEnd },
		"its pause": func(s *Snapshot) any { return s.Leases[0].Paused }, "run": func(s *Snapshot) any { return s.Leases[0].Last },
		"replica": func(s *Snapshot) any { return &s.Replicas[0] }, "pause": func(s *Snapshot) any { return &s.Pauses[0] },
	} {
		kind := reflect.TypeOf(of(whole())).Elem()
		for i := range kind.NumField() {
			s := whole()
			v := reflect.ValueOf(of(s)).Elem().Field(i)
			switch v.Interface().(type) {
			case time.Time:
				v.Set(reflect.ValueOf(time.Unix(7, 0)))
			default:
				switch v.Kind() {
				case reflect.String:
					v.SetString("x")
				case reflect.Bool:
					v.SetBool(true)
				case reflect.Int, reflect.Int64:
					v.SetInt(7)
				case reflect.Pointer:
					v.SetZero()
				default:
					t.Fatalf("%s.%s is a %s", name, kind.Field(i).Name, v.Kind())
				}
			}
			if kind.Field(i).Tag.Get("json") == "-" {
				if tag(s) != tag(whole()) {
					t.Errorf("%s.%s, which only time moves, is in the tag", name, kind.Field(i).Name)
				}
				continue
			}
			differs(name+"."+kind.Field(i).Name, s)
		}
	}
	two := whole()
	two.Pauses = append(two.Pauses, Pause{})
	differs("two pauses", two)
}
