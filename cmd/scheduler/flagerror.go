package main

import (
	"fmt"
	"regexp"
	"strings"

	"github.com/spf13/cobra"
)

// badValue is how the parser of flags tells of a value, with what Go's libraries say of it.
var badValue = regexp.MustCompile(`(?s)^invalid argument (".*") for "(?:-\w, )?--([\w-]+)" flag: (.*)$`)

// flagError tells of a wrong flag by its name, its value and what it must be.
func flagError(cmd *cobra.Command, err error) error {
	m := badValue.FindStringSubmatch(err.Error())
	if m == nil {
		return err
	}
	f := cmd.Flag(m[2])
	if f == nil {
		return err
	}
	must := ""
	switch f.Value.Type() {
	case "duration":
		must = "a duration with its unit, as in 90s or 2h30m, and less than 292 years"
	case "int", "int64", "int32", "uint", "count":
		must = "a whole number"
		if strings.Contains(m[3], "out of range") {
			must += " that is nearer to zero"
		}
	case "bool":
		must = "true or false"
	default:
		return err
	}
	return fmt.Errorf("--%s %s: it must be %s", m[2], m[1], must)
}
