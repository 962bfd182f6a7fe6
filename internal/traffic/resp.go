package traffic

import (
	"bytes"
	"strconv"
	"strings"
)

const (
	deepest     = 32       // how deep a reply may be nested
	longestLine = 64 << 10 // how long Redis lets a line be
)

// A value is what a message in RESP begins with.
type value struct {
	length int    // in bytes; 0 if its end has not come
	text   []byte // of what has no elements
	// elements are those of an array, or of what is like one, that is not nested.
	elements []value
}

// parse reads the message with which b begins. It is not ok if b is nothing in RESP.
func parse(b []byte) (v value, ok bool) {
	if c := b[0]; 'a' <= c|' ' && c|' ' <= 'z' || c == '\r' || c == '\n' { // a command in a line of its own, as people type it
		v.length = bytes.IndexByte(b, '\n') + 1
		return v, v.length > 0 || len(b) < longestLine
	}
	return parseAt(b, deepest)
}

func parseAt(b []byte, depth int) (v value, ok bool) {
	if depth == 0 || len(b) > 0 && strings.IndexByte("+-:_,#($=!*~>%|", b[0]) < 0 {
		return v, false
	}
	line, _, complete := bytes.Cut(b, []byte("\r\n"))
	if !complete {
		return v, len(b) < longestLine
	}
	n := len(line) + len("\r\n")
	size, err := strconv.ParseInt(string(line[1:]), 10, 32)
	switch line[0] {
	case '+', '-', ':', '_', ',', '#', '(': // all of it is in the line
		return value{length: n, text: line[1:]}, true
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
		return value{length: end, text: b[n : end-len("\r\n")]}, bytes.HasSuffix(b[:end], []byte("\r\n"))
	case '%':
		size *= 2
	case '|':
		size = 2*size + 1 // and then what it is an attribute of
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

// all are the texts in an array.
func (v value) all() []string {
	var words []string
	for _, e := range v.elements {
		if e.text != nil {
			words = append(words, string(e.text))
		}
	}
	return words
}
