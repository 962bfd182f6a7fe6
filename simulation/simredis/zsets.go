package simredis

import "slices"

func sortedSetCommands() []command {
	return []command{
		writes("zadd", -4, zadd),
		reads("zcard", 2, of(kindSortedSet, size)),
		reads("zscore", 3, of(kindSortedSet, zscore)),
		reads("zcount", 4, byScores(zcount)),
		reads("zrank", 3, of(kindSortedSet, zrank)),
		writes("zrem", -3, of(kindSortedSet, deleteMembers)),
		writes("zpopmin", -2, zpopMin),
		reads("zrange", -4, zrange(false)),
		reads("zrevrange", -4, zrange(true)),
		reads("zrangebyscore", -4, zrangeByScore),
		writes("zremrangebyscore", 4, byScores(zremRange)),
	}
}

func zadd(s *Server, a []string) any {
	o, _, pairs := parseOptions(a[2:], optNX|optXX)
	switch {
	case len(pairs)%2 != 0 || len(pairs) == 0:
		return errSyntax
	case o.has(optNX) && o.has(optXX):
		return Error("ERR XX and NX options at the same time are not compatible")
	}
	scores := make([]float64, len(pairs)/2)
	for i := range scores {
		var valid bool
		if scores[i], valid = parseFloat(pairs[2*i]); !valid {
			return errNotFloat
		}
	}
	v, right := s.typed(a[1], kindSortedSet)
	if !right {
		return errWrongType
	}
	added, changed := int64(0), false
	for i, score := range scores {
		name := pairs[2*i+1]
		old, found := v.zset.score(name)
		if found && (o.has(optNX) || score == old) || !found && o.has(optXX) {
			continue
		}
		v.zset.set(name, score)
		added, changed = added+integer(!found), true
	}
	if changed {
		s.changed(v, a...)
	}
	return added
}

func zscore(_ *Server, v *value, a []string) any {
	if f, found := v.zset.score(a[2]); found {
		return Double(f)
	}
	return nil
}

func zrank(_ *Server, v *value, a []string) any {
	if f, found := v.zset.score(a[2]); found {
		return int64(v.zset.rank(member{a[2], f}))
	}
	return nil
}

const errBound = Error("ERR min or max is not a float")

// byScores is a command on the members between two scores: from place i to before place j.
func byScores(run func(s *Server, v *value, a []string, i, j int) any) runner {
	return func(s *Server, a []string) any {
		r, valid := parseScoreRange(a[2], a[3])
		if !valid {
			return errBound
		}
		return of(kindSortedSet, func(s *Server, v *value, a []string) any {
			i, j := v.zset.within(r)
			return run(s, v, a, i, j)
		})(s, a)
	}
}

func zcount(_ *Server, _ *value, _ []string, i, j int) any { return int64(j - i) }

func zremRange(s *Server, v *value, a []string, i, j int) any {
	if j > i {
		v.zset.cut(i, j)
		s.changed(v, a...)
	}
	return int64(j - i)
}

func zpopMin(s *Server, a []string) any {
	count, failed := parseCount(a, errSyntax)
	if failed != nil {
		return failed
	}
	v, right := s.typed(a[1], kindSortedSet)
	if !right {
		return errWrongType
	}
	k := int(min(count, int64(len(v.zset.list))))
	if k == 0 {
		return []any{}
	}
	out := slices.Clone(v.zset.list[:k])
	v.zset.cut(0, k)
	args := []string{"ZREM", a[1]}
	for _, m := range out {
		args = append(args, m.name)
	}
	s.changed(v, args...)
	if len(a) == 2 { // without a count it is not in pairs
		return []any{out[0].name, Double(out[0].score)}
	}
	return s.withScores(out)
}

// withScores is members with their scores: one after the other, or in pairs in RESP3.
func (s *Server) withScores(list []member) []any {
	pairs := !s.script && s.session.proto == 3
	out := make([]any, 0, 2*len(list))
	for _, m := range list {
		if pairs {
			out = append(out, []any{m.name, Double(m.score)})
		} else {
			out = append(out, m.name, Double(m.score))
		}
	}
	return out
}

// members are members, with their scores if those are asked for.
func (s *Server) members(list []member, o options) any {
	if o.has(optWithScores) {
		return s.withScores(list)
	}
	out := make([]any, len(list))
	for i, m := range list {
		out[i] = m.name
	}
	return out
}

// zrange is a range by rank.
func zrange(reverse bool) runner {
	return func(s *Server, a []string) any {
		o, _, rest := parseOptions(a[4:], optWithScores)
		if len(rest) > 0 {
			return errSyntax
		}
		return integers(of(kindSortedSet, func(s *Server, v *value, a []string) any {
			list := slices.Clone(v.zset.list)
			if reverse {
				slices.Reverse(list)
			}
			i, j := span(number(a[2]), number(a[3]), len(list))
			return s.members(list[i:j], o)
		}), 2, 3)(s, a)
	}
}

func zrangeByScore(s *Server, a []string) any {
	o, limit, rest := parseOptions(a[4:], optWithScores|optLimit)
	if !o.has(optLimit) {
		limit = []string{"0", "-1"}
	}
	offset, valid := parseInt(limit[0])
	count, also := parseInt(limit[1])
	switch {
	case !valid || !also:
		return errNotInteger
	case len(rest) > 0:
		return errSyntax
	}
	return byScores(func(s *Server, v *value, _ []string, i, j int) any {
		list := v.zset.list[i:j]
		if offset < 0 || offset >= int64(len(list)) {
			return s.members(nil, o)
		}
		if list = list[offset:]; count >= 0 {
			list = list[:min(count, int64(len(list)))]
		}
		return s.members(list, o)
	})(s, a)
}
