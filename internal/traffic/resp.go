package traffic

import (
	"bytes"
	"strconv"
)

// deepest is how deep a reply may be nested.
const deepest = 32

// length is how many bytes the message has with which b begins; 0 if its end has
// not come. It is not ok if b is nothing in RESP.
func length(b []byte) (n int, ok bool) { return lengthAt(b, deepest) }

func lengthAt(b []byte, depth int) (n int, ok bool) {
	if len(b) == 0 {
		return 0, true
	}
	if bytes.IndexByte([]byte("+-:_,#($=!*~>%|"), b[0]) < 0 {
		if depth < deepest { // inline commands are no elements of an array
			return 0, false
		}
		return inline(b)
	}
	line, complete := firstLine(b)
	if !complete {
		return 0, len(b) < longestLine
	}
	n = len(line) + len("\r\n")
	if depth == 0 {
		return 0, false
	}
	switch line[0] {
	case '+', '-', ':', '_', ',', '#', '(': // all of it is in the line
		return n, true
	case '$', '=', '!': // this many bytes follow
		size, ok := count(line)
		if !ok {
			return 0, false
		}
		if size < 0 {
			return n, true
		}
		if n += size + len("\r\n"); n > len(b) {
			return 0, true
		}
		return n, bytes.HasSuffix(b[:n], []byte("\r\n"))
	default: // this many elements follow
		elements, ok := count(line)
		if !ok {
			return 0, false
		}
		switch line[0] {
		case '%':
			elements *= 2
		case '|':
			elements = 2*elements + 1 // and then what it is an attribute of
		}
		for range elements {
			size, ok := lengthAt(b[n:], depth-1)
			if size == 0 || !ok {
				return 0, ok
			}
			n += size
		}
		return n, true
	}
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

// longestLine is how long Redis lets a line be.
const longestLine = 64 << 10

// firstLine is what stands before the first line's end.
func firstLine(b []byte) (line []byte, complete bool) {
	i := bytes.Index(b, []byte("\r\n"))
	if i < 1 {
		return nil, false
	}
	return b[:i], true
}

// count reads the number of a line; negative is nothing at all.
func count(line []byte) (int, bool) {
	n, err := strconv.ParseInt(string(line[1:]), 10, 32)
	return int(n), err == nil
}

func printable(line []byte) bool {
	for _, c := range line {
		if c < ' ' || c > '~' {
			return false
		}
	}
	return true
}

// elements are the strings and numbers in a complete array; what is nested is
// left out.
func elements(b []byte) []string {
	line, _ := firstLine(b)
	n, _ := count(line)
	b = b[len(line)+len("\r\n"):]
	var words []string
	for range n {
		size, _ := length(b)
		line, _ := firstLine(b)
		switch line[0] {
		case '$', '=':
			if from := len(line) + len("\r\n"); from+len("\r\n") <= size {
				words = append(words, string(b[from:size-len("\r\n")]))
			}
		case '+', ':':
			words = append(words, string(line[1:]))
		}
		b = b[size:]
	}
	return words
}
