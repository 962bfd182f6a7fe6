package history

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"hash/maphash"
	"strings"
	"time"
	"unicode/utf8"
)

// A decoder makes events of lines.
//
// It reads by itself what programs write: one flat object of known fields, plain strings and whole
// numbers. json.Unmarshal alone, which refuses less, takes four times as long for a line (10.1 against 2.4 µs, of
// 20,000 lines on a machine with other work), and to read is half of what the judge of a long history does. A value that is unusual (an escape, something nested, a fraction) it leaves to
// encoding/json, and so it does the whole line where that is wrong, to say how.
type decoder struct {
	seed maphash.Seed
	seen [1 << 12]string // strings of late, by their hash: most names come several times in a row
	// usual is what came after each field of late, and first in a line. A program writes its fields in
	// the same order in each line, so that to know the next one takes one comparison: a fifth of the time of a line.
	usual [maxFields + 2]lead
}

// A lead is the name of the field that comes next, with its colon.
type lead struct {
	text  string
	field int
}

// maxFields is the most that the table may have: a bit each. Behind them stand what is before the first field of a
// line, and fields that are not of the format.
const (
	maxFields = 62
	first     = maxFields
	unknown   = maxFields + 1
)

// errSyntax says that a line is no JSON; objectOf says how.
var errSyntax = errors.New(wantObject)

const wantObject = "want one JSON object a line"

// decode parses one line; "time" and "process" must be there even when zero.
func (d *decoder) decode(line []byte, e *Event) error {
	*e = Event{}
	p := parser{line: line, decoder: d}
	err := p.object(e)
	if err == nil {
		return e.valid(p.filled)
	}
	if _, wrong := objectOf(line, wantObject); wrong != nil {
		return wrong
	}
	return err
}

// A parser goes through one line.
type parser struct {
	*decoder
	line               []byte
	at                 int
	had, given, filled uint64 // the fields that are there, that are not null, and that say something, a bit each
	out                bool   // a number is out of range
}

// next takes the byte c, after any space.
func (p *parser) next(c byte) bool {
	for ; p.at < len(p.line); p.at++ {
		switch p.line[p.at] {
		case c:
			p.at++
			return true
		case ' ', '\t', '\r', '\n':
		default:
			return false
		}
	}
	return false
}

func (p *parser) object(e *Event) error {
	if !p.next('{') {
		return errSyntax
	}
	if !p.next('}') {
		for field := first; ; {
			var err error
			if field, err = p.name(field); err != nil {
				return err
			}
			if err := p.value(e, field); err != nil {
				return err
			}
			if p.next('}') {
				break
			}
			if !p.next(',') {
				return errSyntax
			}
		}
	}
	switch {
	case len(bytes.TrimSpace(p.line[p.at:])) > 0:
		return errSyntax
	case p.given>>fieldTime&1 == 0:
		return errors.New(`missing "time" (nanoseconds since the run began)`)
	case p.given>>fieldProcess&1 == 0:
		return errors.New(`missing "process"`)
	case p.out:
		return e.ranges()
	default:
		return nil
	}
}

// name takes the name of the field that comes after another one, with its colon.
func (p *parser) name(before int) (int, error) {
	if l := &p.usual[before]; l.text != "" && bytes.HasPrefix(p.line[p.at:], []byte(l.text)) {
		p.at += len(l.text)
		return l.field, nil
	}
	from := p.at
	key, ok := p.text()
	if !ok {
		raw, err := p.raw()
		if err != nil || raw[0] != '"' || json.Unmarshal(raw, &key) != nil {
			return 0, errSyntax
		}
	}
	if !p.next(':') {
		return 0, errSyntax
	}
	field, known := table.byName[key]
	if !known {
		for i := range table.fields {
			if strings.EqualFold(key, table.fields[i].Name) { // what some readers of JSON take for it
				return 0, fmt.Errorf("field %+q: write it as %q", clipped(key), table.fields[i].Name)
			}
		}
		return unknown, nil
	}
	p.usual[before] = lead{string(p.line[from:p.at]), field}
	return field, nil
}

