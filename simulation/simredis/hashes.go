package simredis

import (
	"strconv"
	"strings"
)

func hashCommands() []command {
	return []command{
		{name: "hset", arity: -4, flags: write, first: 1, last: 1, step: 1, run: hset},
		{name: "hmset", arity: -4, flags: write, first: 1, last: 1, step: 1, run: hset},
		{name: "hsetnx", arity: 4, flags: write, first: 1, last: 1, step: 1, run: hsetNX},
		{name: "hget", arity: 3, flags: readOnly, first: 1, last: 1, step: 1, run: hget},
		{name: "hmget", arity: -3, flags: readOnly, first: 1, last: 1, step: 1, run: hmget},
		{name: "hdel", arity: -3, flags: write, first: 1, last: 1, step: 1, run: hdel},
		{name: "hlen", arity: 2, flags: readOnly, first: 1, last: 1, step: 1, run: hlen},
		{name: "hstrlen", arity: 3, flags: readOnly, first: 1, last: 1, step: 1, run: hstrlen},
		{name: "hexists", arity: 3, flags: readOnly, first: 1, last: 1, step: 1, run: hexists},
		{name: "hgetall", arity: 2, flags: readOnly, first: 1, last: 1, step: 1, run: func(s *Server, a []string) any { return s.fields(a, true, true) }},
		{name: "hkeys", arity: 2, flags: readOnly, first: 1, last: 1, step: 1, run: func(s *Server, a []string) any { return s.fields(a, true, false) }},
		{name: "hvals", arity: 2, flags: readOnly, first: 1, last: 1, step: 1, run: func(s *Server, a []string) any { return s.fields(a, false, true) }},
		{name: "hincrby", arity: 4, flags: write, first: 1, last: 1, step: 1, run: hincrBy},
		{name: "hincrbyfloat", arity: 4, flags: write, first: 1, last: 1, step: 1, run: hincrByFloat},
	}
}

func hset(s *Server, a []string) any {
	name := strings.ToLower(a[0])
	if len(a)%2 == 1 {
		return errArity(name)
	}
	v, right := s.typed(a[1], kindHash)
	if !right {
		return errWrongType
	}
	if v == nil {
		v = s.add(a[1], kindHash)
	}
	n := int64(0)
	for i := 2; i < len(a); i += 2 {
		n += integer(v.hash.set(a[i], a[i+1]))
	}
	s.wrote(a[1], a...)
	if name == "hmset" {
		return ok
	}
	return n
}

func hsetNX(s *Server, a []string) any {
	v, right := s.typed(a[1], kindHash)
	if !right {
		return errWrongType
	}
	if v == nil {
		v = s.add(a[1], kindHash)
	}
	if v.hash.find(a[2]) >= 0 {
		return int64(0)
	}
	v.hash.set(a[2], a[3])
	s.wrote(a[1], a...)
	return int64(1)
}

// hashOf returns the hash of a key, nil if there is none.
func (s *Server) hashOf(key string) (*table, bool) {
	v, right := s.typed(key, kindHash)
	if v == nil || !right {
		return nil, right
	}
	return v.hash, true
}

func hget(s *Server, a []string) any {
	h, right := s.hashOf(a[1])
	if !right {
		return errWrongType
	}
	if text, found := h.get(a[2]); found {
		return text
	}
	return nil
}

func hmget(s *Server, a []string) any {
	h, right := s.hashOf(a[1])
	if !right {
		return errWrongType
	}
	out := make([]any, len(a)-2)
	for i, f := range a[2:] {
		if text, found := h.get(f); found {
			out[i] = text
		}
	}
	return out
}

func hdel(s *Server, a []string) any {
	return s.deleteMembers(a, kindHash, func(v *value, field string) bool { return v.hash.delete(field) })
}

// deleteMembers takes the members that a command names out of a hash or set, and
// returns how many there were.
func (s *Server) deleteMembers(a []string, of kind, drop func(v *value, member string) bool) any {
	v, right := s.typed(a[1], of)
	switch {
	case !right:
		return errWrongType
	case v == nil:
		return int64(0)
	}
	n := int64(0)
	for _, member := range a[2:] {
		n += integer(drop(v, member))
	}
	if n > 0 {
		s.dropIfEmpty(a[1], v)
		s.wrote(a[1], a...)
	}
	return n
}

func hlen(s *Server, a []string) any {
	h, right := s.hashOf(a[1])
	if !right {
		return errWrongType
	}
	return int64(h.len())
}

func hstrlen(s *Server, a []string) any {
	h, right := s.hashOf(a[1])
	if !right {
		return errWrongType
	}
	text, _ := h.get(a[2])
	return int64(len(text))
}

func hexists(s *Server, a []string) any {
	h, right := s.hashOf(a[1])
	if !right {
		return errWrongType
	}
	return integer(h.find(a[2]) >= 0)
}

func (s *Server) fields(a []string, names, values bool) any {
	h, right := s.hashOf(a[1])
	if !right {
		return errWrongType
	}
	out := make([]any, 0, 2*h.len())
	for i := range h.len() {
		if names {
			out = append(out, h.list[i].name)
		}
		if values {
			out = append(out, h.list[i].value)
		}
	}
	if names && values {
		return Map(out)
	}
	return out
}

func hincrBy(s *Server, a []string) any {
	by, valid := parseInt(a[3])
	if !valid {
		return errNotInteger
	}
	v, right := s.typed(a[1], kindHash)
	if !right {
		return errWrongType
	}
	if v == nil {
		v = s.add(a[1], kindHash)
	}
	n := int64(0)
	if old, found := v.hash.get(a[2]); found {
		if n, valid = parseInt(old); !valid {
			return Error("ERR hash value is not an integer")
		}
	}
	sum, valid := addInt(n, by)
	if !valid {
		return errOverflow
	}
	v.hash.set(a[2], strconv.FormatInt(sum, 10))
	s.wrote(a[1], a...)
	return sum
}

func hincrByFloat(s *Server, a []string) any {
	if by, valid := parseLong(a[3]); !valid {
		return errNotFloat
	} else if by.IsInf() {
		return Error("ERR value is NaN or Infinity")
	}
	v, right := s.typed(a[1], kindHash)
	if !right {
		return errWrongType
	}
	if v == nil {
		v = s.add(a[1], kindHash)
	}
	old, found := v.hash.get(a[2])
	if !found {
		old = "0"
	}
	sum, failed := addFloats(old, a[3], "ERR hash value is not a float")
	if failed != nil {
		return failed
	}
	v.hash.set(a[2], sum)
	s.wrote(a[1], "HSET", a[1], a[2], sum)
	return sum
}
