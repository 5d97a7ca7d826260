package registry

import (
	"strings"
	"time"
)

// Span is a duration as people write it, and time.ParseDuration reads it: 10m and 1h30m, where String of
// time.Duration says 10m0s and 1h30m0s.
func Span(d time.Duration) string {
	text := d.String()
	if strings.HasSuffix(text, "m0s") {
		text = strings.TrimSuffix(text, "0s")
	}
	if strings.HasSuffix(text, "h0m") {
		text = strings.TrimSuffix(text, "0m")
	}
	return text
}