// text is a string without escapes; it is false, and takes nothing, where there is anything else.
func (p *parser) text() (string, bool) {
	from := p.at
	if p.next('"') {
		for i := p.at; i < len(p.line); i++ {
			switch c := p.line[i]; {
			case c == '"':
				s := p.line[p.at:i]
				p.at = i + 1
				return p.keep(s), true
			case c < ' ' || c == '\\' || c >= utf8.RuneSelf:
				p.at = from
				return "", false
			}
		}
	}
	p.at = from
	return "", false
}

// keep makes a string of s, the same one for what was there of late.
func (d *decoder) keep(s []byte) string {
	slot := &d.seen[maphash.Bytes(d.seed, s)%uint64(len(d.seen))]
	if *slot != string(s) {
		*slot = string(s)
	}
	return *slot
}

// number is a whole number that is sure to fit; it is false, and takes nothing, where there is anything else.
func (p *parser) number() (int64, bool) {
	for p.at < len(p.line) && p.line[p.at] == ' ' {
		p.at++
	}
	at, n := p.at, int64(0)
	negative := at < len(p.line) && p.line[at] == '-'
	if negative {
		at++
	}
	begin := at
	for at < len(p.line) && at-begin < 18 && p.line[at]-'0' < 10 {
		n = n*10 + int64(p.line[at]-'0')
		at++
	}
	if at == begin || at == len(p.line) || p.line[begin] == '0' && at > begin+1 {
		return 0, false
	}
	switch c := p.line[at]; {
	case c == '.', c == 'e', c == 'E', c-'0' < 10:
		return 0, false
	}
	p.at = at
	if negative {
		n = -n
	}
	return n, true
}

// raw is any value.
func (p *parser) raw() (json.RawMessage, error) {
	var value json.RawMessage
	values := json.NewDecoder(bytes.NewReader(p.line[p.at:]))
	if err := values.Decode(&value); err != nil || !utf8.Valid(value) || halfCharacter(value) != "" {
		return nil, errSyntax
	}
	p.at += int(values.InputOffset())
	return value, nil
}

// value takes the value of a field.
func (p *parser) value(e *Event, field int) error {
	if field == unknown {
		if _, ok := p.text(); ok {
			return nil
		}
		_, err := p.raw()
		return err
	}
	f := &table.fields[field]
	bit := uint64(1) << field
	if p.had&bit != 0 {
		return fmt.Errorf("field %q is there twice", f.Name)
	}
	p.had |= bit
	place := f.at(e)
	if !p.plain(place) {
		raw, err := p.raw()
		if err != nil {
			return err
		}
		if string(raw) == "null" {
			return nil
		}
		if err := fill(f.Name, place, raw); err != nil {
			return err
		}
	}
	p.given |= bit
	if n, ok := numeral(place); ok && (n < f.least || n > f.most) {
		p.out = true
	}
	if has(place) {
		p.filled |= bit
	}
	return nil
}

// plain takes a plain string or a whole number; it is false, and takes nothing, where there is anything else.
func (p *parser) plain(place any) (ok bool) {
	var n int64
	switch place := place.(type) {
	case *time.Duration:
		n, ok = p.number()
		*place = time.Duration(n)
	case *int64:
		*place, ok = p.number()
	case *int:
		n, ok = p.number()
		*place = int(n)
	case *string:
		*place, ok = p.text()
	case *Type:
		*place, ok = plainWord[Type](p)
	case *Op:
		*place, ok = plainWord[Op](p)
	case *Mode:
		*place, ok = plainWord[Mode](p)
	}
	return ok
}

func plainWord[T ~string](p *parser) (T, bool) {
	s, ok := p.text()
	return T(s), ok
}
