package importers

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"math"
	"strconv"
	"strings"
	"unicode/utf16"
	"unicode/utf8"
)

// A keyword is an EDN keyword without its colon.
type keyword string

// A pair is a key of a map with its value.
type pair struct{ key, value any }

// A dict is an EDN map, in the order in which it was written.
type dict []pair

// get is the value of a keyword; nil if there is none.
func (d dict) get(key keyword) any {
	for _, p := range d {
		if p.key == key {
			return p.value
		}
	}
	return nil
}

// An ednReader reads values of EDN (github.com/edn-format/edn), as far as
// histories have them: nil, booleans, numbers, strings, characters, keywords,
// symbols, lists, vectors, maps and sets. A tag is dropped and its value kept.
//
// Values are nil, bool, int64, float64, string (also of characters and
// symbols), keyword, []any (of lists, vectors and sets) and dict.
type ednReader struct {
	r     *bufio.Reader
	line  int // from 1
	depth int
}

func newEDNReader(r io.Reader) *ednReader {
	return &ednReader{r: bufio.NewReaderSize(r, 256<<10), line: 1}
}

// maxDepth bounds how deep values lie within one another.
const maxDepth = 1000

func (e *ednReader) errorf(format string, args ...any) error {
	err := fmt.Errorf(format, args...)
	if text := []rune(err.Error()); len(text) > maxMessage {
		err = errors.New(string(text[:maxMessage]) + "…")
	}
	return fmt.Errorf("line %d: %w", e.line, err)
}

// maxMessage is how long a message about a line is, in characters: it may repeat what
// it is about.
const maxMessage = 200

// next is the next byte that is not white space or a comment.
func (e *ednReader) next() (byte, error) {
	for {
		c, err := e.r.ReadByte()
		if err != nil {
			return 0, err
		}
		switch c {
		case '\n':
			e.line++
		case ' ', '\t', '\r', ',', '\f':
		case ';':
			text, err := e.r.ReadString('\n')
			if err != nil {
				return 0, err
			}
			e.line += strings.Count(text, "\n")
		default:
			return c, nil
		}
	}
}

// read is the next value; io.EOF if there is none.
func (e *ednReader) read() (any, error) {
	c, err := e.next()
	if err != nil {
		return nil, err
	}
	return e.value(c)
}

func (e *ednReader) value(c byte) (any, error) {
	if e.depth++; e.depth > maxDepth {
		return nil, e.errorf("values lie more than %d deep in one another", maxDepth)
	}
	defer func() { e.depth-- }()
	switch c {
	case '{':
		return e.dict()
	case '[':
		return e.list(']')
	case '(':
		return e.list(')')
	case '"':
		return e.text()
	case '\\':
		return e.atom(c)
	case '#':
		return e.dispatch()
	case '}', ']', ')':
		return nil, e.errorf("found %q, want a value", c)
	default:
		return e.atom(c)
	}
}

// inside is the next value of a collection; done if it ends there.
func (e *ednReader) inside(end byte) (value any, done bool, err error) {
	for {
		c, err := e.next()
		if errors.Is(err, io.EOF) {
			return nil, false, e.errorf("the file ends, want %q", end)
		}
		if err != nil {
			return nil, false, err
		}
		if c == end {
			return nil, true, nil
		}
		value, err := e.value(c)
		if errors.Is(err, errDiscarded) {
			continue
		}
		return value, false, err
	}
}

func (e *ednReader) list(end byte) ([]any, error) {
	list := []any{}
	for {
		v, done, err := e.inside(end)
		if err != nil || done {
			return list, err
		}
		list = append(list, v)
	}
}

func (e *ednReader) dict() (dict, error) {
	d := dict{}
	for {
		k, done, err := e.inside('}')
		if err != nil || done {
			return d, err
		}
		v, done, err := e.inside('}')
		if err != nil {
			return d, err
		}
		if done {
			return d, e.errorf("a map ends after a key, want its value")
		}
		d = append(d, pair{k, v})
	}
}

// errDiscarded says that there was a value to be skipped.
var errDiscarded = errors.New("discarded")

// dispatch reads what follows a #: a set, a tagged value, or one to skip.
func (e *ednReader) dispatch() (any, error) {
	c, err := e.r.ReadByte()
	if err != nil {
		return nil, e.atEOF(err)
	}
	switch c {
	case '{':
		return e.list('}')
	case '_':
		if _, err := e.read(); err != nil && !errors.Is(err, errDiscarded) {
			return nil, e.atEOF(err)
		}
		return nil, errDiscarded
	case '#':
		return e.symbolic()
	default:
		if _, err := e.token(c); err != nil {
			return nil, err
		}
		v, err := e.read()
		return v, e.atEOF(err)
	}
}

