package cron

import (
	"cmp"
	"fmt"
	"strconv"
	"strings"
)

// columns are a spec's fields in their order, with the least value of each and how many there are.
var columns = []struct {
	name        string
	least, size int
}{
	{"second", 0, 60},
	{"minute", 0, 60},
	{"hour", 0, 24},
	{"day of month", 1, 31},
	{"month", 1, 12},
	{"day of week", 0, 7},
}

// Warnings say, in a line each, what the spec can hardly have been meant to say: a step that is
// longer than its field, so that it never gets to its second value. There is at most one for each
// field, and none for most schedules.
func (s Schedule) Warnings() []string {
	texts := strings.Fields(s.text)
	if len(texts) < 5 {
		return nil
	}
	var warnings []string
	for i, column := range columns[len(columns)-len(texts):] {
		step, from := overlong(texts[i], column.size)
		if step == 0 {
			continue
		}
		means := fmt.Sprintf("it stands for %s alone", cmp.Or(from, strconv.Itoa(column.least)))
		if words := s.Words(); words != "" {
			means = "it fires " + words
		}
		warnings = append(warnings, fmt.Sprintf("step %d is beyond the %s field: %s", step, column.name, means))
	}
	return warnings
}

// overlong is the first step of a field's text that is as long as the field or longer, and the
// value that it goes from, empty for a star; 0 where there is none.
func overlong(text string, size int) (step int, from string) {
	for part := range strings.SplitSeq(text, ",") {
		values, by, _ := strings.Cut(part, "/")
		if n, err := strconv.Atoi(by); err == nil && n >= size {
			from, _, _ = strings.Cut(values, "-")
			return n, strings.Trim(from, "*?")
		}
	}
	return 0, ""
}
