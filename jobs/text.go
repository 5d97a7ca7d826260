package jobs

import (
	"fmt"
	"regexp"
	"strings"
	"unicode"
)

var decimalForm = regexp.MustCompile(`^-?[0-9]{1,24}(\.[0-9]{1,12})?$`)

// decimal brings a decimal number into the one form that PostgreSQL's trim_scale gives, so that
// equal numbers are equal strings: no float comes near a quantity or a price.
func decimal(s string) (string, error) {
	if !decimalForm.MatchString(s) {
		return "", fmt.Errorf("%.40q is no decimal number", s)
	}
	digits, negative := strings.CutPrefix(s, "-")
	whole, fraction, _ := strings.Cut(digits, ".")
	digits = strings.TrimLeft(whole, "0")
	if digits == "" {
		digits = "0"
	}
	if fraction = strings.TrimRight(fraction, "0"); fraction != "" {
		digits += "." + fraction
	}
	if negative && digits != "0" {
		digits = "-" + digits
	}
	return digits, nil
}

// printable keeps what a peer sent from spoiling the statement that stores it: PostgreSQL's
// text takes neither broken UTF-8 nor NUL.
func printable(s string) string {
	return strings.Map(func(r rune) rune {
		if unicode.IsPrint(r) {
			return r
		}
		return '?'
	}, s)
}

// isName reports whether s can be a key: a longer one would not fit into an index.
func isName(s string) bool { return s != "" && len(s) <= 200 && s == printable(s) }
