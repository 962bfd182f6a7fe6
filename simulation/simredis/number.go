package simredis

import (
	"math"
	"strconv"
	"strings"
)

// parseInt reads an integer as Redis does: no plus sign, space or leading zero.
func parseInt(s string) (int64, bool) {
	if s == "" || len(s) > 20 {
		return 0, false
	}
	d := s
	if d[0] == '-' {
		d = d[1:]
	}
	if d == "" || d[0] < '0' || d[0] > '9' || d[0] == '0' && len(s) > 1 {
		return 0, false
	}
	n, err := strconv.ParseInt(s, 10, 64)
	return n, err == nil
}

// atoi is C's: the number that s begins with, or 0.
func atoi(s string) int {
	s = strings.TrimLeft(s, " \t\n\v\f\r")
	end := 0
	if end < len(s) && (s[0] == '-' || s[0] == '+') {
		end++
	}
	for end < len(s) && isDigit(s[end]) {
		end++
	}
	n, _ := strconv.ParseInt(s[:end], 10, 64) // one that is too large becomes the largest
	return int(int32(n))
}

// parseFloat reads a number as Redis reads arguments: all of the text is the
// number, and there is one.
func parseFloat(s string) (float64, bool) {
	if s == "" || isSpace(s[0]) {
		return 0, false
	}
	f, rest, inRange := strtod(s)
	return f, rest == "" && inRange && !math.IsNaN(f)
}

// strtod is C's: it reads the number that s begins with, and returns the rest of
// s. Without a number that is all of it.
func strtod(s string) (f float64, rest string, inRange bool) {
	t := strings.TrimLeft(s, " \t\n\v\f\r")
	n := numberLength(t)
	if n == 0 {
		return 0, s, true
	}
	text := t[:n]
	if hex := strings.TrimLeft(text, "+-"); len(hex) > 1 && (hex[1] == 'x' || hex[1] == 'X') && !strings.ContainsAny(hex, "pP") {
		text += "p0"
	}
	f, err := strconv.ParseFloat(text, 64)
	if err != nil || f == 0 && strings.ContainsAny(strings.SplitN(strings.ToLower(text), "e", 2)[0], "123456789") && !strings.ContainsAny(text, "xX") {
		return f, t[n:], false
	}
	return f, t[n:], true
}

// numberLength is how much of s is a number in the syntax of C.
func numberLength(s string) int {
	i := 0
	if i < len(s) && (s[i] == '+' || s[i] == '-') {
		i++
	}
	rest := strings.ToLower(s[i:min(len(s), i+8)])
	switch {
	case strings.HasPrefix(rest, "infinity"):
		return i + 8
	case strings.HasPrefix(rest, "inf"), strings.HasPrefix(rest, "nan"):
		return i + 3
	}
	digit, exponent := isDigit, byte('e')
	if strings.HasPrefix(rest, "0x") && len(s) > i+2 && (isHex(s[i+2]) || s[i+2] == '.' && len(s) > i+3 && isHex(s[i+3])) {
		digit, exponent = isHex, 'p'
		i += 2
	}
	n := 0
	for ; i < len(s) && digit(s[i]); i++ {
		n++
	}
	if i < len(s) && s[i] == '.' {
		j := i + 1
		for ; j < len(s) && digit(s[j]); j++ {
			n++
		}
		if n > 0 {
			i = j
		}
	}
	if n == 0 {
		return 0
	}
	if i < len(s) && s[i]|0x20 == exponent {
		j := i + 1
		if j < len(s) && (s[j] == '+' || s[j] == '-') {
			j++
		}
		if j < len(s) && isDigit(s[j]) {
			for i = j; i < len(s) && isDigit(s[i]); {
				i++
			}
		}
	}
	return i
}

func isDigit(c byte) bool { return c >= '0' && c <= '9' }
func isHex(c byte) bool   { return isDigit(c) || c|0x20 >= 'a' && c|0x20 <= 'f' }
func isSpace(c byte) bool { return c == ' ' || c >= '\t' && c <= '\r' }

// addInt is a+b, and false if that is no int64.
func addInt(a, b int64) (int64, bool) {
	c := a + b
	return c, (b >= 0) == (c >= a)
}

// span is which of n elements a range with an inclusive end means, counted from
// the end where it is negative: from i to before j.
func span(from, to int64, n int) (i, j int) {
	size := int64(n)
	if from < 0 {
		from += size
	}
	if to < 0 {
		to += size
	}
	from, to = max(from, 0), min(to, size-1)
	if from > to || from >= size {
		return 0, 0
	}
	return int(from), int(to) + 1
}
