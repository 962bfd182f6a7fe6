package simredis

import (
	"math"
	"slices"
	"strings"
	"time"
)

// blocked is what a session waits for.
type blocked struct {
	c    *Session
	stop func()

	// WAIT:
	need   int64
	offset int64

	// BLPOP and BRPOP:
	keys []string
	left bool
}

// block makes the session wait; timeout is given that long afterwards, never if
// it is 0.
func (s *Server) block(b *blocked, wait time.Duration, timeout func() any) any {
	c := s.session
	b.c = c
	c.blocked = b
	if b.keys != nil {
		for _, k := range b.keys {
			s.popping[k] = append(s.popping[k], b)
		}
	} else {
		s.waiting = append(s.waiting, b)
	}
	if wait > 0 {
		b.stop = s.host.After(wait, func() {
			if c.blocked == b && !c.closed {
				s.unblock(b, timeout())
			}
		})
	}
	return none{}
}

// leave forgets what a session waits for.
func (c *Session) leave() {
	b := c.blocked
	if b == nil {
		return
	}
	c.blocked = nil
	if b.stop != nil {
		b.stop()
	}
	s := c.s
	s.waiting = slices.DeleteFunc(s.waiting, func(o *blocked) bool { return o == b })
	for _, k := range b.keys {
		without(s.popping, k, b)
	}
}

// unblock gives the session its reply. What it received while it waited is run when
// no other command is.
func (s *Server) unblock(b *blocked, r any) {
	b.c.leave()
	b.c.reply(r)
	b.c.flush()
	s.runnable = append(s.runnable, b.c)
	if !s.busy {
		s.resume()
	}
}

// resume runs what sessions received while they were blocked.
func (s *Server) resume() {
	for len(s.runnable) > 0 && !s.busy {
		c := s.runnable[0]
		s.runnable = s.runnable[1:]
		if !c.closed && !c.running {
			c.run()
		}
	}
}

// Acknowledged looks whether a session that waits for replicas has waited enough.
func (s *Server) Acknowledged() {
	for _, b := range slices.Clone(s.waiting) {
		if n := s.host.Acked(b.offset); b.c.blocked == b && n >= b.need {
			s.unblock(b, n)
		}
	}
}

func wait(s *Server, a []string) any {
	if s.replica {
		return Error("ERR WAIT cannot be used with replica instances. Please also note that since Redis 4.0 if a replica is configured to be writable (which is not the default) writes to replicas are just local and are not propagated.")
	}
	need, valid := parseInt(a[1])
	ms, timed := parseInt(a[2])
	switch {
	case !valid:
		return errNotInteger
	case !timed:
		return Error("ERR timeout is not an integer or out of range")
	case ms < 0:
		return Error("ERR timeout is negative")
	}
	c := s.session
	n := s.host.Acked(c.written)
	if n >= need || s.depth > 0 {
		return n
	}
	offset := c.written
	ms = min(ms, math.MaxInt64/int64(time.Millisecond))
	return s.block(&blocked{need: need, offset: offset}, time.Duration(ms)*time.Millisecond, func() any { return s.host.Acked(offset) })
}

func (s *Server) blockingPop(a []string, left bool) any {
	keys := a[1 : len(a)-1]
	text := a[len(a)-1]
	seconds, valid, _ := strtod(text)
	if !valid || math.IsNaN(seconds) || strings.TrimLeft(text, spaces) != text {
		return Error("ERR timeout is not a float or out of range")
	}
	if seconds < 0 || seconds > math.MaxInt64/1000 { // one that is too large is negative in C
		return Error("ERR timeout is negative")
	}
	for _, k := range keys {
		v, right := s.typed(k, kindList)
		switch {
		case !right:
			return errWrongType
		case !v.missing:
			return s.popFor(k, v, left)
		}
	}
	if s.depth > 0 || s.session == nil {
		return NullArray{}
	}
	d := time.Duration(math.Ceil(min(seconds, 1e9)*1000)) * time.Millisecond
	return s.block(&blocked{keys: slices.Clone(keys), left: left}, d, func() any { return NullArray{} })
}

// popFor takes one element for a session that blocks, or would.
func (s *Server) popFor(key string, v *value, left bool) any {
	e := v.take(1, left)[0]
	name := "RPOP"
	if left {
		name = "LPOP"
	}
	s.changed(v, name, key)
	return []any{key, e}
}

// serveLists gives elements to sessions that wait for them, the longest waiting first.
func (s *Server) serveLists() {
	for len(s.pushed) > 0 {
		key := s.pushed[0]
		s.pushed = s.pushed[1:]
		for len(s.popping[key]) > 0 {
			v, right := s.typed(key, kindList)
			if v.missing || !right {
				break
			}
			b := s.popping[key][0]
			s.unblock(b, s.popFor(key, v, b.left))
		}
	}
}