// symbolic reads ##Inf, ##-Inf or ##NaN.
func (e *ednReader) symbolic() (any, error) {
	c, err := e.r.ReadByte()
	if err != nil {
		return nil, e.atEOF(err)
	}
	t, err := e.token(c)
	if err != nil {
		return nil, err
	}
	if !utf8.ValidString(t) {
		return nil, e.errorf("%q is not UTF-8", t)
	}
	switch t {
	case "Inf":
		return math.Inf(1), nil
	case "-Inf":
		return math.Inf(-1), nil
	default:
		return math.NaN(), nil
	}
}

// atEOF makes an error of a file that ends in the middle of a value.
func (e *ednReader) atEOF(err error) error {
	if errors.Is(err, io.EOF) {
		return e.errorf("the file ends in the middle of a value")
	}
	return err
}

// token is everything up to the next delimiter.
func (e *ednReader) token(c byte) (string, error) {
	var b strings.Builder
	b.WriteByte(c)
	for {
		next, err := e.r.Peek(1)
		if errors.Is(err, io.EOF) {
			return b.String(), nil
		}
		if err != nil {
			return "", err
		}
		if strings.IndexByte(" \t\r\n,;\"{}[]()", next[0]) >= 0 {
			return b.String(), nil
		}
		b.WriteByte(next[0])
		if _, err := e.r.Discard(1); err != nil {
			return "", err
		}
	}
}

func (e *ednReader) atom(c byte) (any, error) {
	t, err := e.token(c)
	if err != nil {
		return nil, err
	}
	switch {
	case t == "nil":
		return nil, nil
	case t == "true", t == "false":
		return t == "true", nil
	case c == ':':
		return keyword(t[1:]), nil
	case c == '\\':
		return t[1:], nil
	case c >= '0' && c <= '9', (c == '-' || c == '+') && len(t) > 1 && t[1] >= '0' && t[1] <= '9':
		return e.number(t)
	default:
		return t, nil
	}
}

func (e *ednReader) number(t string) (any, error) {
	if n, err := strconv.ParseInt(strings.TrimSuffix(t, "N"), 10, 64); err == nil {
		return n, nil
	}
	if f, err := strconv.ParseFloat(strings.TrimSuffix(t, "M"), 64); err == nil {
		return f, nil
	}
	if over, under, ok := strings.Cut(t, "/"); ok { // a ratio
		a, err1 := strconv.ParseFloat(over, 64)
		b, err2 := strconv.ParseFloat(under, 64)
		if err1 == nil && err2 == nil {
			return a / b, nil
		}
	}
	return nil, e.errorf("%q is no number", t)
}

func (e *ednReader) text() (any, error) {
	var b strings.Builder
	for {
		c, err := e.r.ReadByte()
		if err != nil {
			return nil, e.atEOF(err)
		}
		switch c {
		case '"':
			if !utf8.ValidString(b.String()) {
				return nil, e.errorf("a string is not UTF-8")
			}
			return b.String(), nil
		case '\n':
			e.line++
			b.WriteByte(c)
		case '\\':
			if err := e.escape(&b); err != nil {
				return nil, err
			}
		default:
			b.WriteByte(c)
		}
	}
}

func (e *ednReader) escape(b *strings.Builder) error {
	c, err := e.r.ReadByte()
	if err != nil {
		return e.atEOF(err)
	}
	switch c {
	case 'n':
		b.WriteByte('\n')
	case 't':
		b.WriteByte('\t')
	case 'r':
		b.WriteByte('\r')
	case 'b':
		b.WriteByte('\b')
	case 'f':
		b.WriteByte('\f')
	case '\\', '"':
		b.WriteByte(c)
	case 'u':
		r, err := e.unit()
		if err != nil {
			return err
		}
		if utf16.IsSurrogate(r) { // the other half must follow
			half := r
			next, err := e.r.Peek(2)
			if err != nil || string(next) != `\u` {
				return e.errorf(`\u%04x is half a character`, half)
			}
			_, _ = e.r.Discard(2) // they were there
			if r, err = e.unit(); err != nil {
				return err
			}
			if r = utf16.DecodeRune(half, r); r == utf8.RuneError {
				return e.errorf(`\u%04x is half a character`, half)
			}
		}
		b.WriteRune(r)
	default:
		return e.errorf(`unknown escape \%c in a string`, c)
	}
	return nil
}

// unit is what four hexadecimal digits stand for: a character, or half of one.
func (e *ednReader) unit() (rune, error) {
	digits := make([]byte, 4)
	if _, err := io.ReadFull(e.r, digits); err != nil {
		return 0, e.atEOF(io.EOF)
	}
	n, err := strconv.ParseUint(string(digits), 16, 16)
	if err != nil {
		return 0, e.errorf(`\u%s is no character`, digits)
	}
	return rune(n), nil
}
