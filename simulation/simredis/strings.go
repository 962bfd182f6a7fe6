package simredis

import (
	"math"
	"strconv"
	"strings"
)

func stringCommands() []command {
	return []command{
		reads("get", 2, of(kindString, get)),
		writes("set", -3, set),
		writes("setnx", 3, setNX),
		writes("setex", 4, func(s *Server, a []string) any { return s.setEX(a, optEX) }),
		writes("psetex", 4, func(s *Server, a []string) any { return s.setEX(a, optPX) }),
		writes("getset", 3, of(kindString, getSet)),
		writes("getdel", 2, of(kindString, getDel)),
		reads("mget", -2, mget).over(1),
		writes("mset", -3, mset).over(2),
		writes("msetnx", -3, mset).over(2),
		reads("strlen", 2, of(kindString, func(_ *Server, v *value, _ []string) any { return int64(len(v.str)) })),
		reads("getrange", 4, integers(of(kindString, getRange), 2, 3)),
		writes("incr", 2, increment(func([]string) int64 { return 1 })),
		writes("decr", 2, increment(func([]string) int64 { return -1 })),
		writes("incrby", 3, integers(increment(func(a []string) int64 { return number(a[2]) }), 2)),
		writes("decrby", 3, integers(decrBy, 2)),
	}
}

func get(_ *Server, v *value, _ []string) any {
	if v.missing {
		return nil
	}
	return v.str
}

// parseExpiry reads the number of EX, PX, EXAT or PXAT.
func (s *Server) parseExpiry(o options, text, name string) (int64, any) {
	n, valid := parseInt(text)
	if !valid {
		return 0, errNotInteger
	}
	unit, base := int64(1), int64(0)
	if o.has(optEX | optEXAT) {
		unit = 1000
	}
	if o.has(optEX | optPX) {
		base = s.now
	}
	if n <= 0 || n > (math.MaxInt64-base)/unit {
		return 0, errExpire(name)
	}
	return n*unit + base, nil
}

func set(s *Server, a []string) any {
	o, number, rest := parseOptions(a[3:], optNX|optXX|optGet|optKeepTTL|expiries)
	if len(rest) > 0 || o.has(optNX) && o.has(optXX) {
		return errSyntax
	}
	expire := int64(0)
	if o.has(expiries) {
		var failed any
		if expire, failed = s.parseExpiry(o, number[0], "set"); failed != nil {
			return failed
		}
	}
	var old any
	v := s.lookup(a[1])
	if o.has(optGet) && v != nil {
		if v.kind != kindString {
			return errWrongType
		}
		old = v.str
	}
	if o.has(optNX) && v != nil || o.has(optXX) && v == nil {
		return old
	}
	if o.has(optKeepTTL) && v != nil {
		expire = v.expire
	}
	s.assign(a[1], a[2], expire)
	if o.has(optGet) {
		return old
	}
	return ok
}

// assign makes a key a string; expire is 0 for one that does not expire.
func (s *Server) assign(key, text string, expire int64) {
	s.keys[key] = &value{kind: kindString, str: text, expire: expire}
	if expire == 0 {
		s.wrote(key, "SET", key, text)
	} else {
		s.wrote(key, "SET", key, text, "PXAT", strconv.FormatInt(expire, 10))
	}
}

func setNX(s *Server, a []string) any {
	if s.lookup(a[1]) != nil {
		return int64(0)
	}
	s.assign(a[1], a[2], 0)
	return int64(1)
}

func (s *Server) setEX(a []string, o options) any {
	at, failed := s.parseExpiry(o, a[2], strings.ToLower(a[0]))
	if failed != nil {
		return failed
	}
	s.assign(a[1], a[3], at)
	return ok
}

func getSet(s *Server, v *value, a []string) any {
	old := get(s, v, a)
	s.assign(a[1], a[2], 0)
	return old
}

func getDel(s *Server, v *value, a []string) any {
	if !v.missing {
		s.remove(a[1])
	}
	return get(s, v, a)
}

func mget(s *Server, a []string) any {
	out := make([]any, len(a)-1)
	for i, k := range a[1:] {
		if v := s.lookup(k); v != nil && v.kind == kindString {
			out[i] = v.str
		}
	}
	return out
}

func mset(s *Server, a []string) any {
	nx := strings.EqualFold(a[0], "msetnx")
	if len(a)%2 == 0 {
		return errArity(strings.ToLower(a[0]))
	}
	for i := 1; nx && i < len(a); i += 2 {
		if s.lookup(a[i]) != nil {
			return int64(0)
		}
	}
	for i := 1; i < len(a); i += 2 {
		s.assign(a[i], a[i+1], 0)
	}
	if nx {
		return int64(1)
	}
	return ok
}

func getRange(_ *Server, v *value, a []string) any {
	from, to, size := number(a[2]), number(a[3]), int64(len(v.str))
	if from < 0 && to < 0 && from > to {
		return ""
	}
	if to < -size { // unlike in a list, that means the first byte
		to = -size
	}
	i, j := span(from, to, len(v.str))
	return v.str[i:j]
}

func decrBy(s *Server, a []string) any {
	if number(a[2]) == math.MinInt64 {
		return Error("ERR decrement would overflow")
	}
	return increment(func(a []string) int64 { return -number(a[2]) })(s, a)
}

func increment(by func(a []string) int64) runner {
	return of(kindString, func(s *Server, v *value, a []string) any {
		sum, failed := addTo(v.str, !v.missing, by(a), errNotInteger)
		if failed != nil {
			return failed
		}
		v.str = strconv.FormatInt(sum, 10)
		s.changed(v, a...)
		return sum
	})
}

// addTo adds to a number that is a text, or to 0 if there is none.
func addTo(old string, found bool, by int64, notNumber Error) (int64, any) {
	n, valid := parseInt(old)
	if found && !valid {
		return 0, notNumber
	}
	sum := n + by
	if (by >= 0) != (sum >= n) {
		return 0, errOverflow
	}
	return sum, nil
}
