package say

import (
	"fmt"
	"strings"
	"unicode"
	"unicode/utf16"
	"unicode/utf8"
)

// prints reports whether a character stands for itself where people read. Not so
// control characters, which a terminal obeys; formats, which hide or turn around
// what is beside them; and what XML forbids. A name in a history is data, and
// any program may have written it.
func prints(r rune) bool {
	return r >= ' ' && r < 0x7f ||
		r > 0x9f && !unicode.In(r, unicode.Cf, unicode.Zl, unicode.Zp, unicode.Noncharacter_Code_Point)
}

// shownAs writes a character that does not print by its number, as JSON and
// JavaScript do.
func shownAs(r rune) string {
	if high, low := utf16.EncodeRune(r); high != utf8.RuneError {
		return fmt.Sprintf(`\u%04x\u%04x`, high, low)
	}
	return fmt.Sprintf(`\u%04x`, r)
}

// Plain is a text as it may be shown anywhere: what does not print is shown by its
// number (\u001b), and lines stay lines. JSON stays JSON of the same value.
func Plain(s string) string { return plain(s, "\n\t") }

// OneLine is [Plain] without ends of lines.
func OneLine(s string) string {
	return plain(strings.Map(func(r rune) rune {
		if r == '\n' || r == '\r' || r == '\t' {
			return ' '
		}
		return r
	}, s), "")
}

// plain is s without what does not print and is not among the characters kept.
func plain(s, kept string) string {
	shows := func(r rune) bool { return prints(r) || strings.ContainsRune(kept, r) }
	if utf8.ValidString(s) && strings.IndexFunc(s, func(r rune) bool { return !shows(r) }) < 0 {
		return s
	}
	var b strings.Builder
	for _, r := range s {
		if shows(r) {
			b.WriteRune(r)
		} else {
			b.WriteString(shownAs(r))
		}
	}
	return b.String()
}
