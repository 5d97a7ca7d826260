package web

import (
	"bytes"
	"encoding/json"

	"rota/internal/registry"
)

// argsOf are the job's arguments as people write them; empty: it has none, or is not known here.
func argsOf(job *registry.Job) string {
	if job == nil {
		return ""
	}
	return string(job.ArgsJSON())
}

// indented is JSON for people.
func indented(raw json.RawMessage) string {
	var b bytes.Buffer
	if json.Indent(&b, raw, "", "  ") != nil {
		return string(raw)
	}
	return b.String()
}
