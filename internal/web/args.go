package web

import (
	"bytes"
	"encoding/json"
	"reflect"
	"strings"
	"time"

	"rota/internal/registry"
)

// argsOf are the job's arguments as JSON, durations as people write them; empty: it has none.
func argsOf(job *registry.Job) string {
	if job == nil || job.Args == nil || reflect.TypeOf(job.Args).Kind() != reflect.Struct {
		return ""
	}
	v := reflect.ValueOf(job.Args)
	var b bytes.Buffer
	for i := range v.NumField() {
		field := v.Type().Field(i)
		name, _, _ := strings.Cut(field.Tag.Get("json"), ",")
		if !field.IsExported() || name == "-" {
			continue
		}
		if name == "" {
			name = field.Name
		}
		value := v.Field(i).Interface()
		if d, is := value.(time.Duration); is {
			value = d.String()
		}
		text, err := json.Marshal(value)
		if err != nil {
			continue
		}
		b.WriteString(map[bool]string{true: "{", false: ","}[b.Len() == 0])
		b.WriteString(`"` + name + `":`)
		b.Write(text)
	}
	if b.Len() == 0 {
		return ""
	}
	return b.String() + "}"
}

// indented is JSON for people.
func indented(raw json.RawMessage) string {
	var b bytes.Buffer
	if json.Indent(&b, raw, "", "  ") != nil {
		return string(raw)
	}
	return b.String()
}
