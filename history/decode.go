package history

import (
	"bytes"
	"encoding/binary"
	"errors"
	"unicode/utf8"
)

// A decoder makes events of lines.
//
// It reads by itself what programs write: one flat object of known fields,
// plain strings and whole numbers. Whatever is unusual (an escape, a nested
// value, a fraction, another spelling of a field) it leaves to decodeSlowly,
// which also says what is wrong with a line: the two never differ in what they
// accept or make of it, only in how long they take.
type decoder struct {
	seen  [1 << seenBits]string  // strings of late, by their hash
	usual [fields + 1]namedField // what came after each field of late, and first in a line
}

// seenBits is for how many strings a decoder has room.
const seenBits = 12

// namedField is a field as programs write its name: quoted, with its colon.
type namedField struct {
	text  string
	field int
}

// decode parses one line; "time" and "process" must be there even when zero.
func (d *decoder) decode(line []byte, e *Event) error {
	*e = Event{}
	p := parser{line: line, decoder: d}
	if !p.object(e) {
		return decodeSlowly(line, e)
	}
	if !p.had[fieldTime] || !p.had[fieldProcess] {
		return missing(p.had[fieldTime])
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
	times, amounts := e.Time|e.Lease|e.Expires|e.Drift, e.Permits|e.Holds|e.Capacity
	return e.Mode == "" && e.Lock != "" && e.Process >= 0 && e.queued() >= 0 &&
		times >= 0 && times <= MaxTime && amounts >= 0 && amounts <= MaxAmount
}

// A parser goes through one line. Its methods report whether they understood
// what is there.
type parser struct {
	*decoder
	line []byte
	at   int
	had  [fields]bool // which fields were there
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
	for field := fields; ; {
		var ok bool
		if field, ok = p.name(field); !ok {
			return false
		}
		p.space()
		if !p.value(e, field) {
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

// unknown is a field that the format does not have.
const unknown = fields

// name takes the name of a field and the colon. A program writes its fields in
// the same order in each line, so what came after the field before is tried first:
// to know it by one comparison takes a tenth off the time of a line.
func (p *parser) name(before int) (field int, ok bool) {
	usual := &p.usual[before]
	if n := len(usual.text); n > 0 && len(p.line)-p.at > n && string(p.line[p.at:p.at+n]) == usual.text {
		p.at += n
		return usual.field, true
	}
	if !p.next('"') {
		return 0, false
	}
	key, ok := p.text()
	if !ok || !p.next(':') {
		return 0, false
	}
	if field = fieldOf(key); field != unknown {
		*usual = namedField{`"` + string(key) + `":`, field}
		return field, true
	}
	return unknown, !looksKnown(key)
}

// text is a string without escapes, from behind its first quote.
func (p *parser) text() ([]byte, bool) {
	ascii := true
	for i := p.at; i < len(p.line); i++ {
		switch c := p.line[i]; {
		case c == '"':
			s := p.line[p.at:i]
			p.at = i + 1
			return s, ascii || utf8.Valid(s)
		case c < ' ' || c == '\\':
			return nil, false
		case c >= utf8.RuneSelf:
			ascii = false
		}
	}
	return nil, false
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

// fieldOf is the field of that name, where this parser reads it, else unknown.
func fieldOf(key []byte) int {
	switch string(key) {
	case "time":
		return fieldTime
	case "process":
		return fieldProcess
	case "index":
		return fieldIndex
	case "type":
		return fieldType
	case "op":
		return fieldOp
	case "clock":
		return fieldClock
	case "lock":
		return fieldLock
	case "owner":
		return fieldOwner
	case "mode":
		return fieldMode
	case "permits":
		return fieldPermits
	case "lease":
		return fieldLease
	case "expires":
		return fieldExpires
	case "token":
		return fieldToken
	case "holds":
		return fieldHolds
	case "queued":
		return fieldQueued
	case "resource":
		return fieldResource
	case "value":
		return fieldValue
	case "fault":
		return fieldFault
	case "target":
		return fieldTarget
	case "node":
		return fieldNode
	case "what":
		return fieldWhat
	case "error":
		return fieldError
	case "kind":
		return fieldKind
	case "capacity":
		return fieldCapacity
	case "drift":
		return fieldDrift
	case "reentrant":
		return fieldReentrant
	case "fair":
		return fieldFair
	case "fenced":
		return fieldFenced
	default:
		return unknown
	}
}

// value takes the value of a field.
func (p *parser) value(e *Event, field int) bool {
	if field == unknown {
		return p.skip()
	}
	if p.had[field] {
		return false
	}
	p.had[field] = true
	switch field {
	case fieldTime:
		return whole(p, &e.Time)
	case fieldProcess:
		return whole(p, &e.Process)
	case fieldIndex:
		return whole(p, &e.Index)
	case fieldType:
		return named(p, &e.Type, Invoke, OK, Fail, Info)
	case fieldOp:
		return named(p, &e.Op, Acquire, Release, Extend, Access, Lost, Observe)
	case fieldClock:
		return p.words(&e.Clock)
	case fieldLock:
		return p.words(&e.Lock)
	case fieldOwner:
		return p.words(&e.Owner)
	case fieldMode:
		return named(p, &e.Mode, Exclusive, Read, Write, Permit)
	case fieldPermits:
		return whole(p, &e.Permits)
	case fieldLease:
		return whole(p, &e.Lease)
	case fieldExpires:
		return whole(p, &e.Expires)
	case fieldToken:
		return whole(p, &e.Token)
	case fieldHolds:
		return whole(p, &e.Holds)
	case fieldQueued:
		e.Queued = new(int64)
		return whole(p, e.Queued)
	case fieldResource:
		return p.words(&e.Resource)
	case fieldValue:
		return p.words(&e.Value)
	case fieldFault:
		return p.words(&e.Fault)
	case fieldTarget:
		return p.words(&e.Target)
	case fieldNode:
		return p.words(&e.Node)
	case fieldWhat:
		return p.words(&e.What)
	case fieldError:
		return p.words(&e.Error)
	case fieldKind:
		return p.words(&e.Kind)
	case fieldCapacity:
		return whole(p, &e.Capacity)
	case fieldDrift:
		return whole(p, &e.Drift)
	case fieldReentrant:
		return p.switched(&e.Reentrant)
	case fieldFair:
		return p.switched(&e.Fair)
	case fieldFenced:
		fenced := false
		e.Fenced = &fenced
		return p.switched(e.Fenced)
	default:
		return false
	}
}

func (p *parser) switched(field *bool) (ok bool) {
	*field, ok = p.flag()
	return ok
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
	h := uint64(len(s))
	if n := len(s); n >= 8 { // its ends tell nearly all names apart, and take no loop
		h ^= binary.LittleEndian.Uint64(s)*0x9e3779b97f4a7c15 ^ binary.LittleEndian.Uint64(s[n-8:])
	} else {
		for _, c := range s {
			h = h<<8 | uint64(c)
		}
	}
	h *= 0xd6e8feb86659fd93
	slot := &d.seen[h>>(64-seenBits)]
	if *slot != string(s) {
		*slot = string(s)
	}
	return *slot
}
