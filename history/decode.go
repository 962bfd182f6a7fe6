package history

import (
	"bytes"
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
	seen [1 << 12]string // strings of late, by their hash
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
		return p.first(fieldTime) && whole(p, &e.Time)
	case "process":
		return p.first(fieldProcess) && whole(p, &e.Process)
	case "index":
		return p.first(fieldIndex) && whole(p, &e.Index)
	case "type":
		return p.first(fieldType) && named(p, &e.Type, Invoke, OK, Fail, Info)
	case "op":
		return p.first(fieldOp) && named(p, &e.Op, Acquire, Release, Extend, Access, Lost, Observe)
	case "clock":
		return p.first(fieldClock) && p.words(&e.Clock)
	case "lock":
		return p.first(fieldLock) && p.words(&e.Lock)
	case "owner":
		return p.first(fieldOwner) && p.words(&e.Owner)
	case "mode":
		return p.first(fieldMode) && named(p, &e.Mode, Exclusive, Read, Write, Permit)
	case "permits":
		return p.first(fieldPermits) && whole(p, &e.Permits)
	case "lease":
		return p.first(fieldLease) && whole(p, &e.Lease)
	case "expires":
		return p.first(fieldExpires) && whole(p, &e.Expires)
	case "token":
		return p.first(fieldToken) && whole(p, &e.Token)
	case "holds":
		return p.first(fieldHolds) && whole(p, &e.Holds)
	case "queued":
		e.Queued = new(int64)
		return p.first(fieldQueued) && whole(p, e.Queued)
	case "resource":
		return p.first(fieldResource) && p.words(&e.Resource)
	case "value":
		return p.first(fieldValue) && p.words(&e.Value)
	case "fault":
		return p.first(fieldFault) && p.words(&e.Fault)
	case "target":
		return p.first(fieldTarget) && p.words(&e.Target)
	case "node":
		return p.first(fieldNode) && p.words(&e.Node)
	case "what":
		return p.first(fieldWhat) && p.words(&e.What)
	case "error":
		return p.first(fieldError) && p.words(&e.Error)
	case "kind":
		return p.first(fieldKind) && p.words(&e.Kind)
	case "capacity":
		return p.first(fieldCapacity) && whole(p, &e.Capacity)
	case "drift":
		return p.first(fieldDrift) && whole(p, &e.Drift)
	case "reentrant":
		return p.first(fieldReentrant) && p.switched(&e.Reentrant)
	case "fair":
		return p.first(fieldFair) && p.switched(&e.Fair)
	case "fenced":
		fenced := false
		e.Fenced = &fenced
		return p.first(fieldFenced) && p.switched(e.Fenced)
	default:
		return !looksKnown(key) && p.skip()
	}
}

// first reports whether a field is there for the first time.
func (p *parser) first(field int) bool {
	again := p.had[field]
	p.had[field] = true
	return !again
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
