package simredis

import (
	"strings"

	lua "github.com/yuin/gopher-lua"
)

// stringMatch is string.match by the rules of Lua 5.1 (match in its lstrlib.c). That of
// the interpreter compiles its pattern at each call, which made a quarter of the objects
// of a run of package lock.
func stringMatch(l *lua.LState) int {
	m := &matcher{l: l, s: l.CheckString(1), p: l.CheckString(2)}
	m.p, _, _ = strings.Cut(m.p, "\x00") // where the pattern ends in C
	at := l.OptInt(3, 1)
	if at < 0 {
		at += len(m.s) + 1
	}
	at = min(max(at-1, 0), len(m.s))
	p := 0
	anchored := strings.HasPrefix(m.p, "^")
	if anchored {
		p = 1
	}
	for ; at <= len(m.s); at++ {
		m.level = 0
		if end := m.match(at, p); end >= 0 {
			return m.push(at, end)
		}
		if anchored {
			break
		}
	}
	l.Push(lua.LNil)
	return 1
}

// maxCaptures is how many a pattern has.
const maxCaptures = 32

// Lengths of a capture that has none.
const (
	unclosed = -1
	position = -2
)

// noMatch is the end of what does not match.
const noMatch = -1

// A matcher matches a string with a pattern.
type matcher struct {
	l        *lua.LState
	s, p     string
	level    int
	captures [maxCaptures]struct{ at, size int }
}

// push pushes the captures of a match, or all of it if it has none.
func (m *matcher) push(from, end int) int {
	if m.level == 0 {
		m.l.Push(lua.LString(m.s[from:end]))
		return 1
	}
	for _, c := range m.captures[:m.level] {
		switch c.size {
		case unclosed:
			m.fail("unfinished capture")
		case position:
			m.l.Push(lua.LNumber(c.at + 1))
		default:
			m.l.Push(lua.LString(m.s[c.at : c.at+c.size]))
		}
	}
	return m.level
}

func (m *matcher) fail(why string) { m.l.RaiseError("%s", why) }

// of is the byte of the pattern there, 0 at its end.
func (m *matcher) of(p int) byte {
	if p < len(m.p) {
		return m.p[p]
	}
	return 0
}

// match gives the end of what the pattern from p on matches at s, or noMatch.
func (m *matcher) match(s, p int) int {
	for p < len(m.p) {
		switch c := m.p[p]; {
		case c == '(' && m.of(p+1) == ')':
			return m.open(s, p+2, position)
		case c == '(':
			return m.open(s, p+1, unclosed)
		case c == ')':
			return m.close(s, p+1)
		case c == '%' && m.of(p+1) == 'b':
			if s = m.balanced(s, p+2); s == noMatch {
				return noMatch
			}
			p += 4
			continue
		case c == '%' && m.of(p+1) == 'f':
			p += 2
			if m.of(p) != '[' {
				m.fail("missing '[' after '%f' in pattern")
			}
			end := m.classEnd(p)
			if m.inSet(m.at(s-1), p, end-1) || !m.inSet(m.at(s), p, end-1) {
				return noMatch
			}
			p = end
			continue
		case c == '%' && isDigit(m.of(p+1)):
			if s = m.again(s, m.of(p+1)); s == noMatch {
				return noMatch
			}
			p += 2
			continue
		case c == '$' && p+1 == len(m.p):
			if s == len(m.s) {
				return s
			}
			return noMatch
		}
		end := m.classEnd(p)
		fits := m.single(s, p, end)
		switch m.of(end) {
		case '?':
			if fits {
				if e := m.match(s+1, end+1); e != noMatch {
					return e
				}
			}
			p = end + 1
		case '*':
			return m.longest(s, s, p, end)
		case '+':
			if !fits {
				return noMatch
			}
			return m.longest(s+1, s+1, p, end)
		case '-':
			for {
				if e := m.match(s, end+1); e != noMatch {
					return e
				}
				if !m.single(s, p, end) {
					return noMatch
				}
				s++
			}
		default:
			if !fits {
				return noMatch
			}
			s, p = s+1, end
		}
	}
	return s
}

// longest takes as many of a class as there are, from s on, and fewer down to those before
// least, until the rest matches.
func (m *matcher) longest(s, least, p, end int) int {
	for m.single(s, p, end) {
		s++
	}
	for ; s >= least; s-- {
		if e := m.match(s, end+1); e != noMatch {
			return e
		}
	}
	return noMatch
}

