package main

import (
	"fmt"
	"regexp"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
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
	return valueError(f, "--"+m[2], m[1], m[3], err)
}

// variableError tells the same of the variable that a flag's value came from.
func variableError(f *pflag.Flag, name string, err error) error {
	m := badValue.FindStringSubmatch(err.Error())
	if m == nil {
		return fmt.Errorf("%s: %w", name, err)
	}
	return valueError(f, name, m[1], m[3], fmt.Errorf("%s: %w", name, err))
}

// valueError says what the value must be; said is what the parser says of it, and err what is told where
// that knows more.
func valueError(f *pflag.Flag, name, value, said string, err error) error {
	must := ""
	switch f.Value.Type() {
	case "duration":
		must = "a duration with its unit, as in 90s or 2h30m, and less than 292 years"
	case "int", "int64", "int32", "uint", "count":
		must = "a whole number"
		if strings.Contains(said, "out of range") {
			must += " that is nearer to zero"
		}
	case "bool":
		must = "true or false"
	case "stringSlice":
		must = `a list separated by commas or line breaks, as in a,b; an entry with a comma or a quote in it stands in "quotes", with each quote in it doubled`
	default:
		return err
	}
	return fmt.Errorf("%s %s: it must be %s", name, value, must)
}
