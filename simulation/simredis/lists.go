package simredis

import (
	"slices"
	"strings"
)

func listCommands() []command {
	return []command{
		writes("lpush", -3, push(true)),
		writes("rpush", -3, push(false)),
		writes("lpop", -2, func(s *Server, a []string) any { return s.pop(a, true) }),
		writes("rpop", -2, func(s *Server, a []string) any { return s.pop(a, false) }),
		reads("llen", 2, of(kindList, size)),
		reads("lrange", 4, integers(of(kindList, lrange), 2, 3)),
		reads("lindex", 3, of(kindList, lindex)),
		writes("lrem", 4, integers(of(kindList, lrem), 2)),
		writes("ltrim", 4, integers(of(kindList, ltrim), 2, 3)),
		{name: "blpop", arity: -3, flags: write | noScript, first: 1, last: -2, step: 1, run: func(s *Server, a []string) any { return s.blockingPop(a, true) }},
		{name: "brpop", arity: -3, flags: write | noScript, first: 1, last: -2, step: 1, run: func(s *Server, a []string) any { return s.blockingPop(a, false) }},
	}
}

func push(left bool) runner {
	return of(kindList, func(s *Server, v *value, a []string) any {
		for _, e := range a[2:] {
			if left {
				v.list = slices.Insert(v.list, 0, e)
			} else {
				v.list = append(v.list, e)
			}
		}
		s.changed(v, a...)
		return int64(len(v.list))
	})
}

// take removes n elements of an end of a list, in the order of that end.
func (v *value) take(n int, left bool) []any {
	n = min(n, len(v.list))
	var out []string
	if left {
		out, v.list = v.list[:n:n], v.list[n:]
	} else {
		v.list, out = v.list[:len(v.list)-n], slices.Clone(v.list[len(v.list)-n:])
		slices.Reverse(out)
	}
	return bulks(out)
}

func (s *Server) pop(a []string, left bool) any {
	count, failed := parseCount(a, 1, errArity(strings.ToLower(a[0])))
	if failed != nil {
		return failed
	}
	v, right := s.typed(a[1], kindList)
	switch {
	case !right:
		return errWrongType
	case v.missing && len(a) == 3:
		return NullArray{}
	case v.missing:
		return nil
	case count == 0:
		return []any{}
	}
	out := v.take(int(min(count, int64(len(v.list)))), left)
	s.changed(v, a...)
	if len(a) == 2 {
		return out[0]
	}
	return out
}

func lrange(_ *Server, v *value, a []string) any {
	i, j := span(number(a[2]), number(a[3]), len(v.list))
	return bulks(v.list[i:j])
}

func bulks(list []string) []any {
	return forEach(list, func(e string) any { return e })
}

func lindex(_ *Server, v *value, a []string) any {
	i, valid := parseInt(a[2])
	switch {
	case v.missing:
		return nil
	case !valid:
		return errNotInteger
	case i < 0:
		i += int64(len(v.list))
	}
	if i < 0 || i >= int64(len(v.list)) {
		return nil
	}
	return v.list[i]
}

func lrem(s *Server, v *value, a []string) any {
	count, removed := number(a[2]), int64(0)
	drop := func(e string) bool {
		if e != a[3] || count > 0 && removed == count || count < 0 && removed == -count {
			return false
		}
		removed++
		return true
	}
	if count < 0 {
		slices.Reverse(v.list)
	}
	v.list = slices.DeleteFunc(v.list, drop)
	if count < 0 {
		slices.Reverse(v.list)
	}
	if removed > 0 {
		s.changed(v, a...)
	}
	return removed
}

func ltrim(s *Server, v *value, a []string) any {
	if !v.missing {
		i, j := span(number(a[2]), number(a[3]), len(v.list))
		v.list = slices.Clone(v.list[i:j])
		s.changed(v, a...)
	}
	return ok
}
