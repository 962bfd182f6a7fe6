package history

import (
	"maps"
	"slices"
	"strconv"
	"unicode/utf8"
)

// appendEvent appends the line of an event: what encoding/json writes without
// escaping for HTML, to the byte, in a fraction of its time. It returns also which
// fields say something, a bit each.
func appendEvent(b []byte, e *Event) (line []byte, filled uint64) {
	separator := byte('{')
	for i := range table.fields {
		f := &table.fields[i]
		place := f.at(e)
		if has(place) {
			filled |= 1 << i
		} else if len(f.Places) > 0 || f.Name == "clock" {
			continue
		}
		b = append(append(append(b, separator, '"'), f.Name...), '"', ':')
		b = appendValue(b, place)
		separator = ','
	}
	return append(b, "}\n"...), filled
}

func appendValue(b []byte, place any) []byte {
	switch place := place.(type) {
	case *string:
		return appendString(b, *place)
	case *Type:
		return appendString(b, *place)
	case *Op:
		return appendString(b, *place)
	case *Mode:
		return appendString(b, *place)
	case *Life:
		return appendString(b, *place)
	case *bool:
		return strconv.AppendBool(b, *place)
	case **bool:
		return strconv.AppendBool(b, **place)
	case *map[string]string:
		separator := byte('{')
		for _, name := range slices.Sorted(maps.Keys(*place)) {
			b = appendString(append(b, separator), name)
			b = appendString(append(b, ':'), (*place)[name])
			separator = ','
		}
		return append(b, '}')
	case *[]Effect:
		separator := byte('[')
		for _, effect := range *place {
			b = appendString(append(b, separator), effect)
			separator = ','
		}
		return append(b, ']')
	default:
		n, _ := numeral(place)
		return strconv.AppendInt(b, n, 10)
	}
}

// appendString appends a string in quotes.
func appendString[T ~string](b []byte, s T) []byte {
	b = append(b, '"')
	for i := range len(s) {
		if c := s[i]; c < ' ' || c == '"' || c == '\\' || c >= utf8.RuneSelf {
			b = appendEscaped(b, string(s))
			return append(b, '"')
		}
	}
	b = append(b, s...)
	return append(b, '"')
}

// appendEscaped appends the characters of a string that has some that can't
// stand for themselves: those that JSON forbids, and for the sake of JavaScript
// two separators. Bytes that are no UTF-8 are replaced.
func appendEscaped(b []byte, s string) []byte {
	const hex = "0123456789abcdef"
	for i, c := range s {
		switch c {
		case '"', '\\':
			b = append(b, '\\', byte(c))
		case '\b':
			b = append(b, `\b`...)
		case '\f':
			b = append(b, `\f`...)
		case '\n':
			b = append(b, `\n`...)
		case '\r':
			b = append(b, `\r`...)
		case '\t':
			b = append(b, `\t`...)
		case '\u2028':
			b = append(b, `\u2028`...)
		case '\u2029':
			b = append(b, `\u2029`...)
		case utf8.RuneError:
			if _, size := utf8.DecodeRuneInString(s[i:]); size == 1 {
				b = append(b, `\ufffd`...)
			} else {
				b = utf8.AppendRune(b, c)
			}
		default:
			if c < ' ' {
				b = append(b, '\\', 'u', '0', '0', hex[c>>4], hex[c&0xf])
			} else {
				b = utf8.AppendRune(b, c)
			}
		}
	}
	return b
}
