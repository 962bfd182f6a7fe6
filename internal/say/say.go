// Package say writes times, numbers and lists in one way, for all that people read.
package say

import (
	"cmp"
	"encoding/json"
	"fmt"
	"io"
	"strconv"
	"strings"
	"time"
	"unicode"
	"unicode/utf16"
)

// JSON writes a value as indented JSON.
func JSON(w io.Writer, v any) error {
	enc := json.NewEncoder(w)
	enc.SetIndent("", "  ")
	return enc.Encode(v)
}

// Instant writes a point in time, rounded down as in the words of the checker: "1.716 s".
func Instant(t time.Duration) string {
	return strconv.FormatFloat(t.Truncate(time.Millisecond).Seconds(), 'f', 3, 64) + " s"
}

// Span writes a length of time in the unit that reads best, rounded down: "840 µs",
// "1,240 ms", "28.698 s".
func Span(d time.Duration) string {
	switch {
	case d < 0:
		return "-" + Span(d.Abs())
	case d == 0:
		return "0 ms"
	case d < time.Microsecond:
		return fmt.Sprintf("%d ns", d.Nanoseconds())
	case d < time.Millisecond:
		return fmt.Sprintf("%d µs", d.Microseconds())
	case d < 10*time.Millisecond:
		return strconv.FormatFloat(float64(d/(100*time.Microsecond))/10, 'f', -1, 64) + " ms"
	case d < 10*time.Second:
		return Thousands(d.Milliseconds()) + " ms"
	default:
		return Length(d)
	}
}

// Length writes how long a run took: always seconds from one second on.
func Length(d time.Duration) string {
	if d < time.Second {
		return Span(d)
	}
	return strconv.FormatFloat(float64(d.Milliseconds())/1e3, 'f', -1, 64) + " s"
}

// Thousands writes 28698 as "28,698".
func Thousands(n int64) string {
	s := strconv.FormatInt(n, 10)
	for at := len(s) - 3; at > 0 && s[at-1] != '-'; at -= 3 {
		s = s[:at] + "," + s[at:]
	}
	return s
}

// Count writes a number with its noun: "1 grant", "2,310 grants".
func Count(n int, one string) string {
	if n == 1 {
		return "1 " + one
	}
	return Thousands(int64(n)) + " " + plural(one)
}

func plural(noun string) string {
	switch {
	case noun == "request for a lock":
		return "requests for a lock"
	case strings.HasSuffix(noun, "y"):
		return strings.TrimSuffix(noun, "y") + "ies"
	case strings.HasSuffix(noun, "s"):
		return noun + "es"
	default:
		return noun + "s"
	}
}

// List joins names as people do: "a, b and c".
func List(names []string) string {
	if len(names) < 2 {
		return strings.Join(names, "")
	}
	last := len(names) - 1
	return strings.Join(names[:last], ", ") + " and " + names[last]
}

// Shorten cuts a text to a number of characters.
func Shorten(text string, n int) string {
	r := []rune(text)
	if len(r) <= n {
		return text
	}
	return string(r[:n-1]) + "…"
}

// Natural orders names by their text, and by their number where that is all
// that differs: zone-a.3 before zone-a.12.
func Natural(a, b string) int {
	split := func(s string) (string, int) {
		stem := strings.TrimRight(s, "0123456789")
		n, err := strconv.Atoi(s[len(stem):])
		if err != nil {
			return s, 0
		}
		return stem, n
	}
	as, an := split(a)
	bs, bn := split(b)
	return cmp.Or(cmp.Compare(as, bs), cmp.Compare(an, bn), cmp.Compare(a, b))
}

// Plain is a text as it may be shown anywhere: what does not print is shown by its
// number (\u001b), and lines stay lines. JSON stays JSON of the same value.
func Plain(s string) string { return plain(s, "\n\t") }

// OneLine is [Plain] without ends of lines.
func OneLine(s string) string {
	return plain(strings.NewReplacer("\n", " ", "\r", " ", "\t", " ").Replace(s), "")
}

// plain is s without what is not graphic and not among the characters kept: control characters, which a terminal obeys;
// formats, which hide or turn around what is beside them; and what XML forbids. A name in a history is data, and any
// program may have written it.
func plain(s, kept string) string {
	var b strings.Builder
	for _, r := range s {
		if unicode.IsGraphic(r) || strings.ContainsRune(kept, r) {
			b.WriteRune(r)
			continue
		}
		for _, unit := range utf16.AppendRune(nil, r) { // as JSON and JavaScript do
			fmt.Fprintf(&b, `\u%04x`, unit)
		}
	}
	return b.String()
}
