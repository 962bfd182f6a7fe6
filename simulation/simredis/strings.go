package simredis

import (
	"math"
	"math/big"
	"strconv"
	"strings"
)

func stringCommands() []command {
	return []command{
		{name: "get", arity: 2, flags: readOnly, first: 1, last: 1, step: 1, run: get},
		{name: "set", arity: -3, flags: write, first: 1, last: 1, step: 1, run: set},
		{name: "setnx", arity: 3, flags: write, first: 1, last: 1, step: 1, run: setNX},
		{name: "setex", arity: 4, flags: write, first: 1, last: 1, step: 1, run: func(s *Server, a []string) any { return s.setEX(a, 1000) }},
		{name: "psetex", arity: 4, flags: write, first: 1, last: 1, step: 1, run: func(s *Server, a []string) any { return s.setEX(a, 1) }},
		{name: "getset", arity: 3, flags: write, first: 1, last: 1, step: 1, run: getSet},
		{name: "getdel", arity: 2, flags: write, first: 1, last: 1, step: 1, run: getDel},
		{name: "getex", arity: -2, flags: write, first: 1, last: 1, step: 1, run: getEX},
		{name: "mget", arity: -2, flags: readOnly, first: 1, last: -1, step: 1, run: mget},
		{name: "mset", arity: -3, flags: write, first: 1, last: -1, step: 2, run: mset},
		{name: "msetnx", arity: -3, flags: write, first: 1, last: -1, step: 2, run: mset},
		{name: "append", arity: 3, flags: write, first: 1, last: 1, step: 1, run: appendTo},
		{name: "strlen", arity: 2, flags: readOnly, first: 1, last: 1, step: 1, run: strlen},
		{name: "getrange", arity: 4, flags: readOnly, first: 1, last: 1, step: 1, run: getRange},
		{name: "substr", arity: 4, flags: readOnly, first: 1, last: 1, step: 1, run: getRange},
		{name: "setrange", arity: 4, flags: write, first: 1, last: 1, step: 1, run: setRange},
		{name: "incr", arity: 2, flags: write, first: 1, last: 1, step: 1, run: func(s *Server, a []string) any { return s.increment(a, 1) }},
		{name: "decr", arity: 2, flags: write, first: 1, last: 1, step: 1, run: func(s *Server, a []string) any { return s.increment(a, -1) }},
		{name: "incrby", arity: 3, flags: write, first: 1, last: 1, step: 1, run: incrBy},
		{name: "decrby", arity: 3, flags: write, first: 1, last: 1, step: 1, run: decrBy},
		{name: "incrbyfloat", arity: 3, flags: write, first: 1, last: 1, step: 1, run: incrByFloat},
	}
}

func get(s *Server, a []string) any {
	v, right := s.typed(a[1], kindString)
	switch {
	case !right:
		return errWrongType
	case v == nil:
		return nil
	}
	return v.str
}

// parseExpiry reads EX, PX, EXAT or PXAT and its number.
func (s *Server) parseExpiry(option, number, name string) (int64, any) {
	n, valid := parseInt(number)
	if !valid {
		return 0, errNotInteger
	}
	seconds, relative := option[0] == 'e', len(option) == 2
	if n <= 0 || seconds && n > math.MaxInt64/1000 {
		return 0, errExpire(name)
	}
	if seconds {
		n *= 1000
	}
	if relative {
		if n > math.MaxInt64-s.now {
			return 0, errExpire(name)
		}
		n += s.now
	}
	return n, nil
}

func set(s *Server, a []string) any {
	var nx, xx, get, keep bool
	option, number := "", ""
	for i := 3; i < len(a); i++ {
		switch o := strings.ToLower(a[i]); {
		case o == "nx" && !xx:
			nx = true
		case o == "xx" && !nx:
			xx = true
		case o == "get":
			get = true
		case o == "keepttl" && option == "":
			keep = true
		case (o == "ex" || o == "px" || o == "exat" || o == "pxat") && option == "" && !keep && i+1 < len(a):
			option, number = o, a[i+1]
			i++
		default:
			return errSyntax
		}
	}
	expire := int64(0)
	if option != "" {
		var failed any
		if expire, failed = s.parseExpiry(option, number, "set"); failed != nil {
			return failed
		}
	}
	var old any
	v := s.lookup(a[1])
	if get && v != nil {
		if v.kind != kindString {
			return errWrongType
		}
		old = v.str
	}
	if nx && v != nil || xx && v == nil {
		return old
	}
	if keep && v != nil {
		expire = v.expire
	}
	s.store(a[1], a[2], expire)
	switch {
	case option != "":
		s.wrote(a[1], "SET", a[1], a[2], "PXAT", strconv.FormatInt(expire, 10))
	case keep:
		s.wrote(a[1], "SET", a[1], a[2], "KEEPTTL")
	default:
		s.wrote(a[1], "SET", a[1], a[2])
	}
	if get {
		return old
	}
	return ok
}

