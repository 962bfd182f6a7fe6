package simredis

import (
	"math"
	"slices"
	"sort"
	"strings"
)

func sortedSetCommands() []command {
	return []command{
		{name: "zadd", arity: -4, flags: write, first: 1, last: 1, step: 1, run: zadd},
		{name: "zincrby", arity: 4, flags: write, first: 1, last: 1, step: 1, run: zincrBy},
		{name: "zcard", arity: 2, flags: readOnly, first: 1, last: 1, step: 1, run: zcard},
		{name: "zscore", arity: 3, flags: readOnly, first: 1, last: 1, step: 1, run: zscore},
		{name: "zmscore", arity: -3, flags: readOnly, first: 1, last: 1, step: 1, run: zmscore},
		{name: "zcount", arity: 4, flags: readOnly, first: 1, last: 1, step: 1, run: zcount},
		{name: "zrank", arity: 3, flags: readOnly, first: 1, last: 1, step: 1, run: func(s *Server, a []string) any { return s.rank(a, false) }},
		{name: "zrevrank", arity: 3, flags: readOnly, first: 1, last: 1, step: 1, run: func(s *Server, a []string) any { return s.rank(a, true) }},
		{name: "zrem", arity: -3, flags: write, first: 1, last: 1, step: 1, run: zrem},
		{name: "zpopmin", arity: -2, flags: write, first: 1, last: 1, step: 1, run: func(s *Server, a []string) any { return s.zpop(a, false) }},
		{name: "zpopmax", arity: -2, flags: write, first: 1, last: 1, step: 1, run: func(s *Server, a []string) any { return s.zpop(a, true) }},
		{name: "zrange", arity: -4, flags: readOnly, first: 1, last: 1, step: 1, run: func(s *Server, a []string) any { return s.zrange(a, zrangeAny) }},
		{name: "zrevrange", arity: -4, flags: readOnly, first: 1, last: 1, step: 1, run: func(s *Server, a []string) any { return s.zrange(a, zrangeByRankReversed) }},
		{name: "zrangebyscore", arity: -4, flags: readOnly, first: 1, last: 1, step: 1, run: func(s *Server, a []string) any { return s.zrange(a, zrangeByScore) }},
		{name: "zrevrangebyscore", arity: -4, flags: readOnly, first: 1, last: 1, step: 1, run: func(s *Server, a []string) any { return s.zrange(a, zrangeByScoreReversed) }},
		{name: "zremrangebyscore", arity: 4, flags: write, first: 1, last: 1, step: 1, run: zremRangeByScore},
		{name: "zremrangebyrank", arity: 4, flags: write, first: 1, last: 1, step: 1, run: zremRangeByRank},
	}
}

// zsetOf returns the sorted set of a key, nil if there is none.
func (s *Server) zsetOf(key string) (*sortedSet, bool) {
	v, right := s.typed(key, kindSortedSet)
	if v == nil || !right {
		return nil, right
	}
	return v.zset, true
}

// zaddOptions are the words of ZADD before the scores.
type zaddOptions struct{ nx, xx, gt, lt, ch, incr bool }

func zadd(s *Server, a []string) any {
	var o zaddOptions
	i := 2
options:
	for ; i < len(a); i++ {
		switch strings.ToLower(a[i]) {
		case "nx":
			o.nx = true
		case "xx":
			o.xx = true
		case "gt":
			o.gt = true
		case "lt":
			o.lt = true
		case "ch":
			o.ch = true
		case "incr":
			o.incr = true
		default:
			break options
		}
	}
	pairs := a[i:]
	switch {
	case len(pairs)%2 != 0 || len(pairs) == 0:
		return errSyntax
	case o.nx && o.xx:
		return Error("ERR XX and NX options at the same time are not compatible")
	case o.gt && o.nx || o.lt && o.nx || o.gt && o.lt:
		return Error("ERR GT, LT, and/or NX options at the same time are not compatible")
	case o.incr && len(pairs) > 2:
		return Error("ERR INCR option supports a single increment-element pair")
	}
	return s.zaddPairs(a, o, pairs)
}

func zincrBy(s *Server, a []string) any {
	return s.zaddPairs(a, zaddOptions{incr: true}, a[2:])
}

