package simredis

func setCommands() []command {
	return []command{
		{name: "sadd", arity: -3, flags: write, first: 1, last: 1, step: 1, run: sadd},
		{name: "srem", arity: -3, flags: write, first: 1, last: 1, step: 1, run: srem},
		{name: "smembers", arity: 2, flags: readOnly, first: 1, last: 1, step: 1, run: smembers},
		{name: "sismember", arity: 3, flags: readOnly, first: 1, last: 1, step: 1, run: sismember},
		{name: "smismember", arity: -3, flags: readOnly, first: 1, last: 1, step: 1, run: smismember},
		{name: "scard", arity: 2, flags: readOnly, first: 1, last: 1, step: 1, run: scard},
	}
}

func (s *Server) setOf(key string) (*table, bool) {
	v, right := s.typed(key, kindSet)
	if v == nil || !right {
		return nil, right
	}
	return v.set, true
}

func sadd(s *Server, a []string) any {
	v, right := s.typed(a[1], kindSet)
	if !right {
		return errWrongType
	}
	if v == nil {
		v = s.add(a[1], kindSet)
	}
	n := int64(0)
	for _, m := range a[2:] {
		n += integer(v.set.set(m, ""))
	}
	if n > 0 {
		s.wrote(a[1], a...)
	}
	return n
}

func srem(s *Server, a []string) any {
	return s.deleteMembers(a, kindSet, func(v *value, member string) bool { return v.set.delete(member) })
}

func smembers(s *Server, a []string) any {
	t, right := s.setOf(a[1])
	if !right {
		return errWrongType
	}
	out := make(Set, t.len())
	for i := range out {
		out[i] = t.list[i].name
	}
	return out
}

func sismember(s *Server, a []string) any {
	t, right := s.setOf(a[1])
	if !right {
		return errWrongType
	}
	return integer(t.find(a[2]) >= 0)
}

func smismember(s *Server, a []string) any {
	t, right := s.setOf(a[1])
	if !right {
		return errWrongType
	}
	out := make([]any, len(a)-2)
	for i, m := range a[2:] {
		out[i] = integer(t.find(m) >= 0)
	}
	return out
}

func scard(s *Server, a []string) any {
	t, right := s.setOf(a[1])
	if !right {
		return errWrongType
	}
	return int64(t.len())
}
