package control

import (
	"strings"
	"unicode"
	"unicode/utf8"
)

// checkText refuses what the database takes for no text, and what is longer, in bytes, than is kept.
func checkText(what, s string, longest int) error {
	switch {
	case !utf8.ValidString(s):
		return refuse(ErrInvalid, "%s is no text in UTF-8: give plain text", what)
	case strings.ContainsRune(s, 0):
		return refuse(ErrInvalid, "%s holds a zero byte: give plain text", what)
	case len(s) > longest:
		return refuse(ErrInvalid, "%s has %d bytes, and at most %d are kept: shorten it", what, len(s), longest)
	}
	return nil
}

// checkName refuses a name that nothing can have: it is not found, rather than an error of the database.
func checkName(kind, name, list string) error {
	if utf8.ValidString(name) && !strings.ContainsRune(name, 0) {
		return nil
	}
	return refuse(ErrNotFound, "there is no %s %q, which is no text in UTF-8: %s has those that there are", kind, name, list)
}

// readable reports whether there is anything in s that a reader sees.
func readable(s string) bool {
	return strings.ContainsFunc(s, func(r rune) bool {
		return unicode.IsGraphic(r) && !unicode.IsSpace(r) && !unicode.IsMark(r) && !unicode.Is(unicode.Zs, r) &&
			!unicode.Is(unicode.Other_Default_Ignorable_Code_Point, r) && r != brailleBlank
	})
}

// brailleBlank is a symbol by its class, and empty to the eye.
const brailleBlank = '\u2800'

// oneLine is s in one line, with single spaces.
func oneLine(s string) string { return strings.Join(strings.Fields(s), " ") }
