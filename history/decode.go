package history

import (
	"bytes"
	"encoding/binary"
	"errors"
	"math/bits"
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
	seen  [1 << seenBits]string // strings of late, by their hash
	usual [first + 1]lead       // what came after each field of late, and first in a line
}

// seenBits is for how many strings a decoder has room.
const seenBits = 12

// A lead is what stands between two values: a comma, the name of the second one's
// field, a colon and any spaces. A program writes its fields in the same order in
// each line, so what came after the field before is tried first: to know it by one
// comparison takes a third off the time of a line.
type lead struct {
	text        string
	words, mask [2]uint64 // the bytes of a text of 16 bytes at the most
	field       int
}

func newLead(text []byte, field int) lead {
	l := lead{text: string(text), field: field}
	for i := range min(len(text), 16) {
		l.words[i/8] |= uint64(text[i]) << (i % 8 * 8)
		l.mask[i/8] |= 0xff << (i % 8 * 8)
	}
	return l
}

// begins reports whether the line goes on with the lead.
func (l *lead) begins(line []byte) bool {
	if n := len(l.text); n > 16 || len(line) < 16 {
		return n > 0 && len(line) >= n && string(line[:n]) == l.text
	}
	return l.mask[0] != 0 && ((word(line)^l.words[0])&l.mask[0]|(word(line[8:])^l.words[1])&l.mask[1]) == 0
}

// word is the first eight bytes, the first one lowest.
func word(b []byte) uint64 { return binary.LittleEndian.Uint64(b) }

// decode parses one line; "time" and "process" must be there even when zero.
func (d *decoder) decode(line []byte, e *Event) error {
	*e = Event{}
	p := parser{line: line, decoder: d}
	if !p.object(e) {
		return decodeSlowly(line, e)
	}
	if time := p.had>>fieldTime&1 != 0; !time || p.had>>fieldProcess&1 == 0 {
		return missing(time)
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
	had  uint64 // which fields were there, a bit each
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
	for field := first; ; {
		if l := &p.usual[field]; l.begins(p.line[p.at:]) {
			p.at += len(l.text)
			field = l.field
		} else {
			var ok bool
			if field, ok = p.lead(field); !ok {
				return field == last && p.at == len(p.line)
			}
		}
		if !p.value(e, field) {
			return false
		}
	}
}

// What is no field of the format, and what stands before the first field and
// behind the last one.
const (
	unknown = fields + iota
	first
	last
)

// lead takes the name of a field, and what is around it. It is false also where
// the object ends.
func (p *parser) lead(before int) (field int, ok bool) {
	from, opening := p.at, byte(',')
	if before == first {
		opening = '{'
	}
	if begun := p.next(opening); !begun || before == first && p.next('}') {
		if begun || before != first && p.next('}') {
			p.space()
			return last, false
		}
		return unknown, false
	}
	if !p.next('"') {
		return unknown, false
	}
	key, ok := p.text()
	if !ok || !p.next(':') {
		return unknown, false
	}
	p.space()
	if field = fieldOf(key); field == unknown {
		return unknown, !looksKnown(key)
	}
	p.usual[before] = newLead(p.line[from:p.at], field)
	return field, true
}

// Eight equal bytes are a multiple of this.
const each = 0x0101010101010101

// text is a string without escapes, from behind its first quote.
func (p *parser) text() ([]byte, bool) {
	i := p.at
	for ; len(p.line)-i >= 8; i += 8 {
		w := word(p.line[i:])
		quote, escape := w^'"'*each, w^'\\'*each
		// The lowest bit says where the first byte is that is one of these, a
		// control character, or no ASCII.
		if odd := ((quote-each)&^quote | (escape-each)&^escape | (w-' '*each)&^w | w) & (0x80 * each); odd != 0 {
			i += bits.TrailingZeros64(odd) / 8
			break
		}
	}
	ascii := true
	for ; i < len(p.line); i++ {
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
	begin := at
	var n int64
	if len(p.line)-at >= 8 { // eight digits at once
		if digits := word(p.line[at:]) ^ '0'*each; (digits+6*each|digits)&(0xf0*each) == 0 {
			digits = digits*10 + digits>>8 // by twos, by fours, all
			digits = (digits&0x000000ff000000ff*(100+1_000_000<<32) + digits>>16&0x000000ff000000ff*(1+10_000<<32)) >> 32
			n = int64(digits) //nolint:gosec // eight digits
			at += 8
		}
	}
	for at < len(p.line) && p.line[at] >= '0' && p.line[at] <= '9' {
		n = n*10 + int64(p.line[at]-'0')
		at++
		if at-begin > 18 {
			return 0, false
		}
	}
	if at == begin || p.line[begin] == '0' && at > begin+1 {
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

func (p *parser) quoted() ([]byte, bool) {
	if !p.next('"') {
		return nil, false
	}
	return p.text()
}

// words takes a string into a field.
func words[T ~string](p *parser, field *T) bool {
	s, ok := p.quoted()
	*field = T(p.keep(s))
	return ok
}

func (p *parser) typ(field *Type) bool {
	s, ok := p.quoted()
	switch string(s) {
	case string(Invoke):
		*field = Invoke
	case string(OK):
		*field = OK
	case string(Fail):
		*field = Fail
	case string(Info):
		*field = Info
	default:
		*field = Type(p.keep(s))
	}
	return ok
}

func (p *parser) op(field *Op) bool {
	s, ok := p.quoted()
	switch string(s) {
	case string(Acquire):
		*field = Acquire
	case string(Release):
		*field = Release
	case string(Extend):
		*field = Extend
	case string(Access):
		*field = Access
	default:
		*field = Op(p.keep(s))
	}
	return ok
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
	if p.had>>field&1 != 0 {
		return false
	}
	p.had |= 1 << field
	switch field {
	case fieldTime:
		return whole(p, &e.Time)
	case fieldProcess:
		return whole(p, &e.Process)
	case fieldIndex:
		return whole(p, &e.Index)
	case fieldType:
		return p.typ(&e.Type)
	case fieldOp:
		return p.op(&e.Op)
	case fieldClock:
		return words(p, &e.Clock)
	case fieldLock:
		return words(p, &e.Lock)
	case fieldOwner:
		return words(p, &e.Owner)
	case fieldMode:
		return words(p, &e.Mode)
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
		return words(p, &e.Resource)
	case fieldValue:
		return words(p, &e.Value)
	case fieldFault:
		return words(p, &e.Fault)
	case fieldTarget:
		return words(p, &e.Target)
	case fieldNode:
		return words(p, &e.Node)
	case fieldWhat:
		return words(p, &e.What)
	case fieldError:
		return words(p, &e.Error)
	case fieldKind:
		return words(p, &e.Kind)
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
