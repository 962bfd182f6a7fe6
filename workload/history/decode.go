package history

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"time"
	"unicode/utf8"
)

// A decoder makes events of lines.
//
// It reads by itself what programs write: one flat object of known fields,
// plain strings and whole numbers. Whatever is unusual (an escape, a nested
// value, a fraction, another spelling of a field) it leaves to encoding/json,
// which also says what is wrong with a line: the two never differ in what they
// accept or make of it, only in how long they take.
type decoder struct {
	seen [1 << 12]string // strings of late, by their hash
}

// decode parses one line; "time" and "process" must be there even when zero.
func (d *decoder) decode(line []byte, e *Event) error {
	*e = Event{}
	p := parser{line: line, decoder: d}
	if !p.object(e) {
		return decodeSlowly(line, e)
	}
	if !p.time || !p.process {
		return missing(p.time)
	}
	if e.plain() {
		return nil
	}
	return e.Validate()
}

func missing(time bool) error {
	if !time {
		return errors.New(`missing "time" (nanoseconds since the run began)`)
	}
	return errors.New(`missing "process"`)
}

// decodeSlowly is decode by encoding/json.
func decodeSlowly(line []byte, e *Event) error {
	var wire struct {
		Time    *time.Duration `json:"time"`
		Process *int           `json:"process"`
		Event
	}
	if err := json.Unmarshal(line, &wire); err != nil {
		*e = Event{}
		return fmt.Errorf("want one JSON object a line: %w", err)
	}
	*e = wire.Event
	if wire.Time == nil || wire.Process == nil {
		return missing(wire.Time != nil)
	}
	e.Time, e.Process = *wire.Time, *wire.Process
	return e.Validate()
}

// plain reports whether the event is one of a client on a lock and surely has
// nothing that [Event.Validate] would refuse.
func (e *Event) plain() bool {
	switch e.Op {
	case Acquire, Release, Extend:
	default:
		return false
	}
	switch e.Type {
	case Invoke, OK, Fail, Info:
	default:
		return false
	}
	return e.Mode == "" && e.Lock != "" && e.Process >= 0 &&
		int64(e.Time)|int64(e.Lease)|int64(e.Expires)|int64(e.Permits)|int64(e.Holds)|int64(e.Capacity)|int64(e.Drift) >= 0
}

// A parser goes through one line. Its methods report whether they understood
// what is there.
type parser struct {
	*decoder
	line          []byte
	at            int
	time, process bool // whether the fields were there
}

func (p *parser) space() {
	for p.at < len(p.line) {
		switch p.line[p.at] {
		case ' ', '\t', '\r', '\n':
			p.at++
		default:
			return
		}
	}
}

// next takes the byte c, after any space.
func (p *parser) next(c byte) bool {
	if p.at < len(p.line) && p.line[p.at] == c { // as most programs write it
		p.at++
		return true
	}
	p.space()
	if p.at < len(p.line) && p.line[p.at] == c {
		p.at++
		return true
	}
	return false
}

func (p *parser) object(e *Event) bool {
	if !p.next('{') {
		return false
	}
	if p.next('}') {
		p.space()
		return p.at == len(p.line)
	}
	for {
		if !p.next('"') {
			return false
		}
		key, ok := p.text()
		if !ok || !p.next(':') {
			return false
		}
		p.space()
		if !p.field(e, key) {
			return false
		}
		if p.next(',') {
			continue
		}
		if !p.next('}') {
			return false
		}
		p.space()
		return p.at == len(p.line)
	}
}

// text is a string without escapes, from behind its first quote.
func (p *parser) text() ([]byte, bool) {
	n := bytes.IndexByte(p.line[p.at:], '"')
	if n < 0 {
		return nil, false
	}
	s := p.line[p.at : p.at+n]
	p.at += n + 1
	ascii := true
	for _, c := range s {
		if c < ' ' || c == '\\' {
			return nil, false
		}
		ascii = ascii && c < utf8.RuneSelf
	}
	return s, ascii || utf8.Valid(s)
}

// number is a whole number that is sure to fit.
func (p *parser) number() (int64, bool) {
	at, negative := p.at, false
	if at < len(p.line) && p.line[at] == '-' {
		negative = true
		at++
	}
	first := at
	var n int64
	for at < len(p.line) && p.line[at] >= '0' && p.line[at] <= '9' {
		n = n*10 + int64(p.line[at]-'0')
		at++
		if at-first > 18 {
			return 0, false
		}
	}
	if at == first || p.line[first] == '0' && at > first+1 {
		return 0, false
	}
	if at < len(p.line) {
		switch p.line[at] {
		case '.', 'e', 'E':
			return 0, false
		}
	}
	p.at = at
	if negative {
		n = -n
	}
	return n, true
}