func (s *Server) zaddPairs(a []string, o zaddOptions, pairs []string) any {
	scores := make([]float64, len(pairs)/2)
	for i := range scores {
		var valid bool
		if scores[i], valid = parseFloat(pairs[2*i]); !valid {
			return errNotFloat
		}
	}
	v, right := s.typed(a[1], kindSortedSet)
	switch {
	case !right:
		return errWrongType
	case v == nil && o.xx && o.incr:
		return nil
	case v == nil && o.xx:
		return int64(0)
	case v == nil:
		v = s.add(a[1], kindSortedSet)
	}
	added, updated := int64(0), int64(0)
	var last any
	for i, score := range scores {
		name := pairs[2*i+1]
		old, found := v.zset.score(name)
		if found && o.nx || !found && o.xx {
			continue
		}
		if found && o.incr {
			score += old
			if math.IsNaN(score) {
				s.dropIfEmpty(a[1], v)
				return Error("ERR resulting score is not a number (NaN)")
			}
		}
		if found && (o.gt && score <= old || o.lt && score >= old) {
			continue
		}
		last = Double(score)
		switch {
		case !found:
			v.zset.set(name, score)
			added++
		case score != old:
			v.zset.set(name, score)
			updated++
		}
	}
	s.dropIfEmpty(a[1], v)
	if added+updated > 0 {
		s.wrote(a[1], a...)
		s.ready(a[1])
	}
	switch {
	case o.incr:
		return last
	case o.ch:
		return added + updated
	}
	return added
}

func zcard(s *Server, a []string) any {
	z, right := s.zsetOf(a[1])
	switch {
	case !right:
		return errWrongType
	case z == nil:
		return int64(0)
	}
	return int64(len(z.list))
}

func zscore(s *Server, a []string) any {
	z, right := s.zsetOf(a[1])
	if !right {
		return errWrongType
	}
	if f, found := z.score(a[2]); found {
		return Double(f)
	}
	return nil
}

func zmscore(s *Server, a []string) any {
	z, right := s.zsetOf(a[1])
	if !right {
		return errWrongType
	}
	out := make([]any, len(a)-2)
	for i, m := range a[2:] {
		if f, found := z.score(m); found {
			out[i] = Double(f)
		}
	}
	return out
}

func (s *Server) rank(a []string, reverse bool) any {
	z, right := s.zsetOf(a[1])
	if !right {
		return errWrongType
	}
	f, found := z.score(a[2])
	if !found {
		return nil
	}
	i := z.rank(member{a[2], f})
	if reverse {
		i = len(z.list) - 1 - i
	}
	return int64(i)
}

// scoreRange is what ZCOUNT and others have as min and max.
type scoreRange struct {
	min, max         float64
	minOpen, maxOpen bool
}

func parseScoreRange(minimum, maximum string) (r scoreRange, valid bool) {
	r.min, r.minOpen, valid = parseBound(minimum)
	if !valid {
		return r, false
	}
	r.max, r.maxOpen, valid = parseBound(maximum)
	return r, valid
}

func parseBound(s string) (f float64, open, valid bool) {
	if strings.HasPrefix(s, "(") {
		open, s = true, s[1:]
	}
	f, rest, _ := strtod(s)
	return f, open, rest == "" && !math.IsNaN(f)
}

// within is which members have such scores: from place i to before place j.
func (z *sortedSet) within(r scoreRange) (i, j int) {
	i = sort.Search(len(z.list), func(i int) bool {
		f := z.list[i].score
		return f > r.min || f == r.min && !r.minOpen
	})
	j = sort.Search(len(z.list), func(i int) bool {
		f := z.list[i].score
		return f > r.max || f == r.max && r.maxOpen
	})
	return i, max(i, j)
}

const errBound = Error("ERR min or max is not a float")

func zcount(s *Server, a []string) any {
	r, valid := parseScoreRange(a[2], a[3])
	if !valid {
		return errBound
	}
	z, right := s.zsetOf(a[1])
	switch {
	case !right:
		return errWrongType
	case z == nil:
		return int64(0)
	}
	i, j := z.within(r)
	return int64(j - i)
}

func zrem(s *Server, a []string) any {
	return s.deleteMembers(a, kindSortedSet, func(v *value, member string) bool { return v.zset.delete(member) })
}

