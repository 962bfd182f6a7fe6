package importers

import (
	"cmp"
	"errors"
	"fmt"
	"io"
	"regexp"
	"strconv"
	"strings"
	"text/scanner"
)

// Values of EDN (github.com/edn-format/edn), as far as Jepsen writes them, are nil, bool, int64, string, []any (a list,
// a vector or a set) and those below. A tag is dropped and its value kept.
type (
	keyword string // without its colon
	symbol  string // also a character
	number  string // that is no int64
	dict    []any  // a map: its keys, each followed by its value
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

// An ednReader reads one value after another.
type ednReader struct {
	scanner.Scanner
	failed error
	depth  int
}

func newEDNReader(r io.Reader) *ednReader {
	e := &ednReader{}
	e.Init(r)
	e.Mode = scanner.ScanIdents | scanner.ScanStrings
	e.Whitespace = 1<<' ' | 1<<'\t' | 1<<'\r' | 1<<'\n' | 1<<'\f' | 1<<','
	e.IsIdentRune = func(c rune, _ int) bool { return c > ' ' && !strings.ContainsRune(`,;"()[]{}`, c) }
	e.Error = func(_ *scanner.Scanner, message string) { e.failed = cmp.Or(e.failed, e.errorf("%s", message)) }
	return e
}

// errorf names the line, and is cut off: it may repeat what it is about.
func (e *ednReader) errorf(format string, args ...any) error {
	return fmt.Errorf("line %d: %.200s", e.Pos().Line, fmt.Sprintf(format, args...))
}

// read is the next value; io.EOF at the end of the file.
func (e *ednReader) read() (any, error) {
	v, err := e.next()
	switch {
	case errors.Is(err, io.EOF) && e.depth > 0:
		return nil, e.errorf("the file ends in the middle of a value")
	case errors.Is(err, errEnd):
		return nil, e.errorf("found %q, want a value", v)
	}
	return v, err
}

var errEnd = errors.New("the end of a list")

// next is the next value; io.EOF if there is none, and errEnd, with the bracket, at the end of a list.
func (e *ednReader) next() (any, error) {
	if e.depth++; e.depth > maxDepth {
		return nil, e.errorf("values lie more than %d deep in one another", maxDepth)
	}
	defer func() { e.depth-- }()
	token := e.Scan()
	for ; token == ';'; token = e.Scan() {
		for e.Peek() != '\n' && e.Peek() != scanner.EOF {
			e.Next()
		}
	}
	if e.failed != nil {
		return nil, e.failed
	}
	switch token {
	case scanner.EOF:
		return nil, io.EOF
	case '(':
		return e.list(')')
	case '[':
		return e.list(']')
	case '{':
		list, err := e.list('}')
		if len(list)%2 != 0 {
			return nil, e.errorf("a map ends after a key, want its value")
		}
		return dict(list), err
	case ')', ']', '}':
		return token, errEnd
	case scanner.Ident:
		return e.word(e.TokenText())
	case scanner.String:
		text, err := strconv.Unquote(e.TokenText())
		if err != nil || !ednString.MatchString(e.TokenText()) {
			return nil, e.errorf(`a string has an escape other than \t \n \r \b \f \" \\ \uXXXX: %s`, e.TokenText())
		}
		return text, nil
	default:
		return nil, e.errorf("found %q, want a value", token)
	}
}

func (e *ednReader) list(end rune) ([]any, error) {
	list := []any{}
	for {
		v, err := e.next()
		switch {
		case errors.Is(err, errEnd) && v == end:
			return list, nil
		case errors.Is(err, io.EOF):
			return nil, e.errorf("the file ends, want %q", end)
		case errors.Is(err, errEnd):
			return nil, e.errorf("found %q, want %q", v, end)
		case err != nil:
			return nil, err
		}
		list = append(list, v)
	}
}

var (
	ednString = regexp.MustCompile(`^"(?:[^\\]|\\[tnrbf"\\]|\\u[[:xdigit:]]{4})*"$`)
	ednNumber = regexp.MustCompile(`^[+-]?\d+(N|/\d+|(\.\d*)?([eE][+-]?\d+)?M?)$`)
)

func (e *ednReader) word(text string) (any, error) {
	switch {
	case text == "#" && e.Scan() == '{':
		return e.list('}')
	case text == "#" || strings.HasPrefix(text, "#_"):
		return nil, e.errorf("found %s, want a value, or a tag or a set of some", text)
	case text[0] == '#' && !strings.HasPrefix(text, "##"):
		return e.read()
	case text[0] == ':':
		return keyword(text[1:]), nil
	case text == "nil":
		return nil, nil
	case text == "true", text == "false":
		return text == "true", nil
	}
	if digits := strings.TrimLeft(text, "+-"); digits == "" || digits[0] < '0' || digits[0] > '9' {
		return symbol(text), nil
	}
	if n, err := strconv.ParseInt(strings.TrimSuffix(text, "N"), 10, 64); err == nil {
		return n, nil
	}
	if !ednNumber.MatchString(text) {
		return nil, e.errorf("%q is no number", text)
	}
	return number(text), nil
}