func (s *Server) store(key, text string, expire int64) {
	v := s.keys[key]
	if v == nil || v.kind != kindString {
		v = s.add(key, kindString)
	}
	v.str, v.expire = text, expire
}

func setNX(s *Server, a []string) any {
	if s.lookup(a[1]) != nil {
		return int64(0)
	}
	s.store(a[1], a[2], 0)
	s.wrote(a[1], a...)
	return int64(1)
}

func (s *Server) setEX(a []string, unit int64) any {
	option := "px"
	if unit == 1000 {
		option = "ex"
	}
	at, failed := s.parseExpiry(option, a[2], strings.ToLower(a[0]))
	if failed != nil {
		return failed
	}
	s.store(a[1], a[3], at)
	s.wrote(a[1], "SET", a[1], a[3], "PXAT", strconv.FormatInt(at, 10))
	return ok
}

func getSet(s *Server, a []string) any {
	old := get(s, a)
	if old == errWrongType {
		return old
	}
	s.store(a[1], a[2], 0)
	s.wrote(a[1], "SET", a[1], a[2])
	return old
}

func getDel(s *Server, a []string) any {
	old := get(s, a)
	if old == nil || old == errWrongType {
		return old
	}
	delete(s.keys, a[1])
	s.wrote(a[1], "DEL", a[1])
	return old
}

func getEX(s *Server, a []string) any {
	option, number, keep := "", "", false
	for i := 2; i < len(a); i++ {
		switch o := strings.ToLower(a[i]); {
		case o == "persist" && option == "":
			keep = true
		case (o == "ex" || o == "px" || o == "exat" || o == "pxat") && option == "" && !keep && i+1 < len(a):
			option, number = o, a[i+1]
			i++
		default:
			return errSyntax
		}
	}
	v, right := s.typed(a[1], kindString)
	switch {
	case v == nil:
		return nil
	case !right:
		return errWrongType
	}
	switch {
	case option != "":
		at, failed := s.parseExpiry(option, number, "getex")
		if failed != nil {
			return failed
		}
		if at <= s.now && !s.applying {
			delete(s.keys, a[1])
			s.wrote(a[1], "DEL", a[1])
			break
		}
		v.expire = at
		s.wrote(a[1], "PEXPIREAT", a[1], strconv.FormatInt(at, 10))
	case keep && v.expire != 0:
		v.expire = 0
		s.wrote(a[1], "PERSIST", a[1])
	}
	return v.str
}