func (m *matcher) open(s, p, size int) int {
	if m.level == maxCaptures {
		m.fail("too many captures")
	}
	m.captures[m.level].at, m.captures[m.level].size = s, size
	m.level++
	end := m.match(s, p)
	if end == noMatch {
		m.level--
	}
	return end
}

func (m *matcher) close(s, p int) int {
	i := m.level - 1
	for i >= 0 && m.captures[i].size != unclosed {
		i--
	}
	if i < 0 {
		m.fail("invalid pattern capture")
	}
	m.captures[i].size = s - m.captures[i].at
	end := m.match(s, p)
	if end == noMatch {
		m.captures[i].size = unclosed
	}
	return end
}

// again matches what a capture has.
func (m *matcher) again(s int, digit byte) int {
	i := int(digit) - '1'
	if i < 0 || i >= m.level || m.captures[i].size == unclosed {
		m.fail("invalid capture index")
	}
	c := m.captures[i]
	if c.size == position || !strings.HasPrefix(m.s[s:], m.s[c.at:c.at+c.size]) {
		return noMatch
	}
	return s + c.size
}

// balanced matches %bxy, with xy at p.
func (m *matcher) balanced(s, p int) int {
	if p+1 >= len(m.p) {
		m.fail("unbalanced pattern")
	}
	if s == len(m.s) || m.s[s] != m.p[p] {
		return noMatch
	}
	for depth := 1; s+1 < len(m.s); {
		s++
		switch m.s[s] {
		case m.p[p+1]:
			if depth--; depth == 0 {
				return s + 1
			}
		case m.p[p]:
			depth++
		}
	}
	return noMatch
}

// classEnd is behind the class that begins at p.
func (m *matcher) classEnd(p int) int {
	c := m.p[p]
	p++
	switch c {
	case '%':
		if p == len(m.p) {
			m.fail("malformed pattern (ends with '%')")
		}
		return p + 1
	case '[':
		if m.of(p) == '^' {
			p++
		}
		for first := true; first || m.of(p) != ']'; first = false {
			if p >= len(m.p) {
				m.fail("malformed pattern (missing ']')")
			}
			if p++; m.p[p-1] == '%' && p < len(m.p) {
				p++
			}
		}
		return p + 1
	}
	return p
}

// at is the byte of the string there, 0 before and behind it.
func (m *matcher) at(s int) byte {
	if s < 0 || s >= len(m.s) {
		return 0
	}
	return m.s[s]
}

// single reports whether the class between p and end has the byte at s.
func (m *matcher) single(s, p, end int) bool {
	if s >= len(m.s) {
		return false
	}
	switch c := m.p[p]; c {
	case '.':
		return true
	case '%':
		return inClass(m.s[s], m.p[p+1])
	case '[':
		return m.inSet(m.s[s], p, end-1)
	default:
		return c == m.s[s]
	}
}

// inSet reports whether the set from the [ at p to the ] at end has a byte.
func (m *matcher) inSet(c byte, p, end int) bool {
	in := true
	if m.of(p+1) == '^' {
		in = false
		p++
	}
	for p++; p < end; p++ {
		switch {
		case m.p[p] == '%':
			if p++; inClass(c, m.p[p]) {
				return in
			}
		case m.p[p+1] == '-' && p+2 < end:
			if p += 2; m.p[p-2] <= c && c <= m.p[p] {
				return in
			}
		case m.p[p] == c:
			return in
		}
	}
	return !in
}

// inClass reports whether the class %k has a byte.
func inClass(c, k byte) bool {
	lower, upper, in := 'a' <= c && c <= 'z', 'A' <= c && c <= 'Z', false
	switch k | 0x20 {
	case 'a':
		in = lower || upper
	case 'c':
		in = c < ' ' || c == 0x7f
	case 'd':
		in = isDigit(c)
	case 'l':
		in = lower
	case 'p':
		in = c > ' ' && c < 0x7f && !lower && !upper && !isDigit(c)
	case 's':
		in = isSpace(c)
	case 'u':
		in = upper
	case 'w':
		in = lower || upper || isDigit(c)
	case 'x':
		in = isHex(c)
	case 'z':
		in = c == 0
	default:
		return c == k
	}
	return in == (k >= 'a')
}
