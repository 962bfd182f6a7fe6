package history

import (
	"bytes"
	"cmp"
	"errors"
	"fmt"
	"io"
	"maps"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"
	jsonv1 "github.com/go-json-experiment/json/v1"
)

// A decoder makes events of lines.
//
// It reads by itself what programs write: one flat object of known fields, plain strings and whole numbers, each once,
// and leaves every other line, and so every one that is wrong, to the library for JSON. That takes 1.5 µs a line, with
// encoding/json 6 and with the tokens of jsontext 4.5, and to read is half of what the judge of a long history does.
type decoder struct {
	seen [1 << 12]string // strings of late, by their ends: most names come several times in a row
	// usual is what came after each field of late, its name with its colon, and first in a line: a program writes its
	// fields in the same order in each line, so that to know the next one takes one comparison. Without it the judge of
	// a long history takes an eighth more time.
	usual [numFields + 1]struct {
		text  string
		field int
	}
	line        []byte // that is read, and the place in it
	at          int
	had, filled uint64 // the fields that are there, and that say something, a bit each
	event       Event
	values      [numFields]reflect.Value // of its fields
}

func newDecoder() *decoder {
	d := &decoder{}
	for i := range d.values {
		d.values[i] = reflect.ValueOf(&d.event).Elem().Field(i)
	}
	return d
}

const wantObject = "want one JSON object a line"

// decodeLines decodes the lines of a block, up to one that is wrong.
func (b *block) decodeLines() {
	defer close(b.decoded)
	b.events, b.lines, b.err = b.events[:0], 0, nil
	for text := b.text; len(text) > 0 && b.err == nil; b.lines++ {
		n := bytes.IndexByte(text, '\n') + 1
		if n == 0 {
			n = len(text)
		}
		b.last, text = text[:n], text[n:]
		switch {
		case n > maxLine:
			b.err = fmt.Errorf("longer than %d bytes", maxLine)
		case len(bytes.TrimSpace(b.last)) == 0:
		default:
			if b.err = b.decoder.decode(b.last); b.err == nil {
				b.events = append(b.events, b.decoder.event)
				b.events[len(b.events)-1].Index = int64(b.lines + 1)
			}
		}
	}
}

// decode makes the event of one line; "time" and "process" must be there even when zero.
func (d *decoder) decode(line []byte) error {
	d.event = Event{}
	if d.object(line) {
		return d.event.valid(d.filled)
	}
	d.event = Event{}
	members, err := readObject(line, wantObject, &d.event)
	switch {
	case err != nil:
		return err
	case members["time"].Kind() != '0':
		return errors.New(`missing "time" (nanoseconds since the run began)`)
	case members["process"].Kind() != '0':
		return errors.New(`missing "process"`)
	default:
		return d.event.Validate()
	}
}

// next takes the byte c, after any space. It is false where anything is unusual or wrong, as are those below.
func (d *decoder) next(c byte) bool {
	for ; d.at < len(d.line); d.at++ {
		switch d.line[d.at] {
		case c:
			d.at++
			return true
		case ' ', '\t', '\r', '\n':
		default:
			return false
		}
	}
	return false
}

func (d *decoder) object(line []byte) bool {
	d.line, d.at, d.had, d.filled = line, 0, 0, 0
	const needed = 1<<fieldTime | 1<<fieldProcess
	field, known := numFields, false
	for before := byte('{'); d.next(before); before = ',' {
		if field, known = d.name(field); !known || d.had>>field&1 != 0 || !d.value(field) {
			return false
		}
		if d.next('}') {
			return d.had&needed == needed && len(bytes.Trim(d.line[d.at:], " \t\r\n")) == 0
		}
	}
	return false
}

// name takes the name of the field that comes after another one, with its colon.
func (d *decoder) name(before int) (field int, known bool) {
	usual := &d.usual[before]
	if usual.text != "" && bytes.HasPrefix(d.line[d.at:], []byte(usual.text)) {
		d.at += len(usual.text)
		return usual.field, true
	}
	from := d.at
	name, ok := d.text()
	if field, known = table.byName[string(name)]; !ok || !known || !d.next(':') {
		return 0, false
	}
	usual.text, usual.field = d.keep(d.line[from:d.at]), field
	return field, true
}

// value takes the value of a field.
func (d *decoder) value(field int) bool {
	says := false
	d.had |= 1 << field
	switch value := &d.values[field]; {
	case value.Kind() == reflect.String:
		s, ok := d.text()
		if !ok {
			return false
		}
		value.SetString(d.keep(s))
		says = len(s) > 0
	case value.CanInt():
		n, ok := d.number()
		if f := &table.fields[field]; !ok || n < f.least || n > f.most {
			return false
		}
		value.SetInt(n)
		says = n != 0
	default:
		return false
	}
	if says {
		d.filled |= 1 << field
	}
	return true
}

// text is a string. It knows one escape, that of quotes: the errors of a lock quote its name, and refusals are a
// large part of a history.
func (d *decoder) text() ([]byte, bool) {
	if !d.next('"') {
		return nil, false
	}
	quotes := false
	for i := d.at; i < len(d.line); i++ {
		switch c := d.line[i]; {
		case c == '"':
			s := d.line[d.at:i]
			if d.at = i + 1; quotes {
				s = bytes.ReplaceAll(s, []byte(`\"`), []byte(`"`))
			}
			return s, true
		case c == '\\' && i+1 < len(d.line) && d.line[i+1] == '"':
			quotes = true
			i++
		case c < ' ' || c == '\\' || c >= utf8.RuneSelf:
			return nil, false
		}
	}
	return nil, false
}

