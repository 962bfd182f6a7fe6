package simredis

import (
	"math"
	"slices"
	"strconv"
	"strings"
)

func keyCommands() []command {
	return []command{
		{name: "del", arity: -2, flags: write, first: 1, last: -1, step: 1, run: del},
		{name: "unlink", arity: -2, flags: write, first: 1, last: -1, step: 1, run: del},
		{name: "exists", arity: -2, flags: readOnly, first: 1, last: -1, step: 1, run: exists},
		{name: "touch", arity: -2, flags: readOnly, first: 1, last: -1, step: 1, run: exists},
		{name: "type", arity: 2, flags: readOnly, first: 1, last: 1, step: 1, run: typeOf},
		{name: "expire", arity: -3, flags: write, first: 1, last: 1, step: 1, run: func(s *Server, a []string) any { return s.expire(a, 1000, s.now) }},
		{name: "pexpire", arity: -3, flags: write, first: 1, last: 1, step: 1, run: func(s *Server, a []string) any { return s.expire(a, 1, s.now) }},
		{name: "expireat", arity: -3, flags: write, first: 1, last: 1, step: 1, run: func(s *Server, a []string) any { return s.expire(a, 1000, 0) }},
		{name: "pexpireat", arity: -3, flags: write, first: 1, last: 1, step: 1, run: func(s *Server, a []string) any { return s.expire(a, 1, 0) }},
		{name: "persist", arity: 2, flags: write, first: 1, last: 1, step: 1, run: persist},
		{name: "ttl", arity: 2, flags: readOnly, first: 1, last: 1, step: 1, run: func(s *Server, a []string) any { return s.ttl(a, 1000, s.now) }},
		{name: "pttl", arity: 2, flags: readOnly, first: 1, last: 1, step: 1, run: func(s *Server, a []string) any { return s.ttl(a, 1, s.now) }},
		{name: "expiretime", arity: 2, flags: readOnly, first: 1, last: 1, step: 1, run: func(s *Server, a []string) any { return s.ttl(a, 1000, 0) }},
		{name: "pexpiretime", arity: 2, flags: readOnly, first: 1, last: 1, step: 1, run: func(s *Server, a []string) any { return s.ttl(a, 1, 0) }},
		{name: "keys", arity: 2, flags: readOnly, run: keys},
		{name: "scan", arity: -2, flags: readOnly, run: scan},
		{name: "dbsize", arity: 1, flags: readOnly, run: func(s *Server, _ []string) any { return int64(len(s.keys)) }},
		{name: "rename", arity: 3, flags: write, first: 1, last: 2, step: 1, run: rename},
		{name: "renamenx", arity: 3, flags: write, first: 1, last: 2, step: 1, run: rename},
		{name: "flushall", arity: -1, flags: write, run: flush},
		{name: "flushdb", arity: -1, flags: write, run: flush},
	}
}

func del(s *Server, a []string) any {
	n := int64(0)
	for _, k := range a[1:] {
		if s.lookup(k) != nil {
			delete(s.keys, k)
			s.touch(k)
			n++
		}
	}
	if n > 0 {
		s.propagate(a...)
	}
	return n
}

func exists(s *Server, a []string) any {
	n := int64(0)
	for _, k := range a[1:] {
		if s.lookup(k) != nil {
			n++
		}
	}
	return n
}

func typeOf(s *Server, a []string) any {
	if v := s.lookup(a[1]); v != nil {
		return Status(v.kind.String())
	}
	return Status("none")
}

