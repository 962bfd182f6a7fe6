package history

import (
	"maps"
	"slices"
	"strconv"
	"unicode/utf8"
)

// appendEvent appends the line of an event: what encoding/json writes without
// escaping for HTML, to the byte, in a fraction of its time.
func appendEvent(b []byte, e *Event) []byte {
	b = appendNumber(b, `{"index":`, e.Index)
	b = appendNumber(b, `,"time":`, e.Time)
	b = appendNumber(b, `,"process":`, e.Process)
	b = appendString(append(b, `,"type":`...), e.Type)
	b = appendString(append(b, `,"op":`...), e.Op)
	b = appendWords(b, `,"clock":`, e.Clock)
	b = appendWords(b, `,"lock":`, e.Lock)
	b = appendWords(b, `,"owner":`, e.Owner)
	b = appendWords(b, `,"mode":`, e.Mode)
	b = appendAmount(b, `,"permits":`, e.Permits)
	b = appendAmount(b, `,"lease":`, e.Lease)
	b = appendAmount(b, `,"expires":`, e.Expires)
	b = appendAmount(b, `,"token":`, e.Token)
	b = appendAmount(b, `,"holds":`, e.Holds)
	if e.Queued != nil {
		b = appendNumber(b, `,"queued":`, *e.Queued)
	}
	b = appendWords(b, `,"resource":`, e.Resource)
	b = appendWords(b, `,"value":`, e.Value)
	b = appendWords(b, `,"fault":`, e.Fault)
	b = appendWords(b, `,"target":`, e.Target)
	b = appendParams(b, `,"params":`, e.Params)
	b = appendWords(b, `,"life":`, e.Life)
	b = appendEffects(b, `,"effects":`, e.Effects)
	b = appendWords(b, `,"node":`, e.Node)
	b = appendWords(b, `,"what":`, e.What)
	b = appendWords(b, `,"error":`, e.Error)
	b = appendWords(b, `,"kind":`, e.Kind)
	if e.Reentrant {
		b = append(b, `,"reentrant":true`...)
	}
	if e.Fair {
		b = append(b, `,"fair":true`...)
	}
	b = appendAmount(b, `,"capacity":`, e.Capacity)
	b = appendAmount(b, `,"drift":`, e.Drift)
	if e.Fenced != nil {
		b = strconv.AppendBool(append(b, `,"fenced":`...), *e.Fenced)
	}
	return append(b, "}\n"...)
}

// appendNumber appends a field that is always there.
func appendNumber[T ~int | ~int64](b []byte, key string, n T) []byte {
	return strconv.AppendInt(append(b, key...), int64(n), 10)
}

// appendAmount appends a field that is absent when zero.
func appendAmount[T ~int | ~int64](b []byte, key string, n T) []byte {
	if n == 0 {
		return b
	}
	return appendNumber(b, key, n)
}

// appendWords appends a field that is absent when empty.
func appendWords[T ~string](b []byte, key string, s T) []byte {
	if s == "" {
		return b
	}
	return appendString(append(b, key...), s)
}

func appendParams(b []byte, key string, params map[string]string) []byte {
	if len(params) == 0 {
		return b
	}
	b = append(b, key...)
	separator := byte('{')
	for _, name := range slices.Sorted(maps.Keys(params)) {
		b = appendString(append(b, separator), name)
		b = appendString(append(b, ':'), params[name])
		separator = ','
	}
	return append(b, '}')
}

func appendEffects(b []byte, key string, effects []Effect) []byte {
	if len(effects) == 0 {
		return b
	}
	b = append(b, key...)
	separator := byte('[')
	for _, effect := range effects {
		b = appendString(append(b, separator), effect)
		separator = ','
	}
	return append(b, ']')
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
