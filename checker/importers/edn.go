package importers

import (
	"bytes"
	"fmt"
	"io"
	"regexp"
	"strconv"
	"strings"
	"unicode/utf8"
)

// Values of EDN (github.com/edn-format/edn), as far as Jepsen writes them, are nil, int64, string, []any (a list, a vector or a
// set) and those below. A tag is dropped and its value kept.
type (
	keyword string // without its colon
	symbol  string // also a boolean, a character, and a number that is no int64
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

// ednToken is what comes next, behind blanks and comments: a string, a bracket or a word.
var ednToken = regexp.MustCompile(`(?s)^(?:[\s,]|;[^\n]*)*("(?:[^\\"]|\\.)*"|#\{|[\[\](){}"]|[^\s,;"()\[\]{}]+|)`)

// An ednReader reads one value after another.
type ednReader struct {
	data        []byte // that is left
	line, depth int
}

// errorf names the line, and is cut off: it may repeat what it is about.
func (e *ednReader) errorf(format string, args ...any) error {
	return fmt.Errorf("line %d: %.200s", e.line, fmt.Sprintf(format, args...))
}

// read is the next value; io.EOF at the end of the file.
func (e *ednReader) read() (any, error) {
	v, err := e.next()
	if bracket, is := v.(end); is && err == nil {
		if bracket == "" {
			return nil, io.EOF
		}
		return nil, e.errorf("found %q, want a value", bracket)
	}
	return v, err
}

// next is the next value, or an end.
func (e *ednReader) next() (any, error) {
	const most = 1000
	if e.depth++; e.depth > most {
		return nil, e.errorf("values lie more than %d deep in one another", most)
	}
	defer func() { e.depth-- }()
	found := ednToken.FindSubmatch(e.data)
	text := string(found[1])
	e.data, e.line = e.data[len(found[0]):], e.line+bytes.Count(found[0], []byte("\n"))
	switch {
	case text == "(", text == "[", text == "{", text == "#{":
		return e.list(text)
	case strings.Contains(")]}", text): // also where there is none
		return end(text), nil
	case text[0] == '"':
		s, err := strconv.Unquote(strings.ReplaceAll(text, "\n", `\n`))
		if err != nil || !utf8.ValidString(text) {
			return nil, e.errorf(`a string does not end, is no UTF-8, or has an escape other than \t \n \r \b \f \" \\ \uXXXX: %s`, text)
		}
		return s, nil
	case text[0] == '#' && !strings.HasPrefix(text, "##"):
		if v, err := e.read(); text != "#" && text != "#_" && err == nil {
			return v, nil
		}
		return nil, e.errorf("found %s, want a value, or a tag or a set of some", text)
	case text[0] == ':':
		return keyword(text[1:]), nil
	case text == "nil":
		return nil, nil //nolint:nilnil // it is a value
	}
	if n, err := strconv.ParseInt(strings.TrimSuffix(text, "N"), 10, 64); err == nil {
		return n, nil
	}
	return symbol(text), nil
}

// list is a list, vector, set or map.
func (e *ednReader) list(open string) (any, error) {
	want := map[string]end{"(": ")", "[": "]", "{": "}", "#{": "}"}[open]
	for list := []any{}; ; {
		v, err := e.next()
		bracket, is := v.(end)
		switch {
		case err != nil:
			return nil, err
		case !is:
			list = append(list, v)
		case bracket == "":
			return nil, e.errorf("the file ends, want %q", want)
		case bracket != want:
			return nil, e.errorf("found %q, want %q", bracket, want)
		case open != "{":
			return list, nil
		case len(list)%2 != 0:
			return nil, e.errorf("a map ends after a key, want its value")
		default:
			return dict(list), nil
		}
	}
}