func (s *Server) expire(a []string, unit, base int64) any {
	name := strings.ToLower(a[0])
	var nx, xx, gt, lt bool
	for _, o := range a[3:] {
		switch strings.ToLower(o) {
		case "nx":
			nx = true
		case "xx":
			xx = true
		case "gt":
			gt = true
		case "lt":
			lt = true
		default:
			return Error(oneLine("ERR Unsupported option " + text(o, len(o))))
		}
	}
	switch {
	case nx && (xx || gt || lt):
		return Error("ERR NX and XX, GT or LT options at the same time are not compatible")
	case gt && lt:
		return Error("ERR GT and LT options at the same time are not compatible")
	}
	when, valid := parseInt(a[2])
	if !valid {
		return errNotInteger
	}
	if unit == 1000 && (when > math.MaxInt64/1000 || when < math.MinInt64/1000) {
		return errExpire(name)
	}
	when *= unit
	if when > math.MaxInt64-base {
		return errExpire(name)
	}
	when += base
	v := s.lookup(a[1])
	if v == nil {
		return int64(0)
	}
	switch {
	case nx && v.expire != 0,
		xx && v.expire == 0,
		gt && (v.expire == 0 || when <= v.expire),
		lt && v.expire != 0 && when >= v.expire:
		return int64(0)
	}
	if when <= s.now && !s.applying {
		delete(s.keys, a[1])
		s.wrote(a[1], "DEL", a[1])
		return int64(1)
	}
	v.expire = when
	if when == 0 {
		v.expire = -1
	}
	s.wrote(a[1], "PEXPIREAT", a[1], strconv.FormatInt(when, 10))
	return int64(1)
}

func errExpire(name string) Error {
	return Error("ERR invalid expire time in '" + name + "' command")
}

func persist(s *Server, a []string) any {
	v := s.lookup(a[1])
	if v == nil || v.expire == 0 {
		return int64(0)
	}
	v.expire = 0
	s.wrote(a[1], a...)
	return int64(1)
}

func (s *Server) ttl(a []string, unit, base int64) any {
	v := s.lookup(a[1])
	switch {
	case v == nil:
		return int64(-2)
	case v.expire == 0:
		return int64(-1)
	}
	left := max(v.expire-base, 0)
	if unit == 1000 {
		return int64((uint64(left) + 500) / 1000)
	}
	return left
}

func keys(s *Server, a []string) any {
	out := []any{}
	for _, k := range s.sortedKeys() {
		if match(a[1], k) && !s.isExpired(k) {
			out = append(out, k)
		}
	}
	return out
}

func (s *Server) sortedKeys() []string {
	all := make([]string, 0, len(s.keys))
	for k := range s.keys {
		all = append(all, k)
	}
	slices.Sort(all)
	return all
}

// scan returns everything at once.
func scan(s *Server, a []string) any {
	if _, err := strconv.ParseUint(a[1], 10, 64); err != nil {
		return Error("ERR invalid cursor")
	}
	pattern, kind := "*", ""
	for i := 2; i < len(a); i += 2 {
		if i+1 == len(a) {
			return errSyntax
		}
		switch strings.ToLower(a[i]) {
		case "match":
			pattern = a[i+1]
		case "type":
			kind = strings.ToLower(a[i+1])
		case "count":
			n, valid := parseInt(a[i+1])
			if !valid {
				return errNotInteger
			}
			if n < 1 {
				return errSyntax
			}
		default:
			return errSyntax
		}
	}
	out := []any{}
	if a[1] == "0" {
		for _, k := range s.sortedKeys() {
			if v := s.lookup(k); v != nil && match(pattern, k) && (kind == "" || kind == v.kind.String()) {
				out = append(out, k)
			}
		}
	}
	return []any{"0", out}
}

func rename(s *Server, a []string) any {
	v := s.lookup(a[1])
	if v == nil {
		return errNoKey
	}
	nx := strings.EqualFold(a[0], "renamenx")
	if a[1] == a[2] {
		if nx {
			return int64(0)
		}
		return ok
	}
	if s.lookup(a[2]) != nil && nx {
		return int64(0)
	}
	delete(s.keys, a[1])
	s.keys[a[2]] = v
	s.touch(a[1])
	s.wrote(a[2], a...)
	s.ready(a[2])
	if nx {
		return int64(1)
	}
	return ok
}

func flush(s *Server, a []string) any {
	if len(a) > 2 || len(a) == 2 && !strings.EqualFold(a[1], "sync") && !strings.EqualFold(a[1], "async") {
		return errSyntax
	}
	for k := range s.keys {
		s.touch(k)
	}
	s.Flush()
	s.propagate(a...)
	return ok
}
