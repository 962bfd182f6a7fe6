package simredis

import (
	"math"
	"slices"
)

func sortedSetCommands() []command {
	return []command{
		writes("zadd", -4, zadd),
		writes("zincrby", 4, func(s *Server, a []string) any { return s.zaddPairs(a, optIncr, a[2:]) }),
		reads("zcard", 2, of(kindSortedSet, size)),
		reads("zscore", 3, of(kindSortedSet, func(_ *Server, v *value, a []string) any { return v.zset.reply(a[2]) })),
		reads("zmscore", -3, of(kindSortedSet, func(_ *Server, v *value, a []string) any { return forEach(a[2:], v.zset.reply) })),
		reads("zcount", 4, byScores(zcount)),
		reads("zrank", 3, rank(false)),
		reads("zrevrank", 3, rank(true)),
		writes("zrem", -3, of(kindSortedSet, deleteMembers)),
		writes("zpopmin", -2, func(s *Server, a []string) any { return s.zpop(a, false) }),
		writes("zpopmax", -2, func(s *Server, a []string) any { return s.zpop(a, true) }),
		reads("zrange", -4, func(s *Server, a []string) any { return s.zrange(a, 0, optRev|optByScore) }),
		reads("zrevrange", -4, func(s *Server, a []string) any { return s.zrange(a, optRev, 0) }),
		reads("zrangebyscore", -4, func(s *Server, a []string) any { return s.zrange(a, optByScore, 0) }),
		reads("zrevrangebyscore", -4, func(s *Server, a []string) any { return s.zrange(a, optByScore|optRev, 0) }),
		writes("zremrangebyscore", 4, byScores(zremRange)),
		writes("zremrangebyrank", 4, integers(of(kindSortedSet, func(s *Server, v *value, a []string) any {
			i, j := span(number(a[2]), number(a[3]), len(v.zset.list))
			return zremRange(s, v, a, i, j)
		}), 2, 3)),
	}
}

func zadd(s *Server, a []string) any {
	o, _, pairs := parseOptions(a[2:], optNX|optXX|optGT|optLT|optCH|optIncr)
	switch {
	case len(pairs)%2 != 0 || len(pairs) == 0:
		return errSyntax
	case o.has(optNX) && o.has(optXX):
		return Error("ERR XX and NX options at the same time are not compatible")
	case o.has(optNX) && o.has(optGT|optLT), o.has(optGT) && o.has(optLT):
		return Error("ERR GT, LT, and/or NX options at the same time are not compatible")
	case o.has(optIncr) && len(pairs) > 2:
		return Error("ERR INCR option supports a single increment-element pair")
	}
	return s.zaddPairs(a, o, pairs)
}

func (s *Server) zaddPairs(a []string, o options, pairs []string) any {
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
	added, updated := int64(0), int64(0)
	var last any
	for i, score := range scores {
		name := pairs[2*i+1]
		old, found := v.zset.score(name)
		if found && o.has(optNX) || !found && o.has(optXX) {
			continue
		}
		if found && o.has(optIncr) {
			score += old
			if math.IsNaN(score) {
				return Error("ERR resulting score is not a number (NaN)")
			}
		}
		if found && (o.has(optGT) && score <= old || o.has(optLT) && score >= old) {
			continue
		}
		last = Double(score)
		if !found || score != old {
			v.zset.set(name, score)
			added += integer(!found)
			updated += integer(found)
		}
	}
	if added+updated > 0 {
		s.changed(v, a...)
	}
	switch {
	case o.has(optIncr):
		return last
	case o.has(optCH):
		return added + updated
	}
	return added
}

func rank(reverse bool) runner {
	return of(kindSortedSet, func(_ *Server, v *value, a []string) any {
		f, found := v.zset.score(a[2])
		if !found {
			return nil
		}
		i := v.zset.rank(member{a[2], f})
		if reverse {
			i = len(v.zset.list) - 1 - i
		}
		return int64(i)
	})
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

func (s *Server) zpop(a []string, largest bool) any {
	count, failed := parseCount(a, 1, errSyntax)
	if failed != nil {
		return failed
	}
	v, right := s.typed(a[1], kindSortedSet)
	if !right {
		return errWrongType
	}
	n := len(v.zset.list)
	k := int(min(count, int64(n)))
	if k == 0 {
		return []any{}
	}
	i, j := 0, k
	if largest {
		i, j = n-k, n
	}
	out := slices.Clone(v.zset.list[i:j])
	if largest {
		slices.Reverse(out)
	}
	v.zset.cut(i, j)
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
	pairs := !s.script && s.session != nil && s.session.proto == 3
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

// zrange is a range by rank, or by what the name of the command says; it may say allowed.
func (s *Server) zrange(a []string, is, allowed options) any {
	o, limit, rest := parseOptions(a[4:], optWithScores|optLimit|allowed)
	offset, count := int64(0), int64(-1)
	if o.has(optLimit) {
		var valid1, valid2 bool
		offset, valid1 = parseInt(limit[0])
		count, valid2 = parseInt(limit[1])
		if !valid1 || !valid2 {
			return errNotInteger
		}
	}
	if len(rest) > 0 {
		return errSyntax
	}
	o |= is
	if count != -1 && !o.has(optByScore) {
		return Error("ERR syntax error, LIMIT is only supported in combination with either BYSCORE or BYLEX")
	}
	low, high := a[2], a[3]
	if o.has(optRev) && o.has(optByScore) {
		low, high = high, low
	}
	r, isRange := parseScoreRange(low, high)
	from, valid1 := parseInt(low)
	to, valid2 := parseInt(high)
	switch {
	case o.has(optByScore) && !isRange:
		return errBound
	case !o.has(optByScore) && (!valid1 || !valid2):
		return errNotInteger
	}
	v, right := s.typed(a[1], kindSortedSet)
	if !right {
		return errWrongType
	}
	list := slices.Clone(v.zset.list)
	if o.has(optByScore) {
		i, j := v.zset.within(r)
		list = list[i:j]
	}
	if o.has(optRev) {
		slices.Reverse(list)
	}
	switch {
	case !o.has(optByScore):
		i, j := span(from, to, len(list))
		list = list[i:j]
	case offset < 0 || offset >= int64(len(list)):
		list = nil
	default:
		list = list[offset:]
		if count >= 0 {
			list = list[:min(count, int64(len(list)))]
		}
	}
	if o.has(optWithScores) {
		return s.withScores(list)
	}
	out := make([]any, len(list))
	for i, m := range list {
		out[i] = m.name
	}
	return out
}
