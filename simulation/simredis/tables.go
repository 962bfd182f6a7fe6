package simredis

import (
	"strconv"
	"strings"
)

func hashCommands() []command {
	return []command{
		writes("hset", -4, hset),
		writes("hmset", -4, hset),
		writes("hsetnx", 4, of(kindHash, hsetNX)),
		reads("hget", 3, of(kindHash, func(_ *Server, v *value, a []string) any { return v.table.get(a[2]) })),
		reads("hmget", -3, of(kindHash, func(_ *Server, v *value, a []string) any { return forEach(a[2:], v.table.get) })),
		writes("hdel", -3, of(kindHash, deleteMembers)),
		reads("hlen", 2, of(kindHash, size)),
		reads("hexists", 3, of(kindHash, contains)),
		reads("hgetall", 2, of(kindHash, func(_ *Server, v *value, _ []string) any { return Map(v.table.all(true, true)) })),
		reads("hkeys", 2, of(kindHash, func(_ *Server, v *value, _ []string) any { return v.table.all(true, false) })),
		reads("hvals", 2, of(kindHash, func(_ *Server, v *value, _ []string) any { return v.table.all(false, true) })),
		writes("hincrby", 4, integers(of(kindHash, hincrBy), 3)),
	}
}

func setCommands() []command {
	return []command{
		writes("sadd", -3, of(kindSet, sadd)),
		writes("srem", -3, of(kindSet, deleteMembers)),
		reads("smembers", 2, of(kindSet, func(_ *Server, v *value, _ []string) any { return Set(v.table.all(true, false)) })),
		reads("sismember", 3, of(kindSet, contains)),
		reads("scard", 2, of(kindSet, size)),
	}
}

func hset(s *Server, a []string) any {
	name := strings.ToLower(a[0])
	if len(a)%2 == 1 {
		return errArity(name)
	}
	return of(kindHash, func(s *Server, v *value, a []string) any {
		n := int64(0)
		for i := 2; i < len(a); i += 2 {
			n += integer(v.table.set(a[i], a[i+1]))
		}
		s.changed(v, a...)
		if name == "hmset" {
			return ok
		}
		return n
	})(s, a)
}

func hsetNX(s *Server, v *value, a []string) any {
	if v.table.find(a[2]) >= 0 {
		return int64(0)
	}
	v.table.set(a[2], a[3])
	s.changed(v, a...)
	return int64(1)
}

func hincrBy(s *Server, v *value, a []string) any {
	old, found := v.table.get(a[2]).(string)
	sum, failed := addTo(old, found, number(a[3]), "ERR hash value is not an integer")
	if failed != nil {
		return failed
	}
	v.table.set(a[2], strconv.FormatInt(sum, 10))
	s.changed(v, a...)
	return sum
}

func sadd(s *Server, v *value, a []string) any {
	n := int64(0)
	for _, m := range a[2:] {
		n += integer(v.table.set(m, ""))
	}
	if n > 0 {
		s.changed(v, a...)
	}
	return n
}

func size(_ *Server, v *value, _ []string) any {
	return int64(len(v.table.list) + len(v.zset.list) + len(v.list))
}

func contains(_ *Server, v *value, a []string) any { return integer(v.table.find(a[2]) >= 0) }

// deleteMembers takes the members that a command names out of a hash or set, and returns
// how many there were.
func deleteMembers(s *Server, v *value, a []string) any {
	n := int64(0)
	for _, m := range a[2:] {
		if v.kind == kindSortedSet {
			n += integer(v.zset.delete(m))
		} else {
			n += integer(v.table.delete(m))
		}
	}
	if n > 0 {
		s.changed(v, a...)
	}
	return n
}

// forEach is what f says of each name.
func forEach(names []string, f func(name string) any) []any {
	out := make([]any, len(names))
	for i, name := range names {
		out[i] = f(name)
	}
	return out
}
