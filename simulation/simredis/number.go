package simredis

import (
	"errors"
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

// integers is a command whose arguments at these places are integers.
func integers(run runner, at ...int) runner {
	return func(s *Server, a []string) any {
		for _, i := range at {
			if _, valid := parseInt(a[i]); !valid {
				return errNotInteger
			}
		}
		return run(s, a)
	}
}

// number is an argument that is known to be an integer.
func number(s string) int64 {
	n, _ := parseInt(s)
	return n
}

// parseCount reads how many elements a command takes, which its third argument says.
func parseCount(a []string, unsaid int64, tooMany Error) (int64, any) {
	switch len(a) {
	case 2:
		return unsaid, nil
	case 3:
		n, valid := parseInt(a[2])
		if !valid || n < 0 {
			return 0, errNotPositive
		}
		return n, nil
	}
	return 0, tooMany
}

// atoi is C's: the number that s begins with, or 0.
func atoi(s string) int {
	s = strings.TrimLeft(s, spaces)
	end := 0
	for end < len(s) && (s[end] >= '0' && s[end] <= '9' || end == 0 && (s[0] == '-' || s[0] == '+')) {
		end++
	}
	n, _ := strconv.ParseInt(s[:end], 10, 64) // one that is too large becomes the largest
	return int(int32(n))
}

const spaces = " \t\n\v\f\r"

// parseFloat reads a number as Redis reads arguments: no spaces, and there is one.
func parseFloat(s string) (float64, bool) {
	f, valid, inRange := strtod(s)
	return f, valid && inRange && !math.IsNaN(f) && strings.TrimLeft(s, spaces) == s
}

// strtod is C's, where all of s is the number, after spaces.
func strtod(s string) (f float64, valid, inRange bool) {
	s = strings.TrimLeft(s, spaces)
	digits := strings.ToLower(strings.TrimLeft(s, "+-"))
	hex := strings.HasPrefix(digits, "0x")
	if hex && !strings.Contains(digits, "p") {
		s += "p0"
	}
	f, err := strconv.ParseFloat(s, 64)
	mantissa, _, _ := strings.Cut(digits, "e")
	underflow := f == 0 && !hex && strings.ContainsAny(mantissa, "123456789")
	inRange = err == nil && !underflow
	return f, (err == nil || errors.Is(err, strconv.ErrRange)) && !strings.Contains(s, "_"), inRange
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
