package control

import (
	"bytes"
	"encoding/json"
	"fmt"
	"strings"

	"rota/internal/registry"
)

// longestArgs bounds the arguments of one run.
const longestArgs = 64 << 10

// stored is the object as it is kept: compact, and nothing where it has no members. What is no
// object is refused.
func stored(object json.RawMessage) (*string, error) {
	if len(object) > longestArgs {
		return nil, refuse(ErrInvalid, "the arguments have %d bytes: at most %d are taken", len(object), longestArgs)
	}
	if len(bytes.TrimSpace(object)) == 0 {
		return nil, nil
	}
	if err := checkText("the text of the arguments", string(object), longestArgs); err != nil {
		return nil, err
	}
	var members map[string]json.RawMessage
	if !json.Valid(object) {
		return nil, refuse(ErrInvalid, `the arguments are no JSON: give an object, such as {"Limit": 5}`)
	}
	if err := json.Unmarshal(object, &members); err != nil || members == nil {
		return nil, refuse(ErrInvalid, `the arguments are JSON, but no object: give one, such as {"Limit": 5}`)
	}
	if len(members) == 0 {
		return nil, nil
	}
	if zeroByte(object) {
		return nil, refuse(ErrInvalid, `the arguments hold a zero byte, as \u0000, which cannot be stored: leave it out`)
	}
	var b bytes.Buffer
	if err := json.Compact(&b, object); err != nil {
		return nil, fmt.Errorf("compact the arguments: %w", err)
	}
	s := b.String()
	return &s, nil
}

// zeroByte reports whether a name or a text in valid JSON has one.
func zeroByte(object json.RawMessage) bool {
	in := json.NewDecoder(bytes.NewReader(object))
	for {
		token, err := in.Token()
		if err != nil {
			return false // at its end, for it is valid
		}
		if text, is := token.(string); is && strings.ContainsRune(text, 0) {
			return true
		}
	}
}

// checkArgs refuses what the job would not take.
func checkArgs(j registry.Job, object json.RawMessage) error {
	if _, err := j.WithArgs(object); err != nil {
		return refuse(ErrInvalid, "the arguments of job %q: %s", j.Name, strings.ReplaceAll(err.Error(), "\n", "; "))
	}
	return nil
}
