package simredis

import (
	"maps"
	"math"
	"path"
	"slices"
	"strconv"
	"strings"
)

func keyCommands() []command {
	return []command{
		writes("del", -2, del).over(1),
		writes("unlink", -2, del).over(1),
		reads("exists", -2, exists).over(1),
		reads("touch", -2, exists).over(1),
		reads("type", 2, typeOf),
		writes("expire", -3, func(s *Server, a []string) any { return s.expire(a, 1000, s.now) }),
		writes("pexpire", -3, func(s *Server, a []string) any { return s.expire(a, 1, s.now) }),
		writes("expireat", -3, func(s *Server, a []string) any { return s.expire(a, 1000, 0) }),
		writes("pexpireat", -3, func(s *Server, a []string) any { return s.expire(a, 1, 0) }),
		writes("persist", 2, persist),
		reads("ttl", 2, func(s *Server, a []string) any { return s.ttl(a, 1000, s.now) }),
		reads("pttl", 2, func(s *Server, a []string) any { return s.ttl(a, 1, s.now) }),
		reads("expiretime", 2, func(s *Server, a []string) any { return s.ttl(a, 1000, 0) }),
		reads("pexpiretime", 2, func(s *Server, a []string) any { return s.ttl(a, 1, 0) }),
		{name: "keys", arity: 2, flags: readOnly, run: keys},
		{name: "dbsize", arity: 1, flags: readOnly, run: func(s *Server, _ []string) any { return int64(len(s.keys)) }},
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
		n += integer(s.lookup(k) != nil)
	}
	return n
}

func typeOf(s *Server, a []string) any {
	if v := s.lookup(a[1]); v != nil {
		return Status(v.kind)
	}
	return Status("none")
}

func (s *Server) expire(a []string, unit, base int64) any {
	o, _, rest := parseOptions(a[3:], optNX|optXX|optGT|optLT)
	when, valid := parseInt(a[2])
	switch {
	case len(rest) > 0:
		return Error(oneLine("ERR Unsupported option " + text(rest[0], len(rest[0]))))
	case o.has(optNX) && o.has(optXX|optGT|optLT):
		return Error("ERR NX and XX, GT or LT options at the same time are not compatible")
	case o.has(optGT) && o.has(optLT):
		return Error("ERR GT and LT options at the same time are not compatible")
	case !valid:
		return errNotInteger
	case when > (math.MaxInt64-base)/unit || when < math.MinInt64/unit:
		return errExpire(strings.ToLower(a[0]))
	}
	when = when*unit + base
	v := s.lookup(a[1])
	if v == nil ||
		o.has(optNX) && v.expire != 0 ||
		o.has(optXX) && v.expire == 0 ||
		o.has(optGT) && (v.expire == 0 || when <= v.expire) ||
		o.has(optLT) && v.expire != 0 && when >= v.expire {
		return int64(0)
	}
	s.setExpiry(v, a[1], when)
	return int64(1)
}

// setExpiry lets a key expire, or deletes it if it would have by now.
func (s *Server) setExpiry(v *value, key string, when int64) {
	if when <= s.now && !s.applying {
		s.remove(key)
		return
	}
	v.expire = when
	if when == 0 {
		v.expire = -1
	}
	s.wrote(key, "PEXPIREAT", key, strconv.FormatInt(when, 10))
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

// keys takes patterns that are well formed.
func keys(s *Server, a []string) any {
	out, flat := []any{}, strings.NewReplacer("/", "\x00") // a path's * stops at a slash
	for _, k := range slices.Sorted(maps.Keys(s.keys)) {
		if in, _ := path.Match(flat.Replace(a[1]), flat.Replace(k)); in && !s.isExpired(k) {
			out = append(out, k)
		}
	}
	return out
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
