package importers

import (
	"bytes"
	"fmt"
	"io"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"unicode/utf8"
)

// Values of EDN (github.com/edn-format/edn), as far as Jepsen writes them, are nil, int64, string, []any (a list, a vector or a
// set) and those below. A tag is dropped and its value kept.
type (
	keyword string          // without its colon
	symbol  string          // also a boolean, a character, and a number that is no int64
	dict    map[keyword]any // a map, without what has another key
)

// ednToken is what comes next, behind blanks and comments: a string, a bracket or a word.
var ednToken = regexp.MustCompile(`(?s)^(?:[\s,]|;[^\n]*)*("(?:[^\\"]|\\.)*"|#\{|[\[\](){}"]|[^\s,;"()\[\]{}]+|)`)

// An ednReader reads one value after another.
type ednReader struct {
	data []byte // that is left
	line int
}

// errorf names the line, and is cut off: it may repeat what it is about.
func (e *ednReader) errorf(format string, args ...any) error {
	return fmt.Errorf("line %d: %.200s", e.line, fmt.Sprintf(format, args...))
}

// token is empty at the end of the file.
func (e *ednReader) token() string {
	found := ednToken.FindSubmatch(e.data)
	e.data, e.line = e.data[len(found[0]):], e.line+bytes.Count(found[0], []byte("\n"))
	return string(found[1])
}

// value is the value that begins with a token, inside of so many others; io.EOF if there is none.
func (e *ednReader) value(text string, depth int) (any, error) {
	const most = 1000
	switch {
	case depth >= most:
		return nil, e.errorf("values lie more than %d deep in one another", most)
	case text == "":
		return nil, io.EOF
	case slices.Contains([]string{"(", "[", "{", "#{"}, text):
		return e.list(text, depth)
	case strings.Contains(")]}", text):
		return nil, e.errorf("found %q, want a value", text)
	case text[0] == '"':
		s, err := strconv.Unquote(strings.ReplaceAll(text, "\n", `\n`))
		if err != nil || !utf8.ValidString(text) {
			return nil, e.errorf(`a string does not end, is no UTF-8, or has an escape other than \t \n \r \b \f \" \\ \uXXXX: %s`, text)
		}
		return s, nil
	case text[0] == '#' && !strings.HasPrefix(text, "##"):
		if v, err := e.value(e.token(), depth+1); text != "#" && text != "#_" && err == nil {
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
func (e *ednReader) list(open string, depth int) (any, error) {
	want, list := map[string]string{"(": ")", "[": "]", "{": "}", "#{": "}"}[open], []any{}
	for text := e.token(); text != want; text = e.token() {
		switch v, err := e.value(text, depth+1); {
		case text == "":
			return nil, e.errorf("the file ends, want %q", want)
		case strings.Contains(")]}", text):
			return nil, e.errorf("found %q, want %q", text, want)
		case err != nil:
			return nil, err
		default:
			list = append(list, v)
		}
	}
	switch d := (dict{}); {
	case open != "{":
		return list, nil
	case len(list)%2 != 0:
		return nil, e.errorf("a map ends after a key, want its value")
	default:
		for i := 0; i < len(list); i += 2 {
			if key, is := list[i].(keyword); is {
				d[key] = list[i+1]
			}
		}
		return d, nil
	}
}