// keep makes a string of s, the same one for what was there of late.
func (d *decoder) keep(s []byte) string {
	at := len(s)
	for _, c := range s[max(len(s)-4, 0):] {
		at = at*31 + int(c)
	}
	slot := &d.seen[at%len(d.seen)]
	if *slot != string(s) {
		*slot = string(s)
	}
	return *slot
}

// number is a whole number of at most 18 digits, which is sure to fit.
func (d *decoder) number() (n int64, ok bool) {
	negative := d.next('-')
	begin := d.at
	for d.at < len(d.line) && d.at-begin < 18 && d.line[d.at]-'0' < 10 {
		n = n*10 + int64(d.line[d.at]-'0')
		d.at++
	}
	if d.at == begin || d.at == len(d.line) || d.line[begin] == '0' && d.at > begin+1 {
		return 0, false
	}
	if negative {
		n = -n
	}
	return n, true // what follows is taken for the end of the value, which no digit or dot is
}

// errCut says that a text ends in the middle of its object.
var errCut = errors.New("it ends in the middle of one")

// errNUL says that a text has bytes that no text has.
var errNUL = errors.New("there are NUL bytes, as a file may have after a power cut")

// readObject fills the fields of a struct from the JSON object that a text is, and returns what that has.
// It refuses fields that are there twice, or in another spelling, as some readers of JSON take them, and
// ignores unknown ones. Errors begin with what is wanted.
func readObject(text []byte, want string, into any) (members map[string]jsontext.Value, err error) {
	if bytes.IndexByte(text, 0) >= 0 {
		return nil, errNUL
	}
	tokens := jsontext.NewDecoder(bytes.NewReader(text))
	value, err := tokens.ReadValue()
	begins := bytes.HasPrefix(bytes.TrimSpace(text), []byte("{"))
	switch {
	case errors.Is(err, io.ErrUnexpectedEOF) && begins:
		return nil, fmt.Errorf("%s: %w", want, errCut)
	case errors.Is(err, jsontext.ErrDuplicateName):
		twice, _ := errors.AsType[*jsontext.SyntacticError](err)
		return nil, fmt.Errorf("field %q is there twice", clip(fieldPath(twice.JSONPointer), mostEchoed))
	case err != nil && begins:
		return nil, fmt.Errorf("%s: %s", want, clip(strings.TrimPrefix(err.Error(), "jsontext: "), 200))
	case !begins:
		return nil, fmt.Errorf("%s, found %s", want, cmp.Or(kinds[value.Kind()], quoted(bytes.TrimSpace(text))))
	}
	_ = json.Unmarshal(value, &members) // which it is
	for _, key := range slices.Sorted(maps.Keys(members)) {
		for field := range reflect.TypeOf(into).Elem().Fields() {
			if name := nameOf(field); strings.EqualFold(key, name) && key != name {
				return nil, fmt.Errorf("field %+q: write it as %q", clip(key, mostEchoed), name)
			}
		}
	}
	err = json.Unmarshal(value, into, jsonv1.FormatDurationAsNano(true))
	if unfit, is := errors.AsType[*json.SemanticError](err); is {
		want := map[reflect.Kind]string{
			reflect.String: "a string", reflect.Bool: "true or false", reflect.Slice: "a list", reflect.Map: "an object",
			reflect.Struct: "an object", reflect.Float64: "a number",
		}[unfit.GoType.Kind()]
		if unfit.GoType == reflect.TypeFor[time.Duration]() {
			want = "whole nanoseconds"
		}
		found := cmp.Or(string(unfit.JSONValue), kinds[unfit.JSONKind], unfit.JSONKind.String())
		return nil, fmt.Errorf("field %q: want %s, found %s", clip(fieldPath(unfit.JSONPointer), mostEchoed), cmp.Or(want, "a whole number"), clip(found, mostEchoed))
	}
	if _, more := tokens.ReadToken(); err == nil && !errors.Is(more, io.EOF) {
		err = errors.New(want + ": there is more behind it")
	}
	return members, err
}

// fieldPath names a field, which may be within another one.
func fieldPath(p jsontext.Pointer) string {
	return strings.ReplaceAll(strings.TrimPrefix(string(p), "/"), "/", ".")
}

// kinds name kinds of JSON value.
var kinds = map[jsontext.Kind]string{'{': "an object", '[': "a list", '"': "a string", '0': "a number"} //nolint:gochecknoglobals // data

// nameOf is how JSON spells a field.
func nameOf(field reflect.StructField) string {
	name, _, _ := strings.Cut(field.Tag.Get("json"), ",")
	return name
}

// mostEchoed is how much of a word of the input a message repeats, in bytes.
const mostEchoed = 60

// clip is a text, or its beginning where it is longer than so many bytes.
func clip(s string, most int) string {
	if len(s) <= most {
		return s
	}
	return fmt.Sprintf("%s… (%d bytes)", strings.ToValidUTF8(s[:most], ""), len(s))
}

// quoted is a word of the input in quotes.
func quoted[T ~string | ~[]byte](s T) string { return strconv.Quote(clip(string(s), mostEchoed)) }