func (s *Server) zpop(a []string, largest bool) any {
	if len(a) > 3 {
		return errSyntax
	}
	count := int64(1)
	if len(a) == 3 {
		var failed any
		if count, failed = parsePositive(a[2]); failed != nil {
			return failed
		}
	}
	v, right := s.typed(a[1], kindSortedSet)
	switch {
	case !right:
		return errWrongType
	case v == nil || count == 0:
		return []any{}
	}
	n := len(v.zset.list)
	k := int(min(count, int64(n)))
	var out scored
	if largest {
		out = slices.Clone(v.zset.list[n-k:])
		slices.Reverse(out)
		v.zset.cut(n-k, n)
	} else {
		out = slices.Clone(v.zset.list[:k])
		v.zset.cut(0, k)
	}
	args := []string{"ZREM", a[1]}
	for _, m := range out {
		args = append(args, m.name)
	}
	s.dropIfEmpty(a[1], v)
	s.wrote(a[1], args...)
	if len(a) == 2 { // without a count it is not in pairs
		return []any{out[0].name, Double(out[0].score)}
	}
	return out
}

// zrangeKind is what the name of a command says of a range.
type zrangeKind int

const (
	zrangeAny zrangeKind = iota
	zrangeByRankReversed
	zrangeByScore
	zrangeByScoreReversed
)

func (s *Server) zrange(a []string, k zrangeKind) any {
	byScore, reverse := k == zrangeByScore || k == zrangeByScoreReversed, k == zrangeByRankReversed || k == zrangeByScoreReversed
	withScores, limited := false, false
	offset, count := int64(0), int64(-1)
	for i := 4; i < len(a); i++ {
		switch o := strings.ToLower(a[i]); {
		case o == "withscores":
			withScores = true
		case o == "limit" && i+2 < len(a):
			var valid1, valid2 bool
			offset, valid1 = parseInt(a[i+1])
			count, valid2 = parseInt(a[i+2])
			if !valid1 || !valid2 {
				return errNotInteger
			}
			limited = true
			i += 2
		case o == "rev" && k == zrangeAny:
			reverse = true
		case o == "byscore" && k == zrangeAny:
			byScore = true
		default:
			return errSyntax
		}
	}
	if limited && count != -1 && !byScore {
		return Error("ERR syntax error, LIMIT is only supported in combination with either BYSCORE or BYLEX")
	}
	low, high := a[2], a[3]
	if reverse && byScore {
		low, high = high, low
	}
	var r scoreRange
	var from, to int64
	if byScore {
		var valid bool
		if r, valid = parseScoreRange(low, high); !valid {
			return errBound
		}
	} else {
		var valid1, valid2 bool
		from, valid1 = parseInt(low)
		to, valid2 = parseInt(high)
		if !valid1 || !valid2 {
			return errNotInteger
		}
	}
	z, right := s.zsetOf(a[1])
	switch {
	case !right:
		return errWrongType
	case z == nil:
		return []any{}
	}
	var list []member
	switch {
	case byScore:
		i, j := z.within(r)
		list = z.list[i:j]
	default:
		i, j := span(from, to, len(z.list))
		if reverse {
			i, j = len(z.list)-j, len(z.list)-i
		}
		list = z.list[i:j]
	}
	if reverse {
		list = slices.Clone(list)
		slices.Reverse(list)
	}
	if byScore && limited {
		if offset < 0 || offset >= int64(len(list)) {
			list = nil
		} else {
			list = list[offset:]
		}
		if count >= 0 {
			list = list[:min(count, int64(len(list)))]
		}
	}
	if withScores {
		return scored(slices.Clone(list))
	}
	out := make([]any, len(list))
	for i, m := range list {
		out[i] = m.name
	}
	return out
}

func zremRangeByScore(s *Server, a []string) any {
	r, valid := parseScoreRange(a[2], a[3])
	if !valid {
		return errBound
	}
	return s.zremRange(a, func(z *sortedSet) (int, int) { return z.within(r) })
}

func zremRangeByRank(s *Server, a []string) any {
	from, valid1 := parseInt(a[2])
	to, valid2 := parseInt(a[3])
	if !valid1 || !valid2 {
		return errNotInteger
	}
	return s.zremRange(a, func(z *sortedSet) (int, int) { return span(from, to, len(z.list)) })
}

func (s *Server) zremRange(a []string, which func(z *sortedSet) (int, int)) any {
	v, right := s.typed(a[1], kindSortedSet)
	switch {
	case !right:
		return errWrongType
	case v == nil:
		return int64(0)
	}
	i, j := which(v.zset)
	if j > i {
		v.zset.cut(i, j)
		s.dropIfEmpty(a[1], v)
		s.wrote(a[1], a...)
	}
	return int64(j - i)
}
