package simredis

import (
	"math"
	"strconv"
)

// A reply is one of these types: nil (no value), int64, string (a bulk string),
// []any (an array), or one of those below.
type (
	// Status is a simple string such as OK.
	Status string
	// Error is an error: its code, a space, and its text.
	Error string
	// Double is a floating point number; a bulk string in RESP2.
	Double float64
	// Map has keys and values in turn; an array in RESP2.
	Map []any
	// Set is a set; an array in RESP2.
	Set []any
	// Push is a message that answers no request; an array in RESP2.
	Push []any
	// NullArray is an array that is missing, which RESP2 tells from a missing value.
	NullArray struct{}

	// raw is several replies to one request.
	raw []any
)

const ok = Status("OK")

const (
	errWrongType   = Error("WRONGTYPE Operation against a key holding the wrong kind of value")
	errSyntax      = Error("ERR syntax error")
	errNotInteger  = Error("ERR value is not an integer or out of range")
	errNotFloat    = Error("ERR value is not a valid float")
	errOverflow    = Error("ERR increment or decrement would overflow")
	errNotPositive = Error("ERR value is out of range, must be positive")
	errReadOnly    = Error("READONLY You can't write against a read only replica.")
)

func errArity(name string) Error {
	return Error("ERR wrong number of arguments for '" + name + "' command")
}

func integer(b bool) int64 {
	if b {
		return 1
	}
	return 0
}

// formatScore writes a number as replies have it: %.17g.
func formatScore(f float64) string { return formatG(f, 17) }

// formatG writes a number as C's %.*g does.
func formatG(f float64, digits int) string {
	switch {
	case math.IsInf(f, 1):
		return "inf"
	case math.IsInf(f, -1):
		return "-inf"
	case math.IsNaN(f):
		if math.Signbit(f) {
			return "-nan"
		}
		return "nan"
	}
	return strconv.FormatFloat(f, 'g', digits, 64)
}