func (p *parser) flag() (value, ok bool) {
	rest := p.line[p.at:]
	switch {
	case bytes.HasPrefix(rest, []byte("true")):
		p.at += len("true")
		return true, true
	case bytes.HasPrefix(rest, []byte("false")):
		p.at += len("false")
		return false, true
	default:
		return false, false
	}
}

// whole takes a number into a field of any such type.
func whole[T ~int | ~int64](p *parser, field *T) bool {
	n, ok := p.number()
	*field = T(n)
	return ok && int64(*field) == n
}

// words takes a string into a field.
func (p *parser) words(field *string) bool {
	if !p.next('"') {
		return false
	}
	s, ok := p.text()
	if ok {
		*field = p.keep(s)
	}
	return ok
}

// named takes a string that is one of a few.
func named[T ~string](p *parser, field *T, known ...T) bool {
	if !p.next('"') {
		return false
	}
	s, ok := p.text()
	if !ok {
		return false
	}
	for _, k := range known {
		if string(s) == string(k) {
			*field = k
			return true
		}
	}
	*field = T(p.keep(s))
	return true
}

func (p *parser) field(e *Event, key []byte) bool {
	switch string(key) {
	case "time":
		p.time = true
		return whole(p, &e.Time)
	case "process":
		p.process = true
		return whole(p, &e.Process)
	case "index":
		return whole(p, &e.Index)
	case "type":
		return named(p, &e.Type, Invoke, OK, Fail, Info)
	case "op":
		return named(p, &e.Op, Acquire, Release, Extend, Access, Lost, Observe)
	case "lock":
		return p.words(&e.Lock)
	case "owner":
		return p.words(&e.Owner)
	case "mode":
		return named(p, &e.Mode, Exclusive, Read, Write, Permit)
	case "permits":
		return whole(p, &e.Permits)
	case "lease":
		return whole(p, &e.Lease)
	case "expires":
		return whole(p, &e.Expires)
	case "token":
		return whole(p, &e.Token)
	case "holds":
		return whole(p, &e.Holds)
	case "queued":
		return whole(p, &e.Queued)
	case "resource":
		return p.words(&e.Resource)
	case "value":
		return p.words(&e.Value)
	case "fault":
		return p.words(&e.Fault)
	case "target":
		return p.words(&e.Target)
	case "node":
		return p.words(&e.Node)
	case "what":
		return p.words(&e.What)
	case "error":
		return p.words(&e.Error)
	case "kind":
		return p.words(&e.Kind)
	case "capacity":
		return whole(p, &e.Capacity)
	case "drift":
		return whole(p, &e.Drift)
	case "reentrant":
		return p.switched(&e.Reentrant)
	case "fair":
		return p.switched(&e.Fair)
	case "fenced":
		fenced := false
		e.Fenced = &fenced
		return p.switched(e.Fenced)
	default:
		return unknownField(key) && p.skip()
	}
}

func (p *parser) switched(field *bool) (ok bool) {
	*field, ok = p.flag()
	return ok
}

// unknownField reports whether the format surely has no such field, in any
// spelling that encoding/json takes for the same.
func unknownField(key []byte) bool {
	for _, c := range key {
		if c >= utf8.RuneSelf {
			return false
		}
	}
	switch strings.ToLower(string(key)) {
	case "time", "process", "index", "type", "op", "lock", "owner", "mode", "permits", "lease", "expires", "token",
		"holds", "queued", "resource", "value", "fault", "target", "params", "node", "what", "error", "kind",
		"capacity", "drift", "reentrant", "fair", "fenced":
		return false
	default:
		return true
	}
}

// skip passes over the value of an unknown field.
func (p *parser) skip() bool {
	if p.next('"') {
		_, ok := p.text()
		return ok
	}
	if _, ok := p.flag(); ok {
		return true
	}
	_, ok := p.number()
	return ok
}

// keep makes a string of s, the same one for what was there of late: most
// names come several times in a row.
func (d *decoder) keep(s []byte) string {
	if len(s) == 0 {
		return ""
	}
	h := uint32(2166136261)
	for _, c := range s[max(0, len(s)-16):] {
		h = (h ^ uint32(c)) * 16777619
	}
	slot := &d.seen[(h^h>>15)%uint32(len(d.seen))]
	if *slot != string(s) {
		*slot = string(s)
	}
	return *slot
}
