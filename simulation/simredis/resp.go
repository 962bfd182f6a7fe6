package simredis

import (
	"fmt"
	"strconv"
	"strings"
)

// The most arguments of a command, and the longest, in bytes.
const (
	maxArguments = 1 << 20
	maxBulk      = 512 << 20
)

// Parse takes the commands off the front of b that are complete, and says how many bytes they
// have.
func Parse(b string) (all [][]string, n int, err error) {
	for {
		args, size, err := parseOne(b[n:])
		if err != nil || size == 0 {
			return all, n, err
		}
		if len(args) > 0 { // a command without words has no reply
			all = append(all, args)
		}
		n += size
	}
}

// parseOne takes one command off the front of b; n is 0 if it is not complete.
func parseOne(b string) (args []string, n int, err error) {
	count, n, err := parseLength(b, '*', maxArguments)
	if err != nil || n == 0 {
		return nil, 0, err
	}
	for range count {
		size, next, err := parseLength(b[n:], '$', maxBulk)
		if err != nil || next == 0 || len(b) < n+next+size+len("\r\n") {
			return nil, 0, err
		}
		n += next
		args = append(args, b[n:n+size])
		n += size + len("\r\n")
	}
	return args, n, nil
}

// parseLength reads a line such as $3 off the front of b; next is 0 if it has no end yet.
func parseLength(b string, kind byte, most int) (n, next int, err error) {
	line, _, whole := strings.Cut(b, "\r\n")
	if b != "" && b[0] != kind {
		return 0, 0, fmt.Errorf("expected %q, got %q", kind, b[0])
	}
	if !whole {
		return 0, 0, nil
	}
	if n, err = strconv.Atoi(line[1:]); err == nil && (n < 0 || n > most) {
		err = fmt.Errorf("%d is no length from 0 to %d", n, most)
	}
	return n, len(line) + len("\r\n"), err
}

// Append encodes a reply in version 2 or 3 of the protocol.
func Append(b []byte, reply any, proto int) []byte {
	switch r := reply.(type) {
	case nil:
		if proto == 3 {
			return append(b, "_\r\n"...)
		}
		return append(b, "$-1\r\n"...)
	case NullArray:
		if proto == 3 {
			return append(b, "_\r\n"...)
		}
		return append(b, "*-1\r\n"...)
	case int64:
		return appendLine(b, ':', strconv.FormatInt(r, 10))
	case string:
		return appendBulk(b, r)
	case Status:
		return appendLine(b, '+', string(r))
	case Error:
		return appendLine(b, '-', string(r))
	case Double:
		if proto == 3 {
			return appendLine(b, ',', formatScore(float64(r)))
		}
		return appendBulk(b, formatScore(float64(r)))
	case []any:
		return appendAll(appendHead(b, '*', len(r)), r, proto)
	case raw:
		return appendAll(b, r, proto)
	case Map:
		if proto == 3 {
			return appendAll(appendHead(b, '%', len(r)/2), r, proto)
		}
		return appendAll(appendHead(b, '*', len(r)), r, proto)
	case Set:
		return appendAll(appendHead(b, kindOf('~', proto), len(r)), r, proto)
	case Push:
		return appendAll(appendHead(b, kindOf('>', proto), len(r)), r, proto)
	}
	panic("simredis: no such reply")
}

func kindOf(c byte, proto int) byte {
	if proto == 3 {
		return c
	}
	return '*'
}

func appendHead(b []byte, c byte, n int) []byte {
	b = append(b, c)
	b = strconv.AppendInt(b, int64(n), 10)
	return append(b, '\r', '\n')
}

func appendLine(b []byte, c byte, s string) []byte {
	b = append(b, c)
	b = append(b, s...)
	return append(b, '\r', '\n')
}

func appendBulk(b []byte, s string) []byte {
	b = appendHead(b, '$', len(s))
	b = append(b, s...)
	return append(b, '\r', '\n')
}

func appendAll(b []byte, list []any, proto int) []byte {
	for _, r := range list {
		b = Append(b, r, proto)
	}
	return b
}
