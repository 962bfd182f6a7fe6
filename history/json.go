package history

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strconv"
	"strings"
	"time"
	"unicode/utf16"
	"unicode/utf8"
)

// errCut says that a line ends in the middle of its object.
var errCut = errors.New("it ends in the middle of one")

// errNUL says that a line has bytes that no text has.
var errNUL = errors.New("there are NUL bytes, as a file may have after a power cut")

// objectOf is the JSON object of a line, or an error that begins with what is
// wanted.
func objectOf(line []byte, want string) (json.RawMessage, error) {
	if bytes.IndexByte(line, 0) >= 0 {
		return nil, errNUL
	}
	var value json.RawMessage
	lines := json.NewDecoder(bytes.NewReader(line))
	switch err := lines.Decode(&value); {
	case errors.Is(err, io.ErrUnexpectedEOF) && bytes.TrimSpace(line)[0] == '{':
		return nil, fmt.Errorf("%s: %w", want, errCut)
	case errors.Is(err, io.ErrUnexpectedEOF):
		return nil, errors.New(want + ": it ends in the middle of another value")
	case err != nil && !utf8.Valid(line):
		return nil, notUTF8(line)
	case err != nil && !bytes.HasPrefix(bytes.TrimSpace(line), []byte("{")): // what a parser of JSON says of another format explains nothing
		return nil, fmt.Errorf("%s, found %s", want, quoted(bytes.TrimSpace(line)))
	case err != nil:
		return nil, fmt.Errorf("%s: %w", want, err)
	}
	switch c := value[0]; {
	case c == '{':
	case c == '[':
		return nil, errors.New(want + ", found a list")
	case c == '"':
		return nil, errors.New(want + ", found a string")
	case c == '-' || c >= '0' && c <= '9':
		return nil, errors.New(want + ", found a number")
	default:
		return nil, fmt.Errorf("%s, found %s", want, value) // true, false or null
	}
	if rest := bytes.TrimSpace(line[lines.InputOffset():]); len(rest) > 0 {
		return nil, errors.New(want + ": there is more behind it")
	}
	if !utf8.Valid(line) {
		return nil, notUTF8(line)
	}
	if half := halfCharacter(value); half != "" {
		return nil, fmt.Errorf("%s is half a character: its other half must come with it", half)
	}
	return value, nil
}

// notUTF8 names the first byte that is no UTF-8. To replace it would make one name
// of two.
func notUTF8(line []byte) error {
	at := 0
	for {
		r, size := utf8.DecodeRune(line[at:])
		if r == utf8.RuneError && size <= 1 {
			return fmt.Errorf("byte 0x%02x at column %d is not UTF-8", line[at], at+1)
		}
		at += size
	}
}

// halfCharacter is an escape that is half a character alone, as no UTF-8 has it.
func halfCharacter(value []byte) string {
	unit := func(at int) (rune, bool) {
		if at+6 > len(value) || value[at] != '\\' || value[at+1] != 'u' {
			return 0, false
		}
		n, err := strconv.ParseUint(string(value[at+2:at+6]), 16, 16)
		return rune(n), err == nil
	}
	for at := 0; at < len(value); at++ {
		if value[at] != '\\' {
			continue
		}
		first, ok := unit(at)
		if !ok || !utf16.IsSurrogate(first) {
			at++
			continue
		}
		second, ok := unit(at + 6)
		if !ok || utf16.DecodeRune(first, second) == utf8.RuneError {
			return string(value[at : at+6])
		}
		at += 11
	}
	return ""
}

// members tells the keys of an object and their values, in order.
func members(object []byte, tell func(key string, value json.RawMessage) error) error {
	tokens := json.NewDecoder(bytes.NewReader(object))
	if _, err := tokens.Token(); err != nil {
		return err
	}
	for tokens.More() {
		key, err := tokens.Token()
		if err != nil {
			return err
		}
		var value json.RawMessage
		if err := tokens.Decode(&value); err != nil {
			return err
		}
		name, _ := key.(string)
		if err := tell(name, value); err != nil {
			return err
		}
	}
	return nil
}

// fill takes a value into the place of a field.
func fill(key string, place any, value json.RawMessage) error {
	want := "a whole number"
	switch place := place.(type) {
	case *time.Duration:
		want = "whole nanoseconds"
	case *string, *Type, *Op, *Mode, *Life:
		want = "a string"
	case *bool, **bool:
		want = "true or false"
	case *[]Effect:
		want = "an array of strings"
	case *map[string]string:
		want = "an object of strings"
		if value[0] == '{' {
			return params(key, place, value)
		}
	}
	if err := json.Unmarshal(value, place); err != nil {
		return fmt.Errorf("field %q: want %s, found %s", key, want, clipped(string(value)))
	}
	return nil
}

func params(key string, place *map[string]string, object json.RawMessage) error {
	read := map[string]string{}
	err := members(object, func(name string, value json.RawMessage) error {
		if _, again := read[name]; again {
			return fmt.Errorf("field %q has %s twice", key, quoted(name))
		}
		text := ""
		if err := json.Unmarshal(value, &text); err != nil {
			return fmt.Errorf("field %q, %s: want a string, found %s", key, quoted(name), clipped(string(value)))
		}
		read[name] = text
		return nil
	})
	*place = read
	return err
}

// mostEchoed is how much of an input a message repeats, in bytes.
const mostEchoed = 60

// clipped is a text as a message repeats it: its beginning, where it is long.
func clipped(s string) string {
	if len(s) <= mostEchoed {
		return s
	}
	return fmt.Sprintf("%s… (%d bytes)", strings.ToValidUTF8(s[:mostEchoed], ""), len(s))
}

// quoted is clipped, in quotes.
func quoted[T ~string | ~[]byte](s T) string {
	if len(s) <= mostEchoed {
		return strconv.Quote(string(s))
	}
	return fmt.Sprintf("%s… (%d bytes)", strconv.Quote(strings.ToValidUTF8(string(s[:mostEchoed]), "")), len(s))
}
