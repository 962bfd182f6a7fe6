package simredis

import (
	"strconv"
	"strings"
)

const maxBulk = 512 << 20

// Parse takes the commands off the front of b that are complete, and says how many bytes they
// have. After a protocol error the connection is closed.
func Parse(b string) (all [][]string, n int, err error) {
	for n < len(b) {
		args, size, err := parseOne(b[n:])
		if err != nil || size == 0 {
			return all, n, err
		}
		if len(args) > 0 { // a command without words has no reply
			all = append(all, args)
		}
		n += size
	}
	return all, n, nil
}

// parseOne takes one command off the front of b, which has some; n is 0 if it is not complete.
func parseOne(b string) (args []string, n int, err error) {
	if b[0] != '*' {
		return nil, 0, protocolError("expected '*', got '" + b[:1] + "'")
	}
	count, at, found := parseLength(b, 1)
	switch {
	case at == 0:
		return nil, 0, nil
	case !found || count > 1<<20:
		return nil, 0, protocolError("invalid multibulk length")
	case count <= 0:
		return nil, at, nil
	}
	args = make([]string, 0, count)
	for range count {
		if at == len(b) {
			return nil, 0, nil
		}
		if b[at] != '$' {
			return nil, 0, protocolError("expected '$', got '" + b[at:at+1] + "'")
		}
		size, next, found := parseLength(b, at+1)
		switch {
		case next == 0:
			return nil, 0, nil
		case !found || size < 0 || size > maxBulk:
			return nil, 0, protocolError("invalid bulk length")
		case len(b) < next+size+2:
			return nil, 0, nil
		}
		args = append(args, b[next:next+size])
		at = next + size + 2
	}
	return args, at, nil
}

type protocolError string

func (e protocolError) Error() string { return "Protocol error: " + string(e) }

// parseLength reads the number and the end of line at from; next is 0 if the
// line has no end yet.
func parseLength(b string, from int) (n, next int, found bool) {
	i := strings.IndexByte(b[from:], '\r')
	if i < 0 || from+i+1 >= len(b) {
		return 0, 0, false
	}
	n, err := strconv.Atoi(b[from : from+i])
	return n, from + i + 2, err == nil
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
