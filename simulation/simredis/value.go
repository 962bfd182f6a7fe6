package simredis

import "slices"

type kind byte

const (
	kindString kind = iota
	kindHash
	kindSortedSet
	kindList
	kindSet
)

// String is what TYPE says.
func (k kind) String() string {
	switch k {
	case kindString:
		return "string"
	case kindHash:
		return "hash"
	case kindSortedSet:
		return "zset"
	case kindList:
		return "list"
	case kindSet:
		return "set"
	}
	return "none"
}

// value is what a key holds; the field of its kind is set.
type value struct {
	kind   kind
	expire int64 // ms since 1970; 0: never
	str    string
	hash   *table
	zset   *sortedSet
	list   []string
	set    *table // without values
}

func (v *value) clone() *value {
	c := *v
	c.hash, c.set, c.zset, c.list = v.hash.clone(), v.set.clone(), v.zset.clone(), slices.Clone(v.list)
	return &c
}

// lookup returns what a key holds, or nil; it deletes a key that has expired.
func (s *Server) lookup(key string) *value {
	v := s.keys[key]
	if v == nil || v.expire == 0 || s.now <= v.expire || s.applying {
		return v
	}
	if !s.replica {
		delete(s.keys, key)
		s.wrote(key, "DEL", key)
	}
	return nil
}

// typed is lookup for a command that wants a kind. It returns false if the key
// holds another.
func (s *Server) typed(key string, k kind) (*value, bool) {
	v := s.lookup(key)
	return v, v == nil || v.kind == k
}

// add gives a key a new value.
func (s *Server) add(key string, k kind) *value {
	v := &value{kind: k}
	switch k {
	case kindHash:
		v.hash = &table{}
	case kindSet:
		v.set = &table{}
	case kindSortedSet:
		v.zset = &sortedSet{}
	case kindString, kindList:
	}
	s.keys[key] = v
	return v
}

// dropIfEmpty deletes a key whose value has no elements any more.
func (s *Server) dropIfEmpty(key string, v *value) {
	empty := false
	switch v.kind {
	case kindHash:
		empty = v.hash.len() == 0
	case kindSet:
		empty = v.set.len() == 0
	case kindSortedSet:
		empty = len(v.zset.list) == 0
	case kindList:
		empty = len(v.list) == 0
	case kindString:
	}
	if empty {
		delete(s.keys, key)
	}
}
