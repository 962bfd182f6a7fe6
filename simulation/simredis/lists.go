package simredis

import (
	"slices"
	"strings"
)

func listCommands() []command {
	return []command{
		{name: "lpush", arity: -3, flags: write, first: 1, last: 1, step: 1, run: func(s *Server, a []string) any { return s.push(a, true, false) }},
		{name: "rpush", arity: -3, flags: write, first: 1, last: 1, step: 1, run: func(s *Server, a []string) any { return s.push(a, false, false) }},
		{name: "lpushx", arity: -3, flags: write, first: 1, last: 1, step: 1, run: func(s *Server, a []string) any { return s.push(a, true, true) }},
		{name: "rpushx", arity: -3, flags: write, first: 1, last: 1, step: 1, run: func(s *Server, a []string) any { return s.push(a, false, true) }},
		{name: "lpop", arity: -2, flags: write, first: 1, last: 1, step: 1, run: func(s *Server, a []string) any { return s.pop(a, true) }},
		{name: "rpop", arity: -2, flags: write, first: 1, last: 1, step: 1, run: func(s *Server, a []string) any { return s.pop(a, false) }},
		{name: "llen", arity: 2, flags: readOnly, first: 1, last: 1, step: 1, run: llen},
		{name: "lrange", arity: 4, flags: readOnly, first: 1, last: 1, step: 1, run: lrange},
		{name: "lindex", arity: 3, flags: readOnly, first: 1, last: 1, step: 1, run: lindex},
		{name: "lset", arity: 4, flags: write, first: 1, last: 1, step: 1, run: lset},
		{name: "lrem", arity: 4, flags: write, first: 1, last: 1, step: 1, run: lrem},
		{name: "ltrim", arity: 4, flags: write, first: 1, last: 1, step: 1, run: ltrim},
		{name: "blpop", arity: -3, flags: write | noScript, first: 1, last: -2, step: 1, run: func(s *Server, a []string) any { return s.blockingPop(a, true) }},
		{name: "brpop", arity: -3, flags: write | noScript, first: 1, last: -2, step: 1, run: func(s *Server, a []string) any { return s.blockingPop(a, false) }},
	}
}

func (s *Server) push(a []string, left, onlyOld bool) any {
	v, right := s.typed(a[1], kindList)
	switch {
	case !right:
		return errWrongType
	case v == nil && onlyOld:
		return int64(0)
	case v == nil:
		v = s.add(a[1], kindList)
	}
	for _, e := range a[2:] {
		if left {
			v.list = slices.Insert(v.list, 0, e)
		} else {
			v.list = append(v.list, e)
		}
	}
	s.wrote(a[1], a...)
	s.ready(a[1])
	return int64(len(v.list))
}

// take removes n elements of an end of a list, in the order of that end.
func (v *value) take(n int, left bool) []any {
	n = min(n, len(v.list))
	out := make([]any, n)
	for i := range n {
		if left {
			out[i] = v.list[i]
		} else {
			out[i] = v.list[len(v.list)-1-i]
		}
	}
	if left {
		v.list = slices.Delete(v.list, 0, n)
	} else {
		v.list = v.list[:len(v.list)-n]
	}
	return out
}

func (s *Server) pop(a []string, left bool) any {
	if len(a) > 3 {
		return errArity(strings.ToLower(a[0]))
	}
	count := int64(-1)
	if len(a) == 3 {
		var failed any
		if count, failed = parsePositive(a[2]); failed != nil {
			return failed
		}
	}
	v, right := s.typed(a[1], kindList)
	switch {
	case !right:
		return errWrongType
	case v == nil && count >= 0:
		return NullArray{}
	case v == nil:
		return nil
	case count == 0:
		return []any{}
	}
	out := v.take(int(min(max(count, 1), int64(len(v.list)))), left)
	s.dropIfEmpty(a[1], v)
	s.wrote(a[1], a...)
	if count < 0 {
		return out[0]
	}
	return out
}

// parsePositive reads a count.
func parsePositive(text string) (int64, any) {
	n, valid := parseInt(text)
	if !valid || n < 0 {
		return 0, errNotPositive
	}
	return n, nil
}

func llen(s *Server, a []string) any {
	v, right := s.typed(a[1], kindList)
	switch {
	case !right:
		return errWrongType
	case v == nil:
		return int64(0)
	}
	return int64(len(v.list))
}

func lrange(s *Server, a []string) any {
	from, valid1 := parseInt(a[2])
	to, valid2 := parseInt(a[3])
	if !valid1 || !valid2 {
		return errNotInteger
	}
	v, right := s.typed(a[1], kindList)
	switch {
	case !right:
		return errWrongType
	case v == nil:
		return []any{}
	}
	i, j := span(from, to, len(v.list))
	return bulks(v.list[i:j])
}

func bulks(list []string) []any {
	out := make([]any, len(list))
	for i, e := range list {
		out[i] = e
	}
	return out
}

// place is which element of a list an index means, or -1.
func (v *value) place(i int64) int {
	if i < 0 {
		i += int64(len(v.list))
	}
	if i < 0 || i >= int64(len(v.list)) {
		return -1
	}
	return int(i)
}

func lindex(s *Server, a []string) any {
	v, right := s.typed(a[1], kindList)
	switch {
	case !right:
		return errWrongType
	case v == nil:
		return nil
	}
	i, valid := parseInt(a[2])
	if !valid {
		return errNotInteger
	}
	if at := v.place(i); at >= 0 {
		return v.list[at]
	}
	return nil
}

func lset(s *Server, a []string) any {
	v, right := s.typed(a[1], kindList)
	switch {
	case v == nil:
		return errNoKey
	case !right:
		return errWrongType
	}
	i, valid := parseInt(a[2])
	if !valid {
		return errNotInteger
	}
	at := v.place(i)
	if at < 0 {
		return errIndex
	}
	v.list[at] = a[3]
	s.wrote(a[1], a...)
	return ok
}

func lrem(s *Server, a []string) any {
	count, valid := parseInt(a[2])
	if !valid {
		return errNotInteger
	}
	v, right := s.typed(a[1], kindList)
	switch {
	case !right:
		return errWrongType
	case v == nil:
		return int64(0)
	}
	removed := int64(0)
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
		s.dropIfEmpty(a[1], v)
		s.wrote(a[1], a...)
	}
	return removed
}

func ltrim(s *Server, a []string) any {
	from, valid1 := parseInt(a[2])
	to, valid2 := parseInt(a[3])
	if !valid1 || !valid2 {
		return errNotInteger
	}
	v, right := s.typed(a[1], kindList)
	switch {
	case !right:
		return errWrongType
	case v == nil:
		return ok
	}
	i, j := span(from, to, len(v.list))
	v.list = slices.Clone(v.list[i:j])
	s.dropIfEmpty(a[1], v)
	s.wrote(a[1], a...)
	return ok
}