func mget(s *Server, a []string) any {
	out := make([]any, len(a)-1)
	for i, k := range a[1:] {
		if v, right := s.typed(k, kindString); v != nil && right {
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
	if nx {
		for i := 1; i < len(a); i += 2 {
			if s.lookup(a[i]) != nil {
				return int64(0)
			}
		}
	}
	for i := 1; i < len(a); i += 2 {
		s.store(a[i], a[i+1], 0)
		s.touch(a[i])
	}
	s.propagate(a...)
	if nx {
		return int64(1)
	}
	return ok
}

func appendTo(s *Server, a []string) any {
	v, right := s.typed(a[1], kindString)
	if !right {
		return errWrongType
	}
	if v == nil {
		v = s.add(a[1], kindString)
	}
	v.str += a[2]
	s.wrote(a[1], a...)
	return int64(len(v.str))
}

func strlen(s *Server, a []string) any {
	v, right := s.typed(a[1], kindString)
	switch {
	case !right:
		return errWrongType
	case v == nil:
		return int64(0)
	}
	return int64(len(v.str))
}

func getRange(s *Server, a []string) any {
	from, valid1 := parseInt(a[2])
	to, valid2 := parseInt(a[3])
	if !valid1 || !valid2 {
		return errNotInteger
	}
	v, right := s.typed(a[1], kindString)
	switch {
	case !right:
		return errWrongType
	case v == nil || from < 0 && to < 0 && from > to:
		return ""
	}
	// Unlike in a list, an end before the beginning means the first byte.
	size := int64(len(v.str))
	if from < 0 {
		from = max(from+size, 0)
	}
	if to < 0 {
		to = max(to+size, 0)
	}
	to = min(to, size-1)
	if from > to || size == 0 {
		return ""
	}
	return v.str[from : to+1]
}

func setRange(s *Server, a []string) any {
	at, valid := parseInt(a[2])
	if !valid {
		return errNotInteger
	}
	if at < 0 {
		return Error("ERR offset is out of range")
	}
	v, right := s.typed(a[1], kindString)
	if !right {
		return errWrongType
	}
	if a[3] == "" {
		if v == nil {
			return int64(0)
		}
		return int64(len(v.str))
	}
	if at+int64(len(a[3])) > maxBulk || at > maxBulk {
		return Error("ERR string exceeds maximum allowed size (proto-max-bulk-len)")
	}
	if v == nil {
		v = s.add(a[1], kindString)
	}
	b := []byte(v.str)
	if end := int(at) + len(a[3]); end > len(b) {
		b = append(b, make([]byte, end-len(b))...)
	}
	copy(b[at:], a[3])
	v.str = string(b)
	s.wrote(a[1], a...)
	return int64(len(v.str))
}

func incrBy(s *Server, a []string) any {
	by, valid := parseInt(a[2])
	if !valid {
		return errNotInteger
	}
	return s.increment(a, by)
}

func decrBy(s *Server, a []string) any {
	by, valid := parseInt(a[2])
	switch {
	case !valid:
		return errNotInteger
	case by == math.MinInt64:
		return Error("ERR decrement would overflow")
	}
	return s.increment(a, -by)
}

func (s *Server) increment(a []string, by int64) any {
	v, right := s.typed(a[1], kindString)
	if !right {
		return errWrongType
	}
	n := int64(0)
	if v != nil {
		var valid bool
		if n, valid = parseInt(v.str); !valid {
			return errNotInteger
		}
	}
	sum, valid := addInt(n, by)
	if !valid {
		return errOverflow
	}
	if v == nil {
		v = s.add(a[1], kindString)
	}
	v.str = strconv.FormatInt(sum, 10)
	s.wrote(a[1], a...)
	return sum
}

func incrByFloat(s *Server, a []string) any {
	v, right := s.typed(a[1], kindString)
	if !right {
		return errWrongType
	}
	old := "0"
	if v != nil {
		old = v.str
	}
	sum, failed := addFloats(old, a[2], errNotFloat)
	if failed != nil {
		return failed
	}
	if v == nil {
		v = s.add(a[1], kindString)
	}
	v.str = sum
	s.wrote(a[1], "SET", a[1], sum, "KEEPTTL")
	return sum
}

// addFloats adds as the 80-bit numbers do that Redis uses here.
func addFloats(old, by string, notOld Error) (string, any) {
	x, valid := parseLong(old)
	if !valid {
		return "", notOld
	}
	y, valid := parseLong(by)
	if !valid {
		return "", errNotFloat
	}
	if x.IsInf() || y.IsInf() {
		return "", Error("ERR increment would produce NaN or Infinity")
	}
	sum := new(big.Float).SetPrec(64).Add(x, y)
	text := sum.Text('f', 17)
	if strings.Contains(text, ".") {
		text = strings.TrimSuffix(strings.TrimRight(text, "0"), ".")
	}
	if text == "-0" {
		text = "0"
	}
	return text, nil
}

// parseLong reads a number as an 80-bit one.
func parseLong(s string) (*big.Float, bool) {
	if s == "" || isSpace(s[0]) || numberLength(s) != len(s) {
		return nil, false
	}
	f, _, inRange := strtod(s)
	switch {
	case math.IsNaN(f):
		return nil, false
	case math.IsInf(f, 0) && inRange:
		return new(big.Float).SetInf(f < 0), true
	}
	if strings.ContainsAny(s, "xX") {
		return new(big.Float).SetPrec(64).SetFloat64(f), true
	}
	long, _, err := big.ParseFloat(s, 10, 64, big.ToNearestEven)
	if err != nil || long.MantExp(nil) > 16384 || long.MantExp(nil) < -16445 {
		return nil, false
	}
	return long, true
}
