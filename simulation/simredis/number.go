package simredis

import (
	"math"
	"strconv"
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

// parseCount reads how many elements a command takes, which its third argument says; else one.
func parseCount(a []string, tooMany Error) (int64, any) {
	switch len(a) {
	case 2:
		return 1, nil
	case 3:
		n, valid := parseInt(a[2])
		if !valid || n < 0 {
			return 0, errNotPositive
		}
		return n, nil
	}
	return 0, tooMany
}

// parseFloat reads a number as Redis reads arguments: no spaces, and there is one.
func parseFloat(s string) (float64, bool) {
	f, err := strconv.ParseFloat(s, 64)
	return f, err == nil && !math.IsNaN(f)
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
