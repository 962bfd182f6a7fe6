package traffic

import (
	"bytes"
	"strconv"
)

const (
	deepest     = 32       // how deep a reply may be nested
	longestLine = 64 << 10 // how long Redis lets a line be
)

// A value is what a message in RESP begins with.
type value struct {
	length int    // in bytes; 0 if its end has not come
	text   []byte // of a string or a number
	words  bool   // it has a text
	// elements are those of an array, or of what is like one, that is not nested.
	elements []value
}

// parse reads the message with which b begins. It is not ok if b is nothing in RESP.
func parse(b []byte) (v value, ok bool) {
	if len(b) > 0 && bytes.IndexByte([]byte("+-:_,#($=!*~>%|"), b[0]) < 0 {
		v.length, ok = inline(b)
		return v, ok
	}
	return parseAt(b, deepest)
}

func parseAt(b []byte, depth int) (v value, ok bool) {
	line, _, complete := bytes.Cut(b, []byte("\r\n"))
	if !complete {
		return v, len(b) < longestLine
	}
	if len(line) == 0 || depth == 0 {
		return v, false
	}
	n := len(line) + len("\r\n")
	size, err := strconv.ParseInt(string(line[1:]), 10, 32)
	switch line[0] {
	case '+', '-', ':', '_', ',', '#', '(': // all of it is in the line
		return value{length: n, text: line[1:], words: line[0] == '+' || line[0] == ':'}, true
	case '$', '=', '!': // this many bytes follow
		end := n + int(size) + len("\r\n")
		switch {
		case err != nil:
			return v, false
		case size < 0:
			return value{length: n}, true
		case end > len(b):
			return v, true
		}
		return value{length: end, text: b[n : end-len("\r\n")], words: line[0] != '!'}, bytes.HasSuffix(b[:end], []byte("\r\n"))
	case '*', '~', '>':
	case '%':
		size *= 2
	case '|':
		size = 2*size + 1 // and then what it is an attribute of
	default:
		return v, false
	}
	for range size { // this many elements follow
		e, ok := parseAt(b[n:], depth-1)
		if e.length == 0 || !ok {
			return v, ok
		}
		if n += e.length; depth == deepest {
			v.elements = append(v.elements, e)
		}
	}
	v.length = n
	return v, err == nil
}

// inline is the length of a command in a line of its own, as people type it. The
// line may be empty.
func inline(b []byte) (n int, ok bool) {
	if !printable(b[:1]) && b[0] != '\r' && b[0] != '\n' {
		return 0, false
	}
	i := bytes.IndexByte(b, '\n')
	if i < 0 {
		return 0, len(b) < longestLine
	}
	return i + 1, printable(bytes.TrimSuffix(b[:i], []byte("\r")))
}

func printable(line []byte) bool {
	return bytes.IndexFunc(line, func(r rune) bool { return r < ' ' || r > '~' }) < 0
}

// all are the strings and numbers in an array.
func (v value) all() []string {
	var words []string
	for _, e := range v.elements {
		if e.words {
			words = append(words, string(e.text))
		}
	}
	return words
}
