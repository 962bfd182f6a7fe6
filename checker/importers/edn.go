package importers

import (
	"bytes"
	"cmp"
	"fmt"
	"io"
	"regexp"
	"strconv"
	"strings"
	"unicode/utf8"
)

// Values of EDN (github.com/edn-format/edn), as far as Jepsen writes them, are nil, bool, int64, string, []any (a list,
// a vector or a set) and those below. A tag is dropped and its value kept.
type (
	keyword string // without its colon
	symbol  string // also a character
	number  string // that is no int64
	dict    []any  // a map: its keys, each followed by its value
	end     string // what closes a list; empty: the end of the file
)

// get is the value of a keyword; nil if there is none.
func (d dict) get(key keyword) any {
	for i := 0; i < len(d); i += 2 {
		if d[i] == key {
			return d[i+1]
		}
	}
	return nil
}

// maxDepth bounds how deep values lie within one another.
const maxDepth = 1000

// ednToken is what comes next, behind blanks and comments: a string, a bracket or a word.
var ednToken = regexp.MustCompile(`(?s)^(?:[\s,]|;[^\n]*)*("(?:[^\\"]|\\.)*"|#\{|[\[\](){}"]|[^\s,;"()\[\]{}]+|)`)

// An ednReader reads one value after another, up to the first error.
type ednReader struct {
	data   []byte // that is left
	line   int
	depth  int
	failed error
}

// errorf names the line, and is cut off: it may repeat what it is about.
func (e *ednReader) errorf(format string, args ...any) error {
	return fmt.Errorf("line %d: %.200s", e.line, fmt.Sprintf(format, args...))
}

func (e *ednReader) fail(format string, args ...any) any {
	e.failed = cmp.Or(e.failed, e.errorf(format, args...))
	return nil
}

// read is the next value; io.EOF at the end of the file.
func (e *ednReader) read() (any, error) {
	v := e.next()
	if v == end("") && e.failed == nil {
		return nil, io.EOF
	}
	return e.value(v), e.failed
}

// value is v, if that is one.
func (e *ednReader) value(v any) any {
	switch bracket, is := v.(end); {
	case is && bracket == "":
		return e.fail("the file ends in the middle of a value")
	case is:
		return e.fail("found %q, want a value", bracket)
	}
	return v
}

// next is the next value, or an end.
func (e *ednReader) next() any {
	if e.depth++; e.depth > maxDepth {
		return e.fail("values lie more than %d deep in one another", maxDepth)
	}
	defer func() { e.depth-- }()
	found := ednToken.FindSubmatch(e.data)
	text := string(found[1])
	e.data, e.line = e.data[len(found[0]):], e.line+bytes.Count(found[0], []byte("\n"))
	switch {
	case text == "(":
		return e.list(")")
	case text == "[":
		return e.list("]")
	case text == "{", text == "#{":
		list := e.list("}")
		if text == "#{" {
			return list
		} else if len(list)%2 != 0 {
			return e.fail("a map ends after a key, want its value")
		}
		return dict(list)
	case strings.Contains(")]}", text): // also where there is none
		return end(text)
	case text == `"`:
		return e.fail("a string does not end")
	case text[0] == '"':
		s, err := strconv.Unquote(strings.ReplaceAll(text, "\n", `\n`))
		if err != nil || !utf8.ValidString(text) {
			return e.fail(`a string is no UTF-8, or has an escape other than \t \n \r \b \f \" \\ \uXXXX: %s`, text)
		}
		return s
	case text == "#" || strings.HasPrefix(text, "#_"):
		return e.fail("found %s, want a value, or a tag or a set of some", text)
	case text[0] == '#' && !strings.HasPrefix(text, "##"):
		return e.value(e.next())
	case text[0] == ':':
		return keyword(text[1:])
	case text == "nil":
		return nil
	case text == "true", text == "false":
		return text == "true"
	}
	if digits := strings.TrimLeft(text, "+-"); digits == "" || digits[0] < '0' || digits[0] > '9' {
		return symbol(text)
	}
	if n, err := strconv.ParseInt(strings.TrimSuffix(text, "N"), 10, 64); err == nil {
		return n
	}
	return number(text)
}

func (e *ednReader) list(until end) []any {
	list := []any{}
	for e.failed == nil {
		v := e.next()
		switch bracket, is := v.(end); {
		case !is:
			list = append(list, v)
		case bracket == until:
			return list
		case bracket == "":
			e.fail("the file ends, want %q", until)
		default:
			e.fail("found %q, want %q", bracket, until)
		}
	}
	return nil
}
